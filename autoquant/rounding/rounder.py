"""Weights for a builder of candidates."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Rounding
from autoquant.model.graph import Graph
from autoquant.rounding.adaquant import round_and_scale
from autoquant.rounding.adaround import round_up_or_down
from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.moments import Moments, readers_of
from autoquant.rounding.problem import Floats, Problem, damped
from autoquant.rounding.products import Layout, as_columns, as_weight, layout_of
from autoquant.rounding.rounded import Asked, Integers, Rounded, grid_digest

__all__ = ["Recall", "WeightRounder"]

_SHARE_TO_OBSERVE = 0.5
Recall = Callable[[Asked, Callable[[], tuple[Rounded, bool]]], Rounded]


@dataclass(slots=True)
class WeightRounder:
    """Rounds weights by what they are multiplied with, within a time.

    Where half of it is over, moments are made of fewer samples; where all of it is over, weights stay as they are.

    Attributes:
        graph: The float model.
        moments: Of what its weights are multiplied with.
        seconds: For all calls together; the last one may take longer.
        clock: Seconds from any start.
        without: What stays as it is, e.g. as there was no time for it in an earlier run.
        is_repeatable: Whether moments are made of all samples, however long that takes.
        recall: Given what is asked for and what makes it, looks whether it was made before.
        found: What was given so far, by what was asked for.
        unfinished: What there was no time for, or is in ``without``.
        unfit: Weights without ``readers_of``, which take the nearest integers.
    """

    graph: Graph
    moments: Moments
    seconds: float = math.inf
    clock: Callable[[], float] = time.perf_counter
    without: Collection[Asked] = ()
    is_repeatable: bool = False
    recall: Recall = lambda _, make: make()[0]
    found: dict[Asked, Rounded] = field(default_factory=dict)
    unfinished: set[Asked] = field(default_factory=set)
    unfit: set[TensorName] = field(default_factory=set)
    _spent_s: float = 0.0

    def __call__(
        self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType, rounding: Rounding
    ) -> Rounded | None:
        """What a weight becomes on a given grid.

        Args:
            weight: Its name.
            scale: Scalar, shape (C,) with one for each output channel, or (B, C) for each block of its inputs,
                whose sizes are powers of two.
            zero_point: Shape of ``scale``; a scalar for blocks.
            dtype: Of the integers.
            rounding: How they are chosen, not the nearest ones.

        Returns:
            None where the nearest integers are to be taken: the weight has no ``readers_of``, or there is no time left.

        Raises:
            DataError: What the weight is multiplied with is not finite.
        """
        key = weight, grid_digest(scale, zero_point, dtype, rounding)
        if key in self.found:
            return self.found[key]
        if not readers_of(weight, self.graph):
            self.unfit.add(weight)
            return None
        if key in self.without or self._spent_s >= self.seconds:
            self.unfinished.add(key)
            return None
        start = self.clock()
        self.found[key] = self.recall(key, lambda: self._rounded(weight, scale, zero_point, dtype, rounding))
        self._spent_s += self.clock() - start
        return self.found[key]

    def _rounded(
        self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType, rounding: Rounding
    ) -> tuple[Rounded, bool]:
        """With whether every sample was run for it."""
        problem = self.problem(weight, scale, zero_point, dtype)
        if rounding is Rounding.ADAQUANT:
            integers, scales = round_and_scale(problem, is_shared=not scale.ndim)
            scale = scales[:: problem.n_parts].reshape(-1)[: scale.size].reshape(scale.shape)
        else:
            integers = _ON_GIVEN_SCALES[rounding](problem)
        node, shape = readers_of(weight, self.graph)[0], self.graph.constant(weight).shape
        return (as_weight(integers.astype(dtype.numpy), node, shape), scale), self.moments.of(weight).is_whole

    def problem(self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType) -> Problem:
        """What is minimised for a weight that has ``readers_of``, on a given grid; see ``__call__``."""
        end = self.clock() + _SHARE_TO_OBSERVE * self.seconds - self._spent_s
        moment = self.moments.of(weight, lambda: self.is_repeatable or self.clock() < end)
        array, node = self.graph.constant(weight), readers_of(weight, self.graph)[0]
        layout = layout_of(node, array.shape)
        columns = as_columns(array, node)
        return Problem(
            weight=columns,
            moment=damped(moment.mean, moment.n_products),
            scale=_spread(scale, layout, columns.shape[2]),
            zero_point=_spread(zero_point.astype(np.float32), layout, columns.shape[2]),
            dtype=dtype,
            n_parts=layout.n_parts,
        )


_ON_GIVEN_SCALES = {Rounding.GPTQ: round_with_feedback, Rounding.ADAROUND: round_up_or_down}


def _spread(values: Floats, layout: Layout, n_outputs: int) -> Floats:
    """One value for each output channel of all parts, shape (G, 1, N), or for each input too, shape (G, D, N)."""
    if values.ndim < 2:
        shape = (layout.n_groups, 1, n_outputs)
        spread = values.reshape(shape) if values.ndim else np.full(shape, values)
        return spread.repeat(layout.n_parts, axis=0)
    n_inputs = layout.n_parts * layout.size
    size = 1 << (-(-n_inputs // len(values)) - 1).bit_length()
    by_input = values.repeat(size, axis=0)[:n_inputs]
    return by_input.reshape(layout.n_parts, layout.size, n_outputs)
