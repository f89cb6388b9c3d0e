"""Integers of weights that were rounded before."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType
from autoquant.rounding.problem import Floats

__all__ = ["RoundedWeights", "grid_digest"]

Integers = npt.NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class RoundedWeights:
    """A rounder that looks up what it gives: the same in every process, whatever the time.

    Attributes:
        integers: By weight and ``grid_digest``.
        unfinished: Weights for which there was no time in some format.
    """

    integers: Mapping[tuple[TensorName, str], Integers]
    unfinished: frozenset[TensorName] = frozenset()

    def __call__(self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType) -> Integers | None:
        """Integers of a weight on a grid; None where they are not known, so that the nearest ones are taken."""
        return self.integers.get((weight, grid_digest(scale, zero_point, dtype)))


def grid_digest(scale: Floats, zero_point: Integers, dtype: DType) -> str:
    """Equal for equal grids."""
    return hashlib.sha256(f"{dtype}".encode() + scale.tobytes() + zero_point.tobytes()).hexdigest()
