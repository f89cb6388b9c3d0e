"""The parts of a search by structure, and how each is switched off."""

from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

import numpy as np

from autoquant.api.trials import Trials
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.scheme import RangeKind, Scheme
from autoquant.domain.space import SearchSpace
from autoquant.study.layout import Layout

__all__ = ["Part", "layout_without", "narrowed", "one_range_each", "prior_without", "switch_off"]


class Part(StrEnum):
    """What is left out.

    Attributes:
        PROBES: One-region measurements of noise, before the sampler proposes.
        PROFILES: Latencies that are expected from profiles (decision 0015); from shares of the arithmetic instead.
        BORDERS: Terms of the latency between unlike neighbours, in the models and in what is solved.
        LIKENESS: What is learned of a region is believed of others with its pattern (decision 0021).
        RACING: Candidates are stopped before they are timed, and probes are not timed (decision 0022).
        ERRORS: Noise that is expected from the errors of what regions quantize (decision 0033); from shares of the
            arithmetic alone instead.
        FINENESS: Regions as fine as kernels (decision 0035); at most 40 instead.
        RANGES: Several ways to choose ranges; what is left is min-max, as in ``quantize_static`` by default.
    """

    PROBES = "probes"
    PROFILES = "profiles"
    BORDERS = "borders"
    LIKENESS = "likeness"
    RACING = "racing"
    ERRORS = "errors"
    FINENESS = "fineness"
    RANGES = "ranges"


def layout_without(part: Part | None, layout: Layout) -> Layout:
    """What the sampler is told of the graph."""
    if part is Part.BORDERS:
        return replace(layout, edges=np.zeros((0, 2), dtype=np.int64))
    return replace(layout, patterns=np.arange(len(layout.regions))) if part is Part.LIKENESS else layout


def prior_without(part: Part | None, prior: LatencyPrior | None) -> LatencyPrior | None:
    """What it is told of latencies."""
    if part is Part.BORDERS and prior is not None:
        return replace(prior, border=np.zeros(0), border_spread=np.zeros(0))
    return None if part is Part.PROFILES else prior


def switch_off(part: Part | None, trials: Trials) -> None:
    """Change what is tried, and how far; before the first trial."""
    if part is Part.PROBES:
        trials.has_probes = False
    elif part is Part.RACING:
        trials.has_prior, trials.least_ratios = False, lambda _: ()


def one_range_each(schemes: Iterable[Scheme]) -> tuple[Scheme, ...]:
    """Of those that differ in their ranges alone the one with min-max, or the first."""
    schemes, found = tuple(schemes), dict[tuple[object, ...], Scheme]()
    for scheme in sorted(schemes, key=lambda scheme: scheme.ranges.kind is not RangeKind.MIN_MAX):
        found.setdefault((scheme.activation, scheme.weight, scheme.operators, scheme.bias, scheme.rounding), scheme)
    return tuple(scheme for scheme in schemes if scheme in found.values())


def narrowed(space: SearchSpace, schemes: Iterable[Scheme]) -> SearchSpace:
    """The space with these of its schemes, and float."""
    kept = {scheme.name: scheme for scheme in schemes}
    return SearchSpace(
        choices={
            region: tuple(name for name in names if name in kept or name not in space.schemes)
            for region, names in space.choices.items()
        },
        schemes=kept,
    )
