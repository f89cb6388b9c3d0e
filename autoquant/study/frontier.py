"""The assignments on the lower hull of a predicted front."""

import numpy as np

from autoquant.study.integer_program import fastest_within
from autoquant.study.labelling import Labelling
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.steering import SizeTerm

__all__ = ["Frontier"]

_PRICES = 10 ** np.linspace(-3, 7, 36)
"""Of one unit of relative noise power, in latency ratios: one step is less than 3 dB."""
_N_ROUNDS = 4
_NEVER = 1e9
_DEMANDS_DB = (10.0, 20.0, 30.0, 40.0, 50.0, 60.0)
_PROGRAM_S = 0.05


class Frontier:
    """Minimises latency plus a price times the noise power, for all prices at once and exactly.

    With several outputs the worst one counts, so the noise is a weighted sum whose weights move towards the worst
    output of the solution before (multiplicative weights).

    Args:
        layout: Regions, schemes and borders.

    References:
        Everett, "Generalized Lagrange multiplier method", 1963; Arora, Hazan, Kale, "The Multiplicative Weights Update
        Method", 2012.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._labelling = Labelling(len(layout.regions), layout.edges)

    def solve(self, landscape: Landscape, weights: Floats, size: SizeTerm | None = None) -> Codes:
        """Different assignments of the front's lower hull, between all float and all integer.

        Where regions touch too many others for that, the integer program is solved for a few SNR demands.

        Args:
            landscape: What to believe.
            weights: Of the targets; shape (T,).
            size: Added to the latency at each of its prices; those that exceed its limit are found too.

        Returns:
            Scheme numbers, shape (n, R).
        """
        if not self._labelling.is_narrow:
            limits = [10 ** (-demand / 10) for demand in _DEMANDS_DB]
            solved = [fastest_within(landscape, weights, limit, seconds=_PROGRAM_S, size=size) for limit in limits]
            return np.unique([solution.codes for solution in solved], axis=0)
        terms = self._terms(landscape, weights, size)
        n_outputs, n_terms = len(landscape.noise), len(terms[0])
        prices = np.repeat(_PRICES, n_terms)[:, None]
        shares = np.ones((len(prices), n_outputs))
        found: list[Codes] = []
        for _ in range(1 if n_outputs == 1 else _N_ROUNDS):
            codes = self._cheapest(landscape, *terms, prices * shares)
            found.append(codes)
            noise = landscape.noise_of(codes)
            shares = shares * noise / noise.max(axis=1, keepdims=True)
            shares *= n_outputs / np.maximum(shares.sum(axis=1, keepdims=True), 1e-30)
        return np.unique(np.concatenate(found), axis=0)

    def _terms(self, landscape: Landscape, weights: Floats, size: SizeTerm | None) -> tuple[Floats, Floats]:
        """Cost of each region and scheme and of each border, by price of the size; shapes (Q, R, S) and (Q, E)."""
        own, border = landscape.weighted(weights)
        own = own[:, self.layout.kinds]
        if size is None:
            return own[None], border[None]
        prices = np.array(size.prices)
        return own + prices[:, None, None] * size.table.own, border + prices[:, None] * size.table.border

    def _cheapest(self, landscape: Landscape, own: Floats, border: Floats, prices: Floats) -> Codes:
        """The assignment of lowest cost for each row of prices by output, and each cost in turn; shape (n, R)."""
        n_times = len(prices) // len(own)
        cost = np.tile(own, (n_times, 1, 1)) + np.tensordot(prices, landscape.noise, 1)
        cost = np.where(self.layout.allowed, cost, _NEVER)[:, :, 1:]
        scheme = cost.argmin(axis=2)
        lowest = np.take_along_axis(cost, scheme[:, :, None], axis=2)[:, :, 0]
        is_integer = self._labelling.solve(lowest, np.tile(border, (n_times, 1)))
        return np.where(is_integer, scheme + 1, 0)
