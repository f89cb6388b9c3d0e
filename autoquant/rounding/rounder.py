"""Integers of weights for a builder of candidates."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType
from autoquant.model.graph import Graph
from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.moments import Moments, readers_of
from autoquant.rounding.problem import Floats, Problem, damped
from autoquant.rounding.products import as_columns, as_weight
from autoquant.rounding.rounded import grid_digest

__all__ = ["FeedbackRounder"]

_SHARE_TO_OBSERVE = 0.5


@dataclass(slots=True)
class FeedbackRounder:
    """Rounds weights with error feedback, within a time.

    Where half of it is over, moments are made of fewer samples; where all of it is over, weights stay as they are.

    Attributes:
        graph: The float model.
        moments: Of what its weights are multiplied with.
        seconds: For all calls together; the last one may take longer.
        clock: Seconds from any start.
        integers: What was given so far, by weight and ``grid_digest``.
        unfinished: Weights for which there was no time.
    """

    graph: Graph
    moments: Moments
    seconds: float = math.inf
    clock: Callable[[], float] = time.perf_counter
    integers: dict[tuple[TensorName, str], npt.NDArray[np.generic]] = field(default_factory=dict)
    unfinished: set[TensorName] = field(default_factory=set)
    _spent_s: float = 0.0

    def __call__(
        self, weight: TensorName, scale: Floats, zero_point: npt.NDArray[np.generic], dtype: DType
    ) -> npt.NDArray[np.generic] | None:
        """Integers of a weight on a given grid.

        Args:
            weight: Its name.
            scale: Scalar, or shape (C,) with one for each output channel.
            zero_point: Shape of ``scale``.
            dtype: Of the integers.

        Returns:
            Shape of the weight; None where the nearest integers are to be taken: the weight has no ``readers_of``, or
            there is no time left.

        Raises:
            DataError: What the weight is multiplied with is not finite.
        """
        key = weight, grid_digest(scale, zero_point, dtype)
        if key in self.integers or not readers_of(weight, self.graph):
            return self.integers.get(key)
        if self._spent_s >= self.seconds:
            self.unfinished.add(weight)
            return None
        start = self.clock()
        found = self._rounded(weight, scale, zero_point, dtype)
        self._spent_s += self.clock() - start
        self.integers[key] = found
        return found

    def _rounded(
        self, weight: TensorName, scale: Floats, zero_point: npt.NDArray[np.generic], dtype: DType
    ) -> npt.NDArray[np.generic]:
        end = self.clock() + _SHARE_TO_OBSERVE * self.seconds - self._spent_s
        moment = self.moments.of(weight, lambda: self.clock() < end)
        node, values = readers_of(weight, self.graph)[0], self.graph.constant(weight)
        columns = as_columns(values, node)
        shape = (len(columns), 1, columns.shape[2])
        problem = Problem(
            weight=columns,
            moment=damped(moment.mean, moment.n_products),
            scale=_spread(scale, shape),
            zero_point=_spread(zero_point.astype(np.float32), shape),
            dtype=dtype,
        )
        return as_weight(round_with_feedback(problem).astype(dtype.numpy), node, values.shape)


def _spread(values: Floats, shape: tuple[int, int, int]) -> Floats:
    """One value for each output channel."""
    return values.reshape(shape) if values.ndim else np.full(shape, values)
