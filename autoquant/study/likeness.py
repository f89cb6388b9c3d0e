"""Regions of one pattern are expected to be alike."""

import numpy as np

from autoquant.study.layout import Codes, Floats

__all__ = ["Likeness"]


class Likeness:
    """Correlates independent weights, one a region, within patterns.

    The symmetric root of the covariance that is 1 for a region with itself, a share for two regions of one pattern and
    0 otherwise: there are no weights of patterns, so nothing grows with them, and a pattern of one region changes nothing.

    Args:
        patterns: Number of each region's pattern; shape (R,).
    """

    def __init__(self, patterns: Codes) -> None:
        found, position = np.unique(patterns, return_inverse=True)
        self._member = np.eye(len(found))[position]
        self._size = self._member.sum(axis=0)

    @property
    def has_repeated(self) -> bool:
        """Whether any two regions share a pattern."""
        return bool((self._size > 1).any())

    def mixed(self, values: Floats, share: float, before: float = 0.0) -> Floats:
        """Multiply with the root, from either side: it is symmetric.

        Args:
            values: Weights or their design; shape (..., R, K).
            share: Covariance of two regions with one pattern; below 1.
            before: That of values which were mixed already, which is undone.
        """
        if share == before or not self.has_repeated:
            return values
        own = np.sqrt((1 - share) / (1 - before))
        along = np.sqrt((1 + (self._size - 1) * share) / (1 + (self._size - 1) * before))
        common = ((along - own) / self._size)[:, None]
        return np.asarray(own * values + self._member @ (common * (self._member.T @ values)))
