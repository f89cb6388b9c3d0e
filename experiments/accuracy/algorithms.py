"""Algorithms that are compared: from an assignment to a candidate with the same kernels and other numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autoquant.api import steps
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, Region
from autoquant.domain.scheme import BiasCorrection
from autoquant.domain.space import SpaceDefinition
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from experiments.believe.subjects import Subject

__all__ = ["ALGORITHMS", "PLAIN", "Algorithm", "Setting", "setting_of"]

PLAIN = "none"
_MEAN = " +mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What candidates of one model are made from.

    Attributes:
        calibration: Samples.
        prepared: The preprocessed model.
        definition: The space, whose schemes recipes are.
        regions: The partition.
        builder: Of candidates; it knows each scheme with bias correction too, under its name with `` +mean``.
    """

    calibration: Samples
    prepared: PreparedModel
    definition: SpaceDefinition
    regions: tuple[Region, ...]
    builder: Builder


Algorithm = Callable[[Setting, Assignment], Candidate]


def setting_of(subject: Subject, space: str, cache: Path) -> Setting:
    """Prepare, calibrate and partition once.

    Args:
        subject: The model.
        space: By name.
        cache: For the statistics.
    """
    definition = read_space(space, ep="cpu")
    corrected = (replace(s, name=s.name + _MEAN, bias=BiasCorrection.MEAN) for s in definition.schemes)
    both = replace(definition, schemes=(*definition.schemes, *corrected))
    calibration = steps.read_data(subject.model, subject.calibration)
    prepared = steps.prepare(subject.model, calibration)
    regions = steps.find_regions(prepared, space=definition)
    statistics = steps.calibrate(prepared, calibration, space=definition, cache_folder=cache)
    return Setting(
        calibration=calibration,
        prepared=prepared,
        definition=definition,
        regions=regions,
        builder=steps.builder_of(prepared, regions, statistics, space=both),
    )


def _plain(setting: Setting, assignment: Assignment) -> Candidate:
    return setting.builder.build(assignment)


def _bias_mean(setting: Setting, assignment: Assignment) -> Candidate:
    return setting.builder.build({region: name + _MEAN for region, name in assignment.items()})


def _bias_observed(setting: Setting, assignment: Assignment) -> Candidate:
    shifts = steps.observe_shifts(setting.prepared, setting.builder, assignment, setting.calibration)
    return setting.builder.build(assignment, shifts)


ALGORITHMS: Mapping[str, Algorithm] = {
    PLAIN: _plain,
    "bias mean": _bias_mean,
    "bias observed": _bias_observed,
}
"""The first one is what the others are compared with."""
