"""The size of a file adds up over regions and borders, nearly exactly."""

from dataclasses import dataclass

import numpy as np

from autoquant.study.gaussian import condition
from autoquant.study.layout import Codes, Floats, Layout, pick

__all__ = ["SizeModel", "SizeTable"]

_SAVED = 0.7
"""Share of float's size that is saved where every region runs on integers, roughly."""
_BASE, _REGION, _SCHEME, _BORDER = 0.02, 0.2, 0.01, 0.002
"""Standard deviations as shares of float's size: of the whole, of a region on integers, beside that of a scheme."""
_ERROR = 0.001
_FIRST_ERROR, _LEAST_ERROR = 0.1, 0.002
_N_RECENT = 10
_MANY, _MOST = 150, 400
"""So many files are learned from whatever they say; later ones, up to so many in all, where they were not predicted."""


@dataclass(frozen=True, slots=True)
class SizeTable:
    """Shares of the largest file.

    Attributes:
        constant: Of the all-float candidate.
        own: Change by region and scheme, 0 for float; shape (R, S).
        border: Change by border between unlike neighbours; shape (E,).
    """

    constant: float
    own: Floats
    border: Floats

    def of(self, codes: Codes, layout: Layout) -> Floats:
        """Sizes of assignments; shape (n,) for (n, R)."""
        return np.asarray(self.constant + pick(self.own, codes).sum(axis=1) + layout.unlike(codes) @ self.border)


class SizeModel:
    """Learns sizes from files: a constant, terms for each region on integers and for its scheme, one for each border.

    On recorded searches the recipes and one probe of each region leave an error of 0.15 %.

    Attributes:
        table: What is believed.
        largest_bytes: Of the files.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        n_edges = len(layout.edges)
        self._mean = np.concatenate(
            [[1.0], np.full(n_regions, -_SAVED / n_regions), np.zeros(n_regions * n_schemes + n_edges)]
        )
        spreads = (_BASE, 1), (_REGION, n_regions), (_SCHEME, n_regions * n_schemes), (_BORDER, n_edges)
        self._spread = np.concatenate([np.full(n, spread) for spread, n in spreads])
        self._errors: list[float] = []
        self._learned: list[int] = []
        self._n_seen = 0
        self.table = self._table(np.zeros(self._mean.size))
        self.largest_bytes = 1.0

    @property
    def error(self) -> float:
        """Root mean square of how wrong recent predictions were, as a share of the largest file."""
        recent = self._errors[-_N_RECENT:]
        return max(_LEAST_ERROR, float(np.sqrt(np.mean(np.square(recent)))) if recent else _FIRST_ERROR)

    def fit(self, codes: Codes, size_bytes: Floats) -> None:
        """Learn from files, at least one; those that were learned from come first.

        Args:
            codes: Scheme numbers that they were built with; shape (n, R).
            size_bytes: Shape (n,).
        """
        new = np.arange(self._n_seen, len(codes))
        errors = np.full(len(new), np.inf)
        if self._n_seen:
            errors = size_bytes[new] / self.largest_bytes - self.predict(codes[new])
            self._errors.extend(errors)
        self._n_seen, n_before = len(codes), len(self._learned)
        for number, error in zip(new.tolist(), errors, strict=True):
            if len(self._learned) < (_MOST if abs(error) > _LEAST_ERROR else _MANY):
                self._learned.append(number)
        if len(self._learned) > n_before:
            self._condition(codes[self._learned], size_bytes[self._learned])

    def _condition(self, codes: Codes, size_bytes: Floats) -> None:
        self.largest_bytes = float(size_bytes.max())
        design = self._features(codes)
        observed = size_bytes / self.largest_bytes - design @ self._mean
        self.table = self._table(condition(design * self._spread, observed, np.full(len(codes), _ERROR**2)).mean)

    def predict(self, codes: Codes) -> Floats:
        """Shares of the largest file; shape (n,) for (n, R)."""
        return self.table.of(codes, self._layout)

    def _table(self, weights: Floats) -> SizeTable:
        n_regions, n_schemes = self._layout.allowed.shape
        found = self._mean + self._spread * weights
        base, region, scheme, border = np.split(found, np.cumsum([1, n_regions, n_regions * n_schemes]))
        own = region[:, None] + scheme.reshape(n_regions, n_schemes)
        own[:, 0] = 0.0
        return SizeTable(float(base[0]), own, border)

    def _features(self, codes: Codes) -> Floats:
        """Design matrix, shape (n, 1 + R + R S + E)."""
        n, n_schemes, unlike = len(codes), self._layout.allowed.shape[1], self._layout.unlike(codes)
        integer = codes > 0
        scheme = (codes[:, :, None] == np.arange(n_schemes)) & integer[:, :, None]
        return np.concatenate([np.ones((n, 1)), integer, scheme.reshape(n, -1), unlike], axis=1).astype(float)
