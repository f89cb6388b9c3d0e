"""Weights that were rounded before."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.counted import counted
from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Rounding
from autoquant.rounding.moments import MAX_WEIGHTS
from autoquant.rounding.problem import Floats

__all__ = ["Asked", "Integers", "Rounded", "RoundedWeights", "grid_digest"]

Integers = npt.NDArray[np.generic]
Rounded = tuple[Integers, Floats]
"""Integers in the shape of their weight, and the scales that are theirs, in the shape of those that were asked for."""
Asked = tuple[TensorName, str]
"""A weight and the ``grid_digest`` that it is wanted on."""


@dataclass(frozen=True, slots=True)
class RoundedWeights:
    """A rounder that looks up what it gives: the same in every process, whatever the time.

    Attributes:
        found: By what was asked for.
        unfinished: What there was no time for.
        unfit: Weights that are no plain matrices or convolutions, have very many elements, or readers unlike each
            other.
    """

    found: Mapping[Asked, Rounded]
    unfinished: frozenset[Asked] = frozenset()
    unfit: frozenset[TensorName] = frozenset()

    @property
    def late(self) -> tuple[TensorName, ...]:
        """Weights for which there was no time in some format, sorted."""
        return tuple(sorted({weight for weight, _ in self.unfinished}))

    @property
    def note(self) -> str | None:
        """A sentence for the user where weights are ``unfit``."""
        if not self.unfit:
            return None
        return (
            f"rounding leaves {counted(len(self.unfit), 'weight')} at the nearest integers, such as {min(self.unfit)}:"
            f" no plain matrices or convolutions, with more than {MAX_WEIGHTS} elements, or with readers unlike each"
            " other"
        )

    def __call__(
        self, weight: TensorName, scale: Floats, zero_point: Integers, dtype: DType, rounding: Rounding
    ) -> Rounded | None:
        """What a weight becomes on a grid; None where that is not known, so that the nearest integers are taken."""
        return self.found.get((weight, grid_digest(scale, zero_point, dtype, rounding)))


def grid_digest(scale: Floats, zero_point: Integers, dtype: DType, rounding: Rounding) -> str:
    """Equal for equal grids that are rounded to alike; one scale for a tensor is no scale for its only channel."""
    return hashlib.sha256(
        f"{dtype} {rounding} {scale.shape}".encode() + scale.tobytes() + zero_point.tobytes()
    ).hexdigest()
