"""What the models believe of every assignment at once."""

from dataclasses import dataclass

import numpy as np

from autoquant.study.layout import Codes, Floats, Layout, pick
from autoquant.study.noise import FLOAT_NOISE

__all__ = ["Landscape"]


@dataclass(frozen=True, slots=True)
class Landscape:
    """One draw of all models, or their means.

    Attributes:
        layout: What the tables are about.
        noise: Relative noise power by output, region and scheme; shape (O, R, S).
        constant: Latency ratio of the all-float candidate, by target; shape (T,).
        own: Change of the ratio by target, region and scheme; shape (T, R, S), 0 for float.
        border: Change of the ratio by target and border between unlike neighbours; shape (T, E).
    """

    layout: Layout
    noise: Floats
    constant: Floats
    own: Floats
    border: Floats

    def noise_of(self, codes: Codes) -> Floats:
        """Relative noise power by assignment and output; shape (n, O) for (n, R)."""
        return np.asarray(_sums(self.noise, codes) + FLOAT_NOISE)

    def ratios_of(self, codes: Codes) -> Floats:
        """Latency ratio by assignment and target; shape (n, T) for (n, R)."""
        border = self.border @ self.layout.unlike(codes).T
        return np.asarray((self.constant[:, None] + _sums(self.own, codes).T + border).T)

    def weighted(self, weights: Floats) -> tuple[Floats, Floats]:
        """Own and border terms of the weighted mean over targets; shapes (R, S) and (E,)."""
        return np.tensordot(weights, self.own, 1), weights @ self.border


def _sums(tables: Floats, codes: Codes) -> Floats:
    """What tables of shape (K, R, S) have of assignments, added up over regions; shape (n, K) for (n, R)."""
    if len(tables) == 1:  # numpy adds up one row after another, in pairs: the last digits are not those of below
        return np.asarray(pick(tables[0], codes).sum(axis=1, keepdims=True))
    n_tables, n_regions, n_schemes = tables.shape
    places = (codes + n_schemes * np.arange(n_regions)).T
    return np.asarray(tables.reshape(n_tables, -1).T.take(places, axis=0).sum(axis=0))
