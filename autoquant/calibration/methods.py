"""From the histogram of an activation to the range that its integers cover."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.scales import scale_of
from autoquant.domain.scheme import RangeKind, RangeMethod, TensorFormat
from autoquant.domain.statistics import N_HALF, CalibrationRange, TensorStatistics

__all__ = ["choose_range", "relative_error"]


_SHRINK_FACTORS = np.geomspace(1.0, 0.01, 97)
"""Each 4.7 % below the last."""
_REFINEMENT_FACTORS = np.geomspace(1.05, 0.95, 21)
"""Around the best of those."""
_N_EXACT = 12
"""Ranges of each grid whose error is computed exactly."""

_N_LEVELS_MAGNITUDE = 128
_N_LEVELS_SIGNED = 255
_ENTROPY_STRIDE = 8
"""Bins between the thresholds that entropy tries, 0.2 to 0.4 % of the largest magnitude."""
_LEAST_INSIDE = 0.95
"""Entropy is blind to what becomes of values outside: cut to one filled bin, any tensor has divergence 0."""

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


def choose_range(statistics: TensorStatistics, method: RangeMethod, tensor_format: TensorFormat) -> CalibrationRange:
    """Choose the float interval that the integers of a tensor cover.

    - min-max: all values.
    - percentile: ``percent`` % of the values. The rest is cut at both ends, at each in proportion to its share of the
      sum of magnitudes, so that a one-sided tensor loses only its largest values. For symmetric formats the values of
      largest magnitude are cut. Where zeros alone would be left, nothing is cut.
    - MSE: the least ``relative_error`` among ranges whose ends shrink independently; never more than that of min-max.
    - entropy: the least Kullback-Leibler divergence between the histogram, values outside counted in its outermost
      bins, and itself averaged over 128 levels of magnitude for symmetric, 255 signed levels for asymmetric formats.
      Exact zeros are left out, as every format represents them exactly; at least 95 % of the others are kept.

    Args:
        statistics: What calibration observed.
        method: The rule.
        tensor_format: How the tensor will be quantized.

    Returns:
        A range inside [min(minimum, 0), max(maximum, 0)]; that of min-max is as it was seen, all others hold 0.

    References:
        Migacz, "8-bit Inference with TensorRT", GTC 2017: entropy.
        Banner et al., "Post-training 4-bit quantization of convolution networks for rapid-deployment", NeurIPS 2019:
        clipping that balances the squared errors of clipping and of rounding.
    """
    if statistics.limit == 0 or method.kind is RangeKind.MIN_MAX:
        return CalibrationRange(statistics.minimum, statistics.maximum)
    if method.kind is RangeKind.PERCENTILE:
        assert method.percent is not None
        cut = (1 - method.percent / 100) * statistics.n_values
        percentile = _percentile_magnitude if tensor_format.symmetric else _percentile
        found = percentile(statistics, cut)
        return found if found.high > found.low else _within(statistics, statistics.minimum, statistics.maximum)
    if method.kind is RangeKind.ENTROPY:
        return _entropy_magnitude(statistics) if tensor_format.symmetric else _entropy(statistics)
    return _least_error(statistics, tensor_format)


def relative_error(
    statistics: TensorStatistics, calibration_range: CalibrationRange, tensor_format: TensorFormat
) -> float:
    """Squared error of quantizing and dequantizing a tensor, expected as a share of the sum of its squares.

    Exact for values spread evenly within each bin, whether bins are finer or coarser than the step of the integers:
    rounding to the grid, saturation and the rounded zero point are in it. Exact zeros cost nothing.

    Args:
        statistics: What calibration observed, at least one value.
        calibration_range: What the integers cover, widened to hold 0 if it does not.
        tensor_format: How the tensor is quantized, per tensor.

    Returns:
        0 where all values are 0.

    References:
        Bennett, "Spectra of Quantized Signals", BSTJ 27(3), 1948: the limit of step^2 / 12 for fine bins and steps.
    """
    bins = _Bins.of(statistics)
    power = bins.power()
    return bins.error(calibration_range, tensor_format) / power if power else 0.0


def _edges(statistics: TensorStatistics) -> _Floats:
    """Edges of the bins, shape (N_BINS + 1,), none outside the values that were seen."""
    width = statistics.limit / N_HALF
    edges: _Floats = np.clip(np.arange(-N_HALF, N_HALF + 1) * width, statistics.minimum, statistics.maximum)
    return edges


def _within(statistics: TensorStatistics, low: float, high: float) -> CalibrationRange:
    """The range, cut to the values that were seen and widened to hold 0."""
    return CalibrationRange(
        float(min(max(low, statistics.minimum), 0.0)),
        float(max(min(high, statistics.maximum), 0.0)),
    )


# Percentile


def _percentile(statistics: TensorStatistics, cut: float) -> CalibrationRange:
    edges = _edges(statistics)
    magnitudes = np.abs(edges[:-1] + edges[1:]) * statistics.counts
    share_low = magnitudes[:N_HALF].sum() / magnitudes.sum()
    # Exact zeros are a step of the distribution between the bins on both sides of 0.
    counts = np.insert(statistics.counts, N_HALF, statistics.n_zeros)
    edges = np.concatenate([edges[: N_HALF + 1], edges[N_HALF:]])
    low = _quantile(counts, edges, cut * share_low)
    high = -_quantile(counts[::-1], -edges[::-1], cut * (1 - share_low))
    return _within(statistics, low, high)


def _percentile_magnitude(statistics: TensorStatistics, cut: float) -> CalibrationRange:
    counts = np.append(statistics.n_zeros, _fold(statistics))
    largest = max(-statistics.minimum, statistics.maximum)
    edges: _Floats = np.minimum(np.arange(-1, N_HALF + 1).clip(min=0) * (statistics.limit / N_HALF), largest)
    threshold = -_quantile(counts[::-1], -edges[::-1], cut)
    return _around_zero(statistics, threshold)


def _quantile(counts: _Ints, edges: _Floats, rank: float) -> float:
    """Where ``rank`` values lie below; of all such places the highest, linear within a bin."""
    return float(np.interp(rank, np.append(0, np.cumsum(counts)), edges))


def _fold(statistics: TensorStatistics) -> _Ints:
    """Counts by magnitude, without exact zeros."""
    return statistics.counts[N_HALF:] + statistics.counts[:N_HALF][::-1]


def _around_zero(statistics: TensorStatistics, threshold: float) -> CalibrationRange:
    """The range of magnitudes up to ``threshold``; a symmetric format takes its larger end."""
    return _within(statistics, -threshold, threshold)


# Mean squared error


@dataclass(frozen=True, slots=True)
class _Bins:
    """The bins that hold values: their ends and counts, one element a bin."""

    left: _Floats
    right: _Floats
    counts: _Floats

    @classmethod
    def of(cls, statistics: TensorStatistics) -> "_Bins":
        filled = np.flatnonzero(statistics.counts)
        edges = _edges(statistics)
        return cls(edges[filled], edges[filled + 1], statistics.counts[filled].astype(np.float64))

    def error(self, calibration_range: CalibrationRange, tensor_format: TensorFormat) -> float:
        """Summed squared error of all values."""
        step, lowest, highest = _grid(calibration_range, tensor_format)
        n_left, n_right = (np.clip(np.rint(ends / step), lowest, highest) for ends in (self.left, self.right))
        to_left, to_right = self.left - n_left * step, self.right - n_right * step
        # Mean of (x - Q(x))^2 over a bin. With both ends at one grid point it is that of a parabola, even where the
        # bin is a point; else the integral has step^3 / 12 more for each grid point that the bin passes.
        left_squared, right_squared = to_left * to_left, to_right * to_right
        same = (left_squared + to_left * to_right + right_squared) / 3
        cubes = right_squared * to_right - left_squared * to_left
        integral = (n_right - n_left) * (step**3 / 12) + cubes / 3
        passed = n_right > n_left
        mean = np.divide(integral, self.right - self.left, out=same, where=passed)
        return float(self.counts @ np.maximum(mean, 0.0))

    def power(self) -> float:
        """Summed squares of all values."""
        return float(self.counts @ (self.left**2 + self.left * self.right + self.right**2)) / 3

    def clipped(self, thresholds: _Floats) -> tuple[_Floats, _Floats]:
        """How many values lie above each threshold, and their summed squared distance from it; bins as points."""
        centres = (self.left + self.right) / 2
        moments = np.stack([self.counts, self.counts * centres, self.counts * centres**2])
        above = np.zeros((3, centres.size + 1))
        above[:, :-1] = np.cumsum(moments[:, ::-1], axis=1)[:, ::-1]
        n, first, second = above[:, np.searchsorted(centres, thresholds)]
        return n, np.maximum(second - 2 * thresholds * first + thresholds**2 * n, 0.0)

    def mirrored(self) -> "_Bins":
        return _Bins(-self.right[::-1], -self.left[::-1], self.counts[::-1])


def _grid(calibration_range: CalibrationRange, tensor_format: TensorFormat) -> tuple[float, int, int]:
    """Step, and the lowest and highest multiple of it that the integers stand for."""
    low, high = min(calibration_range.low, 0.0), max(calibration_range.high, 0.0)
    lowest, highest = tensor_format.integer_range()
    if tensor_format.symmetric:
        high = max(-low, high)
        low = -high
    step = float(scale_of(np.array(low), np.array(high), tensor_format))
    if step < np.finfo(np.float32).tiny:
        step, zero_point = 1.0, 0
    elif tensor_format.symmetric:
        zero_point = round((lowest + highest) / 2)
    else:
        zero_point = round(lowest - low / step)
    return step, tensor_format.dtype.lowest - zero_point, tensor_format.dtype.highest - zero_point


def _least_error(statistics: TensorStatistics, tensor_format: TensorFormat) -> CalibrationRange:
    bins = _Bins.of(statistics)
    best = _within(statistics, statistics.minimum, statistics.maximum)
    for factors in (_SHRINK_FACTORS, _REFINEMENT_FACTORS):
        lows, highs = _scaled_ends(best, factors, tensor_format.symmetric)
        promising = np.argsort(_approximate_errors(bins, lows, highs, tensor_format), axis=None)[:_N_EXACT]
        lows, highs = (ends.flat[promising] for ends in np.broadcast_arrays(lows, highs))
        ranges = [best, *(_within(statistics, low, high) for low, high in zip(lows, highs, strict=True))]
        best = min(ranges, key=lambda candidate: bins.error(candidate, tensor_format))
    return best


def _scaled_ends(around: CalibrationRange, factors: _Floats, symmetric: bool) -> tuple[_Floats, _Floats]:
    """Low and high ends of the ranges to try; broadcast together they are all of them."""
    if symmetric:
        highs = max(-around.low, around.high) * factors
        return -highs, highs
    # An end at 0 stays there.
    lows = around.low * (factors if around.low < 0 else np.ones(1))
    highs = around.high * (factors if around.high > 0 else np.ones(1))
    return lows[:, np.newaxis], highs


def _approximate_errors(bins: _Bins, lows: _Floats, highs: _Floats, tensor_format: TensorFormat) -> _Floats:
    """Summed squared errors, step^2 / 12 for each value inside; cheap enough for thousands of ranges."""
    n_below, error_below = bins.mirrored().clipped(-lows)
    n_above, error_above = bins.clipped(highs)
    n_inside = bins.counts.sum() - n_below - n_above
    errors: _Floats = n_inside * scale_of(lows, highs, tensor_format) ** 2 / 12 + error_below + error_above
    return errors


# Entropy


def _entropy(statistics: TensorStatistics) -> CalibrationRange:
    filled = np.flatnonzero(statistics.counts)
    reach = _thresholds(max(N_HALF - filled[0], filled[-1] + 1 - N_HALF), _N_LEVELS_SIGNED // 2 + 1)
    # Ends move inwards to the next bin that holds values: an empty one could not take the values outside.
    first = np.minimum(filled[np.searchsorted(filled, N_HALF - reach).clip(max=filled.size - 1)], N_HALF)
    last = np.maximum(filled[np.searchsorted(filled, N_HALF + reach).clip(min=1) - 1] + 1, N_HALF)
    best = _least(_divergences(statistics.counts, first, last, _N_LEVELS_SIGNED))
    width = statistics.limit / N_HALF
    return _within(statistics, (first[best] - N_HALF) * width, (last[best] - N_HALF) * width)


def _entropy_magnitude(statistics: TensorStatistics) -> CalibrationRange:
    counts = _fold(statistics)
    filled = np.flatnonzero(counts)
    reach = _thresholds(filled[-1] + 1, _N_LEVELS_MAGNITUDE)
    last = filled[np.searchsorted(filled, reach).clip(min=1) - 1] + 1
    best = _least(_divergences(counts, np.zeros_like(last), last, _N_LEVELS_MAGNITUDE))
    return _around_zero(statistics, last[best] * statistics.limit / N_HALF)


def _thresholds(largest: int, smallest: int) -> _Ints:
    """Bins between zero and the threshold, widest first; one at least, also where the values are beside zero."""
    return np.arange(max(largest, smallest), smallest - 1, -_ENTROPY_STRIDE)


def _least(divergences: _Floats) -> int:
    """Index of the least; of equal ones, as those of a tensor of few distinct values, the first."""
    return int(np.argmin(np.round(divergences, 9)))


def _divergences(counts: _Ints, first: _Ints, last: _Ints, n_levels: int) -> _Floats:
    """Divergence of the histogram within bins [first, last) from its average over each of ``n_levels`` groups of bins.

    With ``c`` the counts, ``G`` and ``n`` the sum and the number of filled bins of a bin's group, ``S`` the sum inside
    and ``N`` the sum of all, the reference is ``p = c / N``, its outermost bins also holding what lies outside, and the
    average is ``q = G / (n S)`` in filled bins. All sums over bins then are differences of cumulative sums.

    Returns:
        Nats, one a candidate; infinite where there are fewer bins than levels, too few values inside, or values beyond
        an empty outermost bin.
    """
    n_values, n_filled = _cumulative(counts), _cumulative(counts > 0)
    n_log_n = _cumulative(_x_log_x(counts))
    groups = first[:, np.newaxis] + (last - first)[:, np.newaxis] * np.arange(n_levels + 1) // n_levels
    group_values = np.diff(n_values[groups])
    inside = np.maximum(n_values[last] - n_values[first], 1)
    log_q = np.log(np.maximum(group_values, 1) / (np.maximum(np.diff(n_filled[groups]), 1) * inside[:, np.newaxis]))
    p_log_p = n_log_n[last] - n_log_n[first]
    p_log_q = (group_values * log_q).sum(axis=1)
    valid = (last - first >= n_levels) & (inside >= _LEAST_INSIDE * n_values[-1])
    for outside, end, group in ((n_values[first], first, 0), (n_values[-1] - n_values[last], last - 1, -1)):
        p_log_p += _x_log_x(counts[end] + outside) - _x_log_x(counts[end])
        p_log_q += outside * log_q[:, group]
        valid &= (counts[end] > 0) | (outside == 0)
    total = n_values[-1]
    return np.where(valid, (p_log_p - p_log_q) / total - np.log(total), np.inf)


def _cumulative(values: npt.NDArray[np.generic]) -> npt.NDArray[np.float64]:
    """Sums of the first 0, 1, ... values."""
    return np.append(0.0, np.cumsum(values, dtype=np.float64))


def _x_log_x(counts: npt.NDArray[np.number]) -> _Floats:
    result: _Floats = counts * np.log(np.maximum(counts, 1))
    return result
