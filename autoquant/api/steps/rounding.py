"""Integers of weights that make up for each other's errors."""

import math
from collections.abc import Sequence

from autoquant.api.steps.candidates import builder_of
from autoquant.api.steps.preparation import definition_of, layout_of
from autoquant.domain.feed import Samples
from autoquant.domain.region import Region, TensorName
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import Target
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import to_bytes, with_outputs
from autoquant.rounding.moments import Moments
from autoquant.rounding.rounded import RoundedWeights
from autoquant.rounding.rounder import FeedbackRounder
from autoquant.runtime.session import Session, open_session

__all__ = ["round_weights"]

_CALIBRATION = Target()


def round_weights(
    prepared: PreparedModel,
    found: Sequence[Region],
    statistics: Statistics,
    samples: Samples,
    *,
    space: str | SpaceDefinition = "default",
    ep: str = "cpu",
    seconds: float = math.inf,
    seed: int = 0,
) -> RoundedWeights:
    """What ``builder_of`` needs for schemes with ``rounding = "gptq"``: each weight once in each of their formats.

    Args:
        prepared: The preprocessed model.
        found: Its partition.
        statistics: What calibration observed.
        samples: Calibration samples.
        space: Its schemes say which weights are rounded so, and in which formats.
        ep: Execution provider whose section of the space counts.
        seconds: For all weights together. Where half of them are over, not all samples are run; weights that there is
            no time for are rounded to the nearest integers, and ``unfinished`` names them.
        seed: Of the choice among the products of an operator, where there are very many.

    Raises:
        DataError: What a weight is multiplied with is not finite.
    """
    graph = prepared.graph

    def open_with(tensors: Sequence[TensorName]) -> Session:
        model = with_outputs(graph.model, {name: graph.shape(name) for name in tensors})
        session: Session = open_session(to_bytes(model), _CALIBRATION)
        return session

    definition = definition_of(space, ep)
    rounder = FeedbackRounder(graph, Moments(graph, open_with, samples.feeds, seed), seconds)
    builder = builder_of(prepared, found, statistics, space=definition, rounder=rounder)
    choices = layout_of(prepared, found, definition).choices
    for scheme in definition.schemes:
        if scheme.rounding is not Rounding.NEAREST:
            builder.build({region: scheme.name for region, names in choices.items() if scheme.name in names})
    return RoundedWeights(rounder.integers, frozenset(rounder.unfinished))
