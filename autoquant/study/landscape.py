"""What the models believe of every assignment at once."""

from dataclasses import dataclass

import numpy as np

from autoquant.study.layout import Codes, Floats, Layout
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
        rows = np.arange(len(self.layout.regions))
        return np.asarray(self.noise[:, rows, codes].sum(axis=2).T + FLOAT_NOISE)

    def ratios_of(self, codes: Codes) -> Floats:
        """Latency ratio by assignment and target; shape (n, T) for (n, R)."""
        own = self.own[:, np.arange(len(self.layout.regions)), codes].sum(axis=2)
        return np.asarray((self.constant[:, None] + own + self.border @ self.layout.unlike(codes).T).T)

    def weighted(self, weights: Floats) -> tuple[Floats, Floats]:
        """Own and border terms of the weighted mean over targets; shapes (R, S) and (E,)."""
        return np.tensordot(weights, self.own, 1), weights @ self.border
