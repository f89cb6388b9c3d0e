"""Channels that must share one scale."""

import numpy as np
import numpy.typing as npt

__all__ = ["FIXED", "Labels", "Ties"]

Labels = npt.NDArray[np.intp]
"""A channel for each place of a tensor, in its rank; axes along which channels do not differ have size 1."""

FIXED = 0
"""The channel that keeps scale 1, and all that are tied to it."""


class Ties:
    """Sets of channels that share a scale, merged one by one.

    References:
        Tarjan, "Efficiency of a Good But Not Linear Set Union Algorithm", JACM 22(2), 1975.
    """

    def __init__(self) -> None:
        self._parent = [FIXED]

    def fresh(self, n: int) -> Labels:
        """New channels, tied to nothing, shape (n,)."""
        first = len(self._parent)
        self._parent.extend(range(first, first + n))
        return np.arange(first, first + n, dtype=np.intp)

    def tie(self, one: Labels, other: Labels) -> None:
        """Let channels at the same place share a scale; the arrays are broadcast against each other."""
        left, right = (side.ravel() for side in np.broadcast_arrays(one, other))
        for key in np.unique(left * len(self._parent) + right).tolist():
            a, b = divmod(key, len(self._parent))
            low, high = sorted((self._root(a), self._root(b)))
            self._parent[high] = low

    def fix(self, labels: Labels) -> None:
        """Let channels keep scale 1."""
        self.tie(np.unique(labels), np.full(1, FIXED, np.intp))

    def is_fixed(self, labels: Labels) -> bool:
        """Whether all of them keep scale 1, as far as is known."""
        return all(self._root(label) == FIXED for label in np.unique(labels).tolist())

    def numbers(self) -> Labels:
        """For every channel the number of its set, counted from 0; that of the fixed ones is 0."""
        roots = np.array([self._root(label) for label in range(len(self._parent))], np.intp)
        return np.unique(roots, return_inverse=True)[1].astype(np.intp)

    def _root(self, label: int) -> int:
        while self._parent[label] != label:
            self._parent[label] = self._parent[self._parent[label]]
            label = self._parent[label]
        return label
