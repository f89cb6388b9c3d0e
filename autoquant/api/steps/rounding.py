"""Integers of weights that make up for each other's errors."""

import math
from collections.abc import Sequence

from autoquant.domain.feed import Samples
from autoquant.domain.region import TensorName
from autoquant.domain.target import Target
from autoquant.model.prepared import PreparedModel
from autoquant.model.rewrite import to_bytes, with_outputs
from autoquant.rounding.moments import Moments
from autoquant.rounding.rounder import FeedbackRounder
from autoquant.runtime.session import Session, open_session

__all__ = ["rounder_of"]

_CALIBRATION = Target()


def rounder_of(
    prepared: PreparedModel, samples: Samples, *, seconds: float = math.inf, seed: int = 0
) -> FeedbackRounder:
    """What ``builder_of`` needs for schemes with ``rounding = "gptq"``.

    Nothing is computed before the first candidate is built. A weight is rounded once in each format; all candidates
    share it.

    Args:
        prepared: The preprocessed model.
        samples: Calibration samples; those that the statistics are from.
        seconds: For all weights together. Where half of them are over, not all samples are run; weights that there is
            no time for are rounded to the nearest integers, in every candidate, and ``unfinished`` names them.
        seed: Of the choice among the products of an operator, where there are very many.
    """

    def open_with(tensors: Sequence[TensorName]) -> Session:
        graph = prepared.graph
        model = with_outputs(graph.model, {name: graph.shape(name) for name in tensors})
        session: Session = open_session(to_bytes(model), _CALIBRATION)
        return session

    return FeedbackRounder(prepared.graph, Moments(prepared.graph, open_with, samples.feeds, seed), seconds)
