"""What calibration observes of an activation."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName

__all__ = ["MASK", "N_BINS", "N_HALF", "CalibrationRange", "ChannelStatistics", "Statistics", "TensorStatistics"]

N_BINS = 8192
"""Bins of a histogram over [-limit, limit); ``limit`` is a power of two below twice the largest magnitude, so that
even a one-sided tensor spreads over at least 2048 of them."""
N_HALF = N_BINS // 2
"""Those below 0, and those above."""

MASK = 1e37
"""Numbers of this magnitude or more are masked: exporters write the least float32 for minus infinity, or the largest
one for infinity, and add others to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStatistics:
    """One activation over all calibration samples.

    Attributes:
        minimum: Exact smallest value.
        maximum: Exact largest value.
        limit: The histogram covers [-limit, limit); a power of two, 0 where every value is 0.
        counts: Values in each of ``N_BINS`` equal bins, int64, shape (N_BINS,); exact zeros are not in it. Of very many
            values in a sample every n-th counts for n.
        n_zeros: How many values are exactly 0, in the same way.
        n_masked: How many values are infinite or near that, as behind an attention mask, or no numbers, as what is
            computed from masked values alone; all of the above leaves them out.
    """

    minimum: float
    maximum: float
    limit: float
    counts: npt.NDArray[np.int64]
    n_zeros: int
    n_masked: int = 0

    @property
    def n_values(self) -> int:
        """How many values were seen, masked ones left out."""
        return int(self.counts.sum()) + self.n_zeros


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """The channels of one activation over all calibration samples and positions; none where it never held a value.

    Attributes:
        axis: Of the channels: 1 of what a Conv reads or writes, -1 of what a Gemm or MatMul does, 0 of what a Gemm
            reads transposed.
        minimum: Exact smallest values, float32, shape (C,).
        maximum: Exact largest values, float32, shape (C,).
        mean: Float64, shape (C,).
    """

    axis: int
    minimum: npt.NDArray[np.float32]
    maximum: npt.NDArray[np.float32]
    mean: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CalibrationRange:
    """The float interval that a tensor's integers cover; not yet widened to hold zero."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """Statistics of every activation that may be quantized, and the digest of what made them.

    Attributes:
        tensors: All of them.
        channels: Those that a linear operator with a constant weight reads or writes.
        digest: Of model and samples.
        n_samples: How many were run.
    """

    tensors: Mapping[TensorName, TensorStatistics] = field(repr=False)
    channels: Mapping[TensorName, ChannelStatistics] = field(default_factory=dict, repr=False)
    digest: str
    n_samples: int

    @property
    def unbounded(self) -> frozenset[TensorName]:
        """Activations that held masked values, as scores behind an attention mask do, or none: no range covers them."""
        return frozenset(name for name, found in self.tensors.items() if found.n_masked or not found.n_values)
