"""What rounds inside sessions tell of the medians of these; processes that only measure load it, and no scipy."""

import statistics

import numpy as np
import numpy.typing as npt

__all__ = ["variance_of_medians"]

_OF_MEDIAN = 1.2533 / 1.349
"""Standard error of the median of n normal numbers by their interquartile range, times the root of n - 1: with n that
of few is too small, of three by a quarter."""
_TELLING_ROUNDS = 3
Floats = npt.NDArray[np.float64]


def variance_of_medians(values: Floats, sessions: npt.NDArray[np.int64]) -> float:
    """Of the logarithm of a session's median, as far as the rounds inside sessions tell, in the mean of the sessions.

    By the interquartile range, as for normal numbers. A session of two rounds tells nothing; 0 where there are no
    others.

    Args:
        values: Of the rounds, positive; shape (n,).
        sessions: Number of the session of each; shape (n,).
    """
    groups = [values[sessions == number] for number in np.unique(sessions)]
    found = [
        float(np.square(_OF_MEDIAN * np.subtract(*np.quantile(np.log(group), [0.75, 0.25])))) / (len(group) - 1)
        for group in groups
        if len(group) >= _TELLING_ROUNDS
    ]
    return statistics.fmean(found) if found else 0.0
