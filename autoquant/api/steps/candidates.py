"""Candidates from assignments."""

import math
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from autoquant.api.steps.models import check_prepared_type
from autoquant.api.steps.preparation import definition_of
from autoquant.calibration.methods import choose_range, relative_error
from autoquant.domain.arguments import check_several, check_type
from autoquant.domain.region import Assignment, Region, TensorName
from autoquant.domain.scheme import FLOAT, RangeMethod, TensorFormat
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import CalibrationRange, Statistics
from autoquant.errors import UsageError
from autoquant.model.copies import opset_of
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.masks import masked
from autoquant.qdq.own_errors import OwnErrors, errors_of_regions
from autoquant.qdq.planner import Planner
from autoquant.qdq.ports import Means, Ranges, Rounder
from autoquant.qdq.twins import Twins, find_twins
from autoquant.space.resolve import resolve

__all__ = [
    "build",
    "builder_of",
    "means_of",
    "own_errors",
    "planner_of",
    "ranges_of",
    "twins_of",
]

_NOTHING = Statistics(tensors={}, digest="", n_samples=0)


def ranges_of(statistics: Statistics, definition: SpaceDefinition) -> Ranges:
    """Calibration ranges from statistics, each chosen once; those of another space are a ``UsageError``."""

    @cache
    def ranges(tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        observed = statistics.tensors.get(tensor)
        if observed is None:
            raise UsageError(
                f"the statistics do not hold activation '{tensor}', which space {definition.name} quantizes;"
                " calibrate this model with that space and ep"
            )
        return choose_range(observed, method, tensor_format)

    return ranges


def planner_of(prepared: PreparedModel, statistics: Statistics, definition: SpaceDefinition) -> Planner:
    """Says what assignments quantize, and in which ranges."""
    unbounded = masked(prepared.graph, statistics)
    return Planner(prepared.graph, definition.op_types, ranges_of(statistics, definition), unbounded)


def own_errors(
    planner: Planner,
    found: Sequence[Region],
    statistics: Statistics,
    definition: SpaceDefinition,
    *,
    seconds: float = math.inf,
) -> OwnErrors | None:
    """How far from float each region is by what it quantizes itself, see ``autoquant.qdq.own_errors``; nothing is run.

    Args:
        planner: ``planner_of`` the model, or that of its builder.
        found: The partition.
        statistics: What calibration observed.
        definition: The space.
        seconds: Longest time, give or take one tensor; there is no answer where it is too short.
    """

    @cache
    def error(tensor: TensorName, covered: CalibrationRange | None, tensor_format: TensorFormat) -> float:
        observed = statistics.tensors.get(tensor)
        if observed is None:
            return 0.0
        covered = covered or CalibrationRange(observed.minimum, observed.maximum)
        return relative_error(observed, covered, tensor_format)

    return errors_of_regions(planner, found, resolve(definition, found), error, seconds=seconds)


def twins_of(
    prepared: PreparedModel, found: Sequence[Region], definition: SpaceDefinition, planner: Planner | None = None
) -> Twins:
    """Schemes that quantize a region alike, see ``autoquant.qdq.twins``; without a planner no ranges are compared."""
    space = resolve(definition, found)
    if planner is not None:
        return find_twins(planner, found, space, has_ranges=True)
    unseen = Planner(prepared.graph, definition.op_types, ranges_of(_NOTHING, definition))
    return find_twins(unseen, found, space, has_ranges=False)


def means_of(statistics: Statistics) -> Means:
    """Means of the channels that were observed."""

    def means(tensor: TensorName, axis: int) -> npt.NDArray[np.float64] | None:
        found = statistics.channels.get(tensor)
        return found.mean if found is not None and found.axis == axis and found.mean.size else None

    return means


def builder_of(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
    rounder: Rounder | None = None,
) -> Builder:
    """A builder of candidates; keep it to build many."""
    definition = definition_of(space, ep)
    schemes = {scheme.name: scheme for scheme in definition.schemes}
    ranges, means = ranges_of(statistics, definition), means_of(statistics)
    unbounded = masked(prepared.graph, statistics)
    builder = Builder(prepared.graph, found, schemes, definition.op_types, ranges, means, rounder, unbounded)
    builder.around = prepared.around
    return builder


def build(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    assignment: Assignment,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
    rounder: Rounder | None = None,
) -> Candidate:
    """Build one candidate.

    Args:
        prepared: What ``prepare`` gave.
        found: What ``find_regions`` gave.
        statistics: What ``calibrate`` gave.
        assignment: Name of a scheme by region; regions that it does not name stay float.
        space: Name or path of the search space, as regions were found for.
        ep: Execution provider whose section of the space counts.
        rounder: Rounds weights of schemes that do not round to the nearest integer; a search makes its own.

    Raises:
        SpaceError: The space cannot be read.
        UsageError: An argument is of another type, the assignment names an unknown region or scheme or one that the
            opset of the model cannot express, or one of its schemes doesn't round to the nearest integer and there is
            no rounder, or the statistics are those of another model or lack what an operator reads or writes.
    """
    check_prepared_type(prepared)
    check_several("regions", found, Region, "what find_regions(prepared) gives")
    check_type("what was calibrated", statistics, Statistics, "what calibrate(prepared, samples) gives")
    check_type("the assignment", assignment, Mapping, "the name of a scheme for each region")
    unknown = next((name for name in statistics.tensors if not prepared.graph.has_tensor(name)), None)
    if unknown is not None:
        raise UsageError(
            f"the statistics hold tensor '{unknown}', which the model lacks; give those of calibrate(prepared, samples)"
        )
    definition = definition_of(space, ep)
    _check_assignment(assignment, prepared, found, definition)
    return builder_of(prepared, found, statistics, space=definition, ep=ep, rounder=rounder).build(assignment)


def _check_assignment(
    assignment: Assignment, prepared: PreparedModel, found: Sequence[Region], definition: SpaceDefinition
) -> None:
    """Whether it names regions and schemes that there are, which the opset of the model can express."""
    schemes = {scheme.name: scheme for scheme in definition.schemes}
    regions_there, opset = [region.id for region in found], opset_of(prepared.graph.model)
    for region, scheme in assignment.items():
        if region not in regions_there:
            raise UsageError(f"the assignment names region '{region}', but there is: {', '.join(regions_there)}")
        if scheme != FLOAT and scheme not in schemes:
            there = ", ".join([FLOAT, *(each.name for each in definition.at_opset(opset).schemes)])
            raise UsageError(f"the assignment names scheme '{scheme}', but space {definition.name} has: {there}")
        least = 0 if scheme == FLOAT else schemes[scheme].opset
        if least > opset:
            raise UsageError(
                f"the assignment names scheme '{scheme}', which takes opset {least}, but the model stays at opset"
                f" {opset}; export it again with opset {least} or newer"
            )
