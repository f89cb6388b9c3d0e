"""Algorithms that are compared: from an assignment to a candidate with the same kernels and other numbers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoquant.api import steps
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment, Region
from autoquant.domain.scheme import BiasCorrection, Rounding, Scheme
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.target import Target
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.space.schema import read_space
from experiments.believe.subjects import Subject

__all__ = ["ALGORITHMS", "PLAIN", "Algorithm", "Material", "Setting", "rounded_by", "setting_of"]

PLAIN = "none"
_MEAN = " +mean"
_SUFFIXES: Mapping[Rounding, str] = {
    rounding: f" +{rounding}" for rounding in Rounding if rounding is not Rounding.NEAREST
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What candidates of one form of the float model are made from.

    Attributes:
        prepared: The preprocessed model.
        builder: Of candidates; it knows each scheme with bias correction too, under its name with `` +mean``, and with
            each rounding, under its name with `` +gptq`` and so on.
    """

    prepared: PreparedModel
    builder: Builder


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What candidates of one model are made from.

    Attributes:
        calibration: Samples.
        definition: The space, whose schemes recipes are.
        regions: The partition.
        plain: Of the preprocessed model.
        equalised: Of the one whose channels are balanced; the plain one where nothing can be.
    """

    calibration: Samples
    definition: SpaceDefinition
    regions: tuple[Region, ...]
    plain: Material
    equalised: Material


Algorithm = Callable[[Setting, Assignment], Candidate]


def setting_of(
    subject: Subject,
    space: str,
    cache: Path,
    schemes: Sequence[str] | None = None,
    algorithms: Sequence[str] | None = None,
) -> Setting:
    """Prepare, calibrate and partition once.

    Args:
        subject: The model.
        space: By name.
        cache: For the statistics.
        schemes: By name; None for all of the space.
        algorithms: That will be asked for; None for all. Weights are rounded for these alone.
    """
    roundings = _roundings(ALGORITHMS if algorithms is None else algorithms)
    found = steps.fitted(read_space(space, ep="cpu", accuracy=Accuracy.NONE), [Target()])
    chosen = tuple(scheme for scheme in found.schemes if schemes is None or scheme.name in schemes)
    definition = replace(found, schemes=chosen)
    every = replace(
        definition, schemes=tuple(each for scheme in definition.schemes for each in _variants(scheme, roundings))
    )
    calibration = steps.read_data(subject.model, subject.calibration)
    prepared = steps.prepare(subject.model, calibration)
    regions = steps.find_regions(prepared, space=definition)

    def material(model: PreparedModel) -> Material:
        statistics = steps.calibrate(model, calibration, space=definition, cache_folder=cache)
        rounder = steps.round_weights(model, regions, statistics, calibration, space=every)
        return Material(
            prepared=model, builder=steps.builder_of(model, regions, statistics, space=every, rounder=rounder)
        )

    statistics = steps.calibrate(prepared, calibration, space=definition, cache_folder=cache)
    other, plain = steps.equalise(prepared, statistics), material(prepared)
    return Setting(
        calibration=calibration,
        definition=definition,
        regions=regions,
        plain=plain,
        equalised=material(other.prepared) if other.tensors else plain,
    )


def _roundings(algorithms: Iterable[str]) -> tuple[Rounding, ...]:
    """Those that some algorithm has in its name."""
    parts = {part for name in algorithms for part in name.split(", ")}
    return tuple(rounding for rounding in _SUFFIXES if rounding in parts)


def rounded_by(rounding: Rounding, scheme: Scheme) -> Scheme:
    """What has no scales to learn is rounded by GPTQ in place of AdaQuant, as finalists are."""
    is_free = rounding is not Rounding.ADAQUANT or scheme.weight.has_free_scales
    return replace(scheme, rounding=rounding if is_free else Rounding.GPTQ)


def _variants(scheme: Scheme, roundings: Sequence[Rounding]) -> tuple[Scheme, ...]:
    corrected = replace(scheme, name=scheme.name + _MEAN, bias=BiasCorrection.MEAN)
    rounded = (replace(rounded_by(each, scheme), name=scheme.name + _SUFFIXES[each]) for each in roundings)
    return (scheme, corrected, *rounded)


def _named(assignment: Assignment, suffix: str) -> Assignment:
    return {region: name + suffix for region, name in assignment.items()}


def _rounded(rounding: Rounding) -> Algorithm:
    return lambda setting, assignment: setting.plain.builder.build(_named(assignment, _SUFFIXES[rounding]))


def _full(rounding: Rounding) -> Algorithm:
    return lambda setting, assignment: _observed(setting, setting.equalised, _named(assignment, _SUFFIXES[rounding]))


def _observed(setting: Setting, material: Material, assignment: Assignment) -> Candidate:
    shifts = steps.observe_shifts(material.prepared, material.builder, assignment, setting.calibration)
    return material.builder.build(assignment, shifts)


ALGORITHMS: Mapping[str, Algorithm] = {
    PLAIN: lambda setting, assignment: setting.plain.builder.build(assignment),
    "equalised": lambda setting, assignment: setting.equalised.builder.build(assignment),
    "bias mean": lambda setting, assignment: setting.plain.builder.build(_named(assignment, _MEAN)),
    "bias observed": lambda setting, assignment: _observed(setting, setting.plain, assignment),
    "gptq": _rounded(Rounding.GPTQ),
    "adaround": _rounded(Rounding.ADAROUND),
    "adaquant": _rounded(Rounding.ADAQUANT),
    "equalised, bias mean": lambda setting, assignment: setting.equalised.builder.build(_named(assignment, _MEAN)),
    "equalised, gptq, bias observed": _full(Rounding.GPTQ),
    "equalised, adaround, bias observed": _full(Rounding.ADAROUND),
    "equalised, adaquant, bias observed": _full(Rounding.ADAQUANT),
}
"""The first one is what the others are compared with."""
