"""What a search tries right after the uniform recipes, from an earlier run or a quantized model."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from autoquant.api.folder import read_json
from autoquant.domain.counted import counted
from autoquant.domain.reason import one_line
from autoquant.domain.region import Assignment, NodeName, Region, RegionId
from autoquant.domain.scheme import (
    FLOAT,
    BiasCorrection,
    Operators,
    RangeMethod,
    Rounding,
    Scheme,
    TensorFormat,
)
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError, UsageError
from autoquant.graph.regions import linear_alone
from autoquant.measurement.effective import REQUANTIZED
from autoquant.model.around import candidate_alone
from autoquant.model.graph import Graph
from autoquant.model.io import load_any
from autoquant.model.rewrite import constants_as_initializers, infer_shapes, inline_functions
from autoquant.qdq.imported import Quantized, format_there, of_graph, of_overrides
from autoquant.report.front_json import front_from_json
from autoquant.runtime.overrides import load_overrides
from autoquant.space.translation import KnownRegion, match_regions, nearest_scheme

__all__ = ["EarlierRun", "QuantizedFile", "WarmSource", "WarmStart", "read_warm_start"]

_Rows = TypeVar("_Rows")
_QOPERATORS = ("QLinear", "QGemm", "QAttention")


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What is tried, and a sentence of what could be taken over."""

    assignments: tuple[Assignment, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """A run of the same or a similar model.

    Attributes:
        regions: In topological order.
        schemes: By name; empty for a run whose version did not write them.
        members: Of its front, float left out.
    """

    regions: Sequence[KnownRegion]
    schemes: Mapping[str, Scheme]
    members: Sequence[Assignment]

    def assignments(self, regions: Sequence[Region], space: SearchSpace, graph: Graph) -> WarmStart:
        """Its members in the regions and schemes of now."""
        home, alone = match_regions(self.regions, regions), linear_alone(graph, regions)
        became: dict[str, set[str]] = {}
        found = []
        for member in self.members:
            assignment = {}
            for region, old in ((here, member[other]) for here, other in home.items() if other in member):
                new = self._translated(old, space, region, is_linear_alone=region in alone)
                if new != old or not _is_alike(self._meant(old, space), space.schemes.get(new)):
                    became.setdefault(old, set()).add(f"what {new} is here" if new == old else new)
                if new != FLOAT:
                    assignment[region] = new
            if assignment and assignment not in found:
                found.append(assignment)
        note = (
            f"{len(home)} of {len(regions)} regions are regions of its run too,"
            f" its {counted(len(self.members), 'member')} give {counted(len(found), 'assignment')}"
        )
        if became:
            changes = (f"{old} became {' or '.join(sorted(new))}" for old, new in sorted(became.items()))
            note += f"; of its schemes {', '.join(changes)}"
        return WarmStart(tuple(found), note)

    def _translated(self, name: str, space: SearchSpace, region: RegionId, *, is_linear_alone: bool) -> str:
        """The scheme that it was there, or the nearest one that the region may take, or float."""
        wanted = self._meant(name, space)
        if wanted is None:
            return FLOAT
        known = [space.schemes[choice] for choice in space.choices[region] if choice != FLOAT]
        nearest = nearest_scheme(wanted, known, is_linear_alone=is_linear_alone)
        return FLOAT if nearest is None else nearest.name

    def _meant(self, name: str, space: SearchSpace) -> Scheme | None:
        """The scheme of that name in the run; of a run that did not write its schemes, that of the space."""
        return self.schemes.get(name, space.schemes.get(name))


def _is_alike(old: Scheme | None, new: Scheme | None) -> bool:
    """Whether they differ at most in whether biases are corrected, which each run decides for its model."""
    return old == new or (old is not None and new is not None and replace(old, bias=new.bias) == new)


@dataclass(frozen=True, slots=True)
class QuantizedFile:
    """A QDQ model or overrides."""

    found: Quantized

    def assignments(self, regions: Sequence[Region], space: SearchSpace, graph: Graph) -> WarmStart:
        """One assignment: each region that is quantized there takes the first scheme that fits.

        Where none does, that is the first one that quantizes the same operators, with another type of activations.
        """
        by_name = {node.name: node for node in graph.nodes}
        there = {region.id: format_there([by_name[n] for n in region.nodes], graph, self.found) for region in regions}
        assignment = {}
        n_quantized = n_near = 0
        for region, found in there.items():
            if found is not None:
                n_quantized += 1
                choices = [space.schemes[name] for name in space.choices[region] if name != FLOAT]
                fitting = sorted((s for s in choices if found.is_that_of(s)), key=found.has_other_blocks)
                near = fitting or [scheme for scheme in choices if found.is_like(scheme) and not found.is_dynamic]
                n_near += len(near) > 0 and not fitting
                if near:
                    assignment[region] = near[0].name
        note = f"{n_quantized} of {len(regions)} regions are quantized there"
        if n_quantized > len(assignment):
            note += f", {n_quantized - len(assignment)} of them in a way that the space does not have"
        if n_near:
            note += f", {n_near} of them with a type of activations that it does not have: they take another one"
        dynamic = {region for region, name in assignment.items() if space.schemes[name].is_dynamic}
        n_there = len(self.found.dynamic)
        taken = [by_name[name] for region in regions if region.id in dynamic for name in region.dynamic]
        n_lost = n_there - sum(self.found.format_of_dynamic(node) is not None for node in taken)
        if n_lost:
            note += (
                f"; {n_lost} of {n_there} operators with ranges found at run time are not taken over: all such"
                " operators of a region have them or none, and the space has to have a scheme of this kind"
            )
        return WarmStart((assignment,) if assignment else (), note)


_SOURCES = "give the folder of a run, a QDQ .onnx model or overrides as .json"
WarmSource = EarlierRun | QuantizedFile


def read_warm_start(path: Path) -> WarmSource:
    """Read the folder of a run, a QDQ model or overrides.

    Raises:
        AutoquantError: It is nothing of this kind, or damaged.
    """
    if os.path.isdir(path):  # that of Path raises where a folder is closed or a name too long
        return _read_run(path)
    if not os.path.exists(path):
        raise UsageError(f"warm start {path}: there is no such file or folder; {_SOURCES}")
    if path.suffix == ".onnx":
        model = inline_functions(candidate_alone(load_any(path)))
        graph = Graph(infer_shapes(constants_as_initializers(model)))
        for op_type in sorted({node.op_type.rpartition(":")[2] for node in graph.nodes}):
            if op_type.startswith(_QOPERATORS):
                raise UsageError(
                    f"warm start {path}: '{op_type}' in it is of the format QOperator; give it in QDQ, e.g. from"
                    " quantize_static(..., quant_format=QuantFormat.QDQ)"
                )
        return QuantizedFile(of_graph(graph))
    if path.suffix == ".json":
        return QuantizedFile(of_overrides(load_overrides(path)))
    raise UsageError(f"warm start {path}: files of this kind cannot be read; {_SOURCES}")


def _read_run(folder: Path) -> EarlierRun:
    document = read_json(folder / "run.json", "give the folder of a finished run")
    try:
        front = front_from_json((folder / "front.json").read_text(encoding="utf-8"))
        regions = [_region(row) for row in _rows(document["regions"], list)]
        schemes = {name: _scheme(name, row) for name, row in _rows(document.get("schemes", {}), dict).items()}
    except (OSError, OutputError, KeyError, TypeError, ValueError) as error:
        raise OutputError(f"{folder}: this is no finished run ({one_line(error)}); give the folder of one") from error
    members = [_asked(member.assignment) for member in front.members]
    return EarlierRun(regions=regions, schemes=schemes, members=[member for member in members if member])


def _rows(value: object, kind: type[_Rows]) -> _Rows:
    if not isinstance(value, kind):
        raise TypeError("run.json is damaged")
    return value


def _region(row: Mapping[str, Any]) -> KnownRegion:
    nodes = tuple(NodeName(str(name)) for name in row["nodes"])
    return KnownRegion(id=RegionId(str(row["id"])), nodes=nodes, pattern=str(row["pattern"]))


def _scheme(name: str, row: Mapping[str, str]) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse(row["activation"]),
        weight=TensorFormat.parse(row["weight"]),
        ranges=RangeMethod.parse(row["ranges"]),
        operators=Operators(row["operators"]),
        bias=BiasCorrection(row.get("bias", BiasCorrection.NONE)),
        rounding=Rounding(row.get("rounding", Rounding.NEAREST)),
    )


def _asked(assignment: Assignment) -> Assignment:
    """Without regions that onnxruntime quantized unasked."""
    return {region: name for region, name in assignment.items() if name not in (FLOAT, REQUANTIZED)}
