"""Extremes and means of the channels of an activation."""

import math

import numpy as np
import numpy.typing as npt

from autoquant.domain.statistics import ChannelStatistics

__all__ = ["Channels"]


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
        axis = self._axis % values.ndim
        n_channels, n_inner = values.shape[axis], math.prod(values.shape[axis + 1 :])
        parts = values.reshape(-1, n_channels, n_inner)
        low, high, total = parts.min(axis=(0, 2)), parts.max(axis=(0, 2)), parts.sum(axis=(0, 2), dtype=np.float64)
        if self._n_values == 0:
            self._minimum, self._maximum, self._sum, self._rest = low, high, total, np.zeros(n_channels)
        else:
            self._minimum, self._maximum = np.minimum(self._minimum, low), np.maximum(self._maximum, high)
            self._add_exactly(total)
        self._n_values += values.size // n_channels

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
