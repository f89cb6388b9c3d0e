"""Weights whose integers suit each other."""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from autoquant.api.steps.caching import made_by, recalled
from autoquant.api.steps.candidates import builder_of
from autoquant.api.steps.preparation import definition_of
from autoquant.domain.feed import Samples
from autoquant.domain.region import Region, TensorName
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import DEFAULT_TARGET
from autoquant.model.copies import in_parts
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import with_outputs
from autoquant.rounding.moments import Moments
from autoquant.rounding.rounded import Asked, Rounded, RoundedWeights
from autoquant.rounding.rounder import Recall, WeightRounder
from autoquant.runtime.session import Session, open_parts
from autoquant.space.resolve import resolve

__all__ = ["round_weights", "rounder_of"]


def round_weights(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    samples: Samples,
    *,
    space: str | SpaceDefinition = "default",
    seconds: float = math.inf,
    without: Collection[Asked] | None = None,
    cache_folder: Path | None = None,
) -> RoundedWeights:
    """What ``builder_of`` needs for schemes that do not round to the nearest integers: each weight once in each format.

    Args:
        prepared: The preprocessed model.
        found: Its partition.
        statistics: What calibration observed.
        samples: Calibration samples.
        space: Its schemes say which weights are rounded so, and in which formats.
        seconds: For all weights together. Where half of them are over, not all samples are run; weights that there is
            no time for are rounded to the nearest integers, and ``unfinished`` names them.
        without: Weights that are rounded to the nearest integers too: ``unfinished`` of an earlier call, to get what
            that gave. With it, empty or not, all samples are run in any case, so that another call gives the same.
        cache_folder: Where weights are kept for which all samples were run, by content; None keeps nothing.

    Raises:
        DataError: What a weight is multiplied with is not finite.
    """
    definition = definition_of(space, DEFAULT_TARGET.ep)
    rounder = rounder_of(prepared, samples, seconds=seconds, without=without or ())
    rounder.is_repeatable = without is not None
    if cache_folder is not None:
        rounder.recall = _recalling(cache_folder, (prepared.digest, samples.digest, made_by("rounding 1")))
    builder = builder_of(prepared, found, statistics, space=definition, rounder=rounder)
    choices = resolve(definition, found)
    for scheme in definition.schemes:
        if scheme.rounding is not Rounding.NEAREST:
            builder.build(choices.uniform(scheme.name))
    return RoundedWeights(rounder.found, frozenset(rounder.unfinished), frozenset(rounder.unfit))


def _recalling(folder: Path, content: tuple[str, ...]) -> Recall:
    def recall(asked: Asked, make: Callable[[], tuple[Rounded, bool]]) -> Rounded:
        return recalled(folder, (*content, *asked), make)

    return recall


def rounder_of(
    prepared: PreparedModel,
    samples: Samples,
    *,
    seconds: float = math.inf,
    without: Collection[Asked] = (),
) -> WeightRounder:
    """A rounder that has done nothing so far, for ``builder_of``.

    Args:
        prepared: The preprocessed model.
        samples: Calibration samples.
        seconds: For all weights together.
        without: Weights that are rounded to the nearest integers.
    """
    graph = prepared.graph

    def open_with(tensors: Sequence[TensorName]) -> Session:
        outputs: dict[str, tuple[int, ...] | None] = {name: graph.shape(name) for name in tensors}
        session: Session = open_parts(
            *in_parts(graph.model, lambda model: with_outputs(model, outputs)), DEFAULT_TARGET
        )
        return session

    return WeightRounder(graph, Moments(graph, open_with, samples.feeds), seconds, without=without)
