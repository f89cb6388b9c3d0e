"""The assignments on the lower hull of a predicted front."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.study.cut import Cut
from autoquant.study.labelling import Labelling
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Codes, Floats, Layout, distinct
from autoquant.study.steering import SizeTerm

__all__ = ["Frontier"]

_PRICES = 10 ** np.linspace(-3, 7, 36)
"""Of one unit of relative noise power, in latency ratios: one step is less than 3 dB."""
_N_ROUNDS = 4
_NEVER = 1e9


class Frontier:
    """Minimises latency plus a price times the noise power, for all prices at once, exactly where there is one output.

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
        labelling = Labelling(len(layout.regions), layout.edges)
        self._labelling = labelling if labelling.is_narrow else Cut(len(layout.regions), layout.edges)
        self._prices = _PRICES if labelling.is_narrow else _PRICES[::2]  # a cut each

    def within(self, allowed: npt.NDArray[np.bool_]) -> "Frontier":
        """The same where regions may take these schemes alone, shape (R, S)."""
        found = copy(self)
        found.layout = replace(self.layout, allowed=allowed)
        return found

    def solve(self, landscapes: Sequence[Landscape], weights: Floats, size: SizeTerm | None = None) -> Codes:
        """Different assignments of the fronts' lower hulls, between all float and all integer.

        Args:
            landscapes: What to believe: one or several, which together are faster than one by one.
            weights: Of the targets; shape (T,).
            size: Added to the latency at each of its prices; those that exceed its limit are found too.

        Returns:
            Scheme numbers, shape (n, R).
        """
        terms = [(each, *term) for each in landscapes for term in self._terms(each, weights, size)]
        own, border = (np.stack(column) for column in list(zip(*terms, strict=True))[1:])
        noise = np.stack([landscape.noise for landscape, *_ in terms])
        n_outputs = noise.shape[1]
        shares = np.ones((len(terms), len(self._prices), n_outputs))
        rounds = [self._cheapest(noise, own, border, self._prices[:, None] * shares)]
        for _ in range(0 if n_outputs == 1 else _N_ROUNDS - 1):
            powers = np.stack([term[0].noise_of(solved) for term, solved in zip(terms, rounds[-1], strict=True)])
            shares = shares * powers / powers.max(axis=-1, keepdims=True)
            shares *= n_outputs / np.maximum(shares.sum(axis=-1, keepdims=True), 1e-30)
            rounds.append(self._cheapest(noise, own, border, self._prices[:, None] * shares))
        return distinct(np.concatenate(rounds).reshape(-1, noise.shape[2]))

    def _terms(self, landscape: Landscape, weights: Floats, size: SizeTerm | None) -> list[tuple[Floats, Floats]]:
        """Cost of each region and scheme and of each border, for each price of the size; shapes (R, S) and (E,)."""
        own, border = landscape.weighted(weights)
        if size is None:
            return [(own, border)]
        return [(own + price * size.table.own, border + price * size.table.border) for price in size.prices]

    def _cheapest(self, noise: Floats, own: Floats, border: Floats, prices: Floats) -> Codes:
        """The assignment of lowest cost by term (L) and price (P).

        Args:
            noise: By output, shape (L, O, R, S).
            own: Shape (L, R, S).
            border: Shape (L, E).
            prices: Of the noise of each output, shape (L, P, O).

        Returns:
            Scheme numbers, shape (L, P, R).
        """
        layout, n_prices = self.layout, prices.shape[1]
        priced = (prices @ noise.reshape(*noise.shape[:2], -1)).reshape(*prices.shape[:2], *noise.shape[2:])
        cost = np.where(layout.allowed, own[:, None] + priced, _NEVER)
        carries = layout.carries_integers(np.arange(len(layout.schemes)))
        without, lowest = _lowest(cost, ~carries)
        scheme, lowest_integer = _lowest(cost, carries)
        more = lowest_integer - lowest
        is_integer = self._labelling.solve(more.reshape(-1, more.shape[-1]), np.repeat(border, n_prices, axis=0))
        return np.where(is_integer.reshape(scheme.shape), scheme, without)


def _lowest(cost: Floats, chosen: npt.NDArray[np.bool_]) -> tuple[Codes, Floats]:
    """Of some schemes the one of lowest cost, and its cost; shapes (..., R) for (..., R, S)."""
    if not chosen.any():
        return np.zeros(cost.shape[:-1], dtype=np.int64), np.full(cost.shape[:-1], _NEVER)
    numbers = np.flatnonzero(chosen)
    among = cost[..., numbers]
    return numbers[among.argmin(axis=-1)], among.min(axis=-1)
