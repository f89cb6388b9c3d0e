"""Regions that are expected to be alike: those of one pattern, and neighbours."""

import numpy as np

from autoquant.study.layout import Codes, Floats

__all__ = ["Likeness", "alike_neighbours", "alike_patterns"]

_REACH = 4.0
"""Over so many regions the correlation of neighbours falls to 1/e."""


def alike_patterns(patterns: Codes) -> Floats:
    """1 for two regions of one pattern, 0 for others; shape (R, R) for (R,)."""
    return np.asarray(patterns[:, None] == patterns, dtype=np.float64)


def alike_neighbours(n_regions: int) -> Floats:
    """The nearer in topological order the more, shape (R, R)."""
    position = np.arange(n_regions)
    return np.asarray(np.exp(-np.abs(position[:, None] - position) / _REACH))


class Likeness:
    """Correlates independent weights, so that what is learned of one is believed of its likes until data say otherwise.

    A share of each weight's variance has this correlation with others, the rest is its own; the variance stays.

    Args:
        correlation: Positive semidefinite with ones on its diagonal; shape (R, R).
    """

    def __init__(self, correlation: Floats) -> None:
        self._values, self._vectors = np.linalg.eigh(correlation)
        self._values = np.maximum(self._values, 0.0)

    def root(self, share: float, before: float = 0.0) -> Floats:
        """What independent weights or their design are multiplied with, from either side: it is symmetric.

        Args:
            share: Below 1.
            before: Share with which they were multiplied already, which is undone.

        Returns:
            Shape (R, R).
        """
        stretch = np.sqrt((1 - share + share * self._values) / (1 - before + before * self._values))
        return np.asarray((self._vectors * stretch) @ self._vectors.T)
