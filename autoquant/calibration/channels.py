"""Extremes and means of the channels of an activation."""

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autoquant.domain.statistics import ChannelStatistics

__all__ = ["Channels"]

_Float = TypeVar("_Float", bound=np.floating)

_LONG_ROW = 36


class Channels:
    """Statistics that grow.

    Args:
        axis: Of the channels.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._n_values = 0
        self._minimum = np.zeros(0, np.float32)
        self._maximum = np.zeros(0, np.float32)
        self._sum = np.zeros(0)
        self._rest = np.zeros(0)

    def add(self, values: npt.NDArray[np.float32]) -> None:
        """Take in the values of a sample; those of every sample have as many channels, or none."""
        if values.size == 0:
            return
        low, high = self._reduced(np.minimum, values, np.float32), self._reduced(np.maximum, values, np.float32)
        total = self._reduced(np.add, values, np.float64)
        n_channels = len(total)
        if self._n_values == 0:
            self._minimum, self._maximum, self._sum, self._rest = low, high, total, np.zeros(n_channels)
        else:
            self._minimum, self._maximum = np.minimum(self._minimum, low), np.maximum(self._maximum, high)
            self._add_exactly(total)
        self._n_values += values.size // n_channels

    def _reduced(self, ufunc: np.ufunc, values: npt.NDArray[np.float32], dtype: type[_Float]) -> npt.NDArray[_Float]:
        """One value a channel, computed in ``dtype``; short rows cost less in ``reduceat`` than along an axis."""
        axis = self._axis % values.ndim
        n_channels, n_inner = values.shape[axis], math.prod(values.shape[axis + 1 :])
        rows: npt.NDArray[np.float32 | _Float] = values
        if n_inner >= _LONG_ROW:
            rows = ufunc.reduce(values.reshape(-1, n_inner), axis=1, dtype=dtype)
        elif n_inner > 1:
            flat = values.reshape(-1).astype(dtype, copy=False)
            rows = ufunc.reduceat(flat, np.arange(0, values.size, n_inner))
        found: npt.NDArray[_Float] = ufunc.reduce(rows.reshape(-1, n_channels), axis=0, dtype=dtype)
        return found

    def _add_exactly(self, total: npt.NDArray[np.float64]) -> None:
        """With twice the digits of float64, so that the order of the samples does not count.

        References:
            Knuth, "The Art of Computer Programming" 2, 4.2.2, theorem B: the rounding error of a sum.
        """
        new = self._sum + total
        part = new - self._sum
        self._rest += (self._sum - (new - part)) + (total - part)
        self._sum = new

    def statistics(self) -> ChannelStatistics:
        """What was seen so far."""
        return ChannelStatistics(
            axis=self._axis,
            # The sum makes -0.0 a plain 0.0, whichever came first.
            minimum=self._minimum + np.float32(0),
            maximum=self._maximum + np.float32(0),
            mean=(self._sum + self._rest) / max(self._n_values, 1),
        )
