"""95 % intervals over samples.

What is counted (a sample is right or wrong) has closed forms that stay honest where every sample is right; means of
other scores are resampled; a function of all samples at once is computed again without some of them.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.share import FEWEST_RESAMPLED, Z_95, tail_of_few, wilson_interval

__all__ = ["drop_interval", "jackknife_groups", "jackknife_interval", "mean_interval", "share_interval"]

Floats = npt.NDArray[np.float64]
Interval = tuple[float, float]

_N_RESAMPLES = 2000
_BLOCK = 1 << 20
"""Resampled values held at a time."""
_N_GROUPS = 10
_UNKNOWN = (-math.inf, math.inf)
_T = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % quantiles of Student's t, by degrees of freedom."""


def mean_interval(values: Floats, seed: int) -> Interval:
    """Of a mean: percentiles of the bootstrap, expanded as ``tail_of_few`` has it.

    Args:
        values: One per sample, shape (n,), at least one.
        seed: Of the resampling.

    Returns:
        Both ends, the mean between them; unknown for fewer than ``FEWEST_RESAMPLED``, or where all are equal: that
        other samples would change nothing is not known.
    """
    n = len(values)
    if n < FEWEST_RESAMPLED or values.min() == values.max():
        return _UNKNOWN
    rng, means = np.random.default_rng(seed), np.empty(_N_RESAMPLES)
    step = max(1, _BLOCK // n)
    for start in range(0, _N_RESAMPLES, step):
        block = means[start : start + step]
        block[:] = values[rng.integers(n, size=(len(block), n))].mean(axis=1)
    tail = tail_of_few(n)
    low, high = np.quantile(means, [tail, 1 - tail])
    return _around(float(values.mean()), float(low), float(high))


def share_interval(scores: Floats, seed: int) -> Interval:
    """Of the share of what is right: Wilson's where each sample is right or wrong, otherwise as ``mean_interval``.

    Args:
        scores: Share that is right in each sample, shape (n,), at least one.
        seed: Of the resampling.

    Returns:
        Both ends, the mean between them; not a point even where every sample is right.
    """
    if not _is_count(scores):
        return mean_interval(scores, seed)
    mean = float(scores.mean())
    return _around(mean, *wilson_interval(mean, len(scores)))


def drop_interval(reference: Floats, candidate: Floats, seed: int) -> Interval:
    """Of the mean of paired differences: Bonett and Price's where each sample is right or wrong, or ``mean_interval``.

    Args:
        reference: Float's scores, one per sample, shape (n,), at least one.
        candidate: The candidate's.
        seed: Of the resampling.

    Returns:
        Of reference - candidate, both ends, the mean between them; not a point even where no sample that is right or
        wrong differs.

    References:
        Bonett and Price, "Adjusted Wald Confidence Interval for a Difference of Binomial Proportions Based on Paired
        Data", Journal of Educational and Behavioral Statistics 37(4), 2012.
    """
    differences = reference - candidate
    if not (_is_count(reference) and _is_count(candidate)):
        return mean_interval(differences, seed)
    n = len(differences)
    worse, better = ((float((differences == sign).sum()) + 1) / (n + 2) for sign in (1, -1))
    half = Z_95 * math.sqrt((worse + better - (worse - better) ** 2) / (n + 2))
    return _around(float(differences.mean()), max(worse - better - half, -1.0), min(worse - better + half, 1.0))


def jackknife_groups(n_samples: int, seed: int) -> list[npt.NDArray[np.int64]]:
    """Positions that are kept when each of ten groups of samples is left out; fewer groups for fewer samples.

    Groups are drawn at random, as data are often in an order that repeats; none where there are fewer than 3 samples.
    """
    if n_samples < 3:
        return []
    order = np.random.default_rng(seed).permutation(n_samples)
    n_groups = min(_N_GROUPS, n_samples)
    return [np.sort(np.delete(order, np.s_[group::n_groups])) for group in range(n_groups)]


def jackknife_interval(value: float, replicates: Sequence[float]) -> Interval:
    """Of a number computed from all samples at once: the delete-a-group jackknife with Student's t.

    Unlike resampling it never shows a sample twice, which ranks and pairs of samples would not bear.

    Args:
        value: From all samples.
        replicates: From the samples without each group.

    Returns:
        Both ends, ``value`` in the middle, so that they may lie beyond what the number can be; unknown for fewer than 2
        replicates, or where one is not finite, or where all are equal: that other samples would change nothing is not
        known.

    References:
        Kott, "The Delete-a-Group Jackknife", Journal of Official Statistics 17(4), 2001.
    """
    n = len(replicates)
    if n < 2 or not np.isfinite(replicates).all() or min(replicates) == max(replicates):
        return _UNKNOWN
    deviations = np.asarray(replicates, np.float64) - np.mean(replicates)
    half = _T[n - 1] * math.sqrt((n - 1) / n * float(np.square(deviations).sum()))
    return value - half, value + half


def _is_count(scores: Floats) -> bool:
    return bool(np.isin(scores, (0, 1)).all())


def _around(value: float, low: float, high: float) -> Interval:
    return min(low, value), max(high, value)
