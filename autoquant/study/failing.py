"""What makes trials fail."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.study.layout import Codes, Floats, Layout

__all__ = ["Suspects"]

_N_CERTAIN = 2
_FROM_ELSEWHERE = 0.1
"""Of failures."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """For each failed trial the schemes of regions of which one may be the cause: no other trial ran them.

    Attributes:
        pairs: Shape (n, R, S), at least one in each row; failures of what others ran, piece by piece, are left out.
    """

    pairs: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, layout: Layout, failed: Codes, measured: Codes) -> "Suspects":
        """Learn from all trials so far.

        Args:
            layout: Regions and schemes.
            failed: Scheme numbers of trials that failed, shape (n, R).
            measured: Of those that did not, shape (m, R).
        """
        pairs = _pairs(layout, failed)
        if len(failed):
            pairs &= ~_pairs(layout, measured).any(axis=0)
        return cls(pairs[pairs.any(axis=(1, 2))])

    @property
    def certain(self) -> npt.NDArray[np.bool_]:
        """What alone can be the cause of two failures, shape (R, S): one may have been something else."""
        alone = self.pairs[self.pairs.sum(axis=(1, 2)) == 1]
        return np.asarray(alone.sum(axis=0) >= _N_CERTAIN)

    def chances(self, layout: Layout, codes: Codes) -> Floats:
        """Probability that assignments run, as if each suspect of a failure were equally likely; shape (n,).

        Some failures come from what is no part of an assignment, as want of memory or time.
        """
        if not len(self.pairs):
            return np.ones(len(codes))
        equally = self.pairs / self.pairs.sum(axis=(1, 2), keepdims=True)
        shares = np.tensordot(_pairs(layout, codes).astype(float), equally, axes=([1, 2], [1, 2]))
        return np.asarray(np.prod(1.0 - (1.0 - _FROM_ELSEWHERE) * np.minimum(shares, 1.0), axis=1))


def _pairs(layout: Layout, codes: Codes) -> npt.NDArray[np.bool_]:
    """Which schemes regions take but float, shape (n, R, S)."""
    return np.asarray((codes[..., None] == np.arange(len(layout.schemes))) & (codes[..., None] != 0))
