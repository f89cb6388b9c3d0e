"""What makes trials fail."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.study.layout import Codes, Floats, Layout

__all__ = ["Suspects"]

_N_CERTAIN = 2
_FROM_ELSEWHERE, _FROM_ELSEWHERE_UNTOLD = 0.1, 0.5
"""Of failures: of those that say that the assignment failed, and of those that say nothing, as where Ctrl-C ended a
trial."""
_UNTOLD = 0.5
"""Of a failure that says so."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """For each failed trial the schemes of regions of which one may be the cause: no other trial ran them.

    Attributes:
        pairs: Shape (n, R, S), at least one in each row; failures of what others ran, piece by piece, are left out.
        is_told: Whether they say that it was the assignment that failed; shape (n,).
    """

    pairs: npt.NDArray[np.bool_]
    is_told: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, layout: Layout, failed: Codes, measured: Codes, is_told: Sequence[bool] = ()) -> "Suspects":
        """Learn from all trials so far.

        Args:
            layout: Regions and schemes.
            failed: Scheme numbers of trials that failed, shape (n, R).
            measured: Of those that did not, shape (m, R).
            is_told: Of each that failed, whether it says that it was the assignment; all of them where this is empty.
        """
        pairs = _pairs(layout, failed)
        if len(failed):
            pairs &= ~_pairs(layout, measured).any(axis=0)
        is_left = pairs.any(axis=(1, 2))
        told = np.array(is_told, dtype=bool) if is_told else np.ones(len(failed), dtype=bool)
        return cls(pairs[is_left], told[is_left])

    @property
    def certain(self) -> npt.NDArray[np.bool_]:
        """What alone can be the cause of two failures, shape (R, S): one may have been something else.

        Those that do not say so count half.
        """
        weights = np.where(self.is_told, 1.0, _UNTOLD)
        is_alone = self.pairs.sum(axis=(1, 2)) == 1
        return np.asarray(np.tensordot(weights[is_alone], self.pairs[is_alone], axes=1) >= _N_CERTAIN)

    def chances(self, layout: Layout, codes: Codes) -> Floats:
        """Probability that assignments run, as if each suspect of a failure were equally likely; shape (n,).

        Some failures come from what is no part of an assignment, as want of memory or time.
        """
        if not len(self.pairs):
            return np.ones(len(codes))
        equally = self.pairs / self.pairs.sum(axis=(1, 2), keepdims=True)
        shares = np.tensordot(_pairs(layout, codes).astype(float), equally, axes=([1, 2], [1, 2]))
        elsewhere = np.where(self.is_told, _FROM_ELSEWHERE, _FROM_ELSEWHERE_UNTOLD)
        return np.asarray(np.prod(1.0 - (1.0 - elsewhere) * np.minimum(shares, 1.0), axis=1))


def _pairs(layout: Layout, codes: Codes) -> npt.NDArray[np.bool_]:
    """Which schemes regions take but float, shape (n, R, S)."""
    return np.asarray((codes[..., None] == np.arange(len(layout.schemes))) & (codes[..., None] != 0))
