"""Which regions run on integers, exactly: dynamic programming over the graph of touching regions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.study.layout import Codes, Floats

__all__ = ["Labelling"]

_WIDEST = 12
"""Tables have 2 to the power of so many entries at most."""


@dataclass(frozen=True, slots=True)
class _Factor:
    """Costs over the labels of some regions; shape (n, 2, ..., 2), axes in the order of ``regions``."""

    regions: tuple[int, ...]
    costs: Floats

    def over(self, regions: Sequence[int]) -> Floats:
        """The same costs with an axis for each of more regions."""
        shape = [2 if region in self.regions else 1 for region in regions]
        return self.costs.reshape(len(self.costs), *shape)


class Labelling:
    """Minimises, for many costs at once, the sum of a cost for each region's label and one for each unlike border.

    Regions are eliminated one by one, that with the fewest neighbours first; what is minimised over is a table over the
    labels of its neighbours. Graphs of networks are nearly chains, so the tables stay small.

    Args:
        n_regions: Number of regions.
        edges: Pairs of touching regions; shape (E, 2).

    References:
        Dechter, "Bucket elimination: A unifying framework for reasoning", 1999.
    """

    def __init__(self, n_regions: int, edges: Codes) -> None:
        self._edges = edges
        self._order: list[int] = []
        neighbours: list[set[int]] = [set() for _ in range(n_regions)]
        for a, b in edges.tolist():
            neighbours[a].add(b)
            neighbours[b].add(a)
        left, self.width = set(range(n_regions)), 0
        while left:
            region = min(left, key=lambda r: (len(neighbours[r]), r))
            around = neighbours[region]
            self.width = max(self.width, len(around))
            for other in around:
                neighbours[other] |= around - {other}
                neighbours[other].discard(region)
            left.remove(region)
            self._order.append(region)

    @property
    def is_narrow(self) -> bool:
        """Whether the tables are small enough for ``solve``."""
        return self.width <= _WIDEST

    def solve(self, own: Floats, border: Floats) -> npt.NDArray[np.bool_]:
        """The labels of lowest cost.

        Args:
            own: Cost of each region's label 1 over label 0; shape (n, R).
            border: Cost of each border between unlike labels; shape (n, E).

        Returns:
            Label of each region; shape (n, R).
        """
        factors = [_Factor((r,), np.stack([np.zeros(len(own)), own[:, r]], axis=1)) for r in range(own.shape[1])]
        for (a, b), cost in zip(self._edges.tolist(), border.T, strict=True):
            unlike = np.zeros((len(own), 2, 2))
            unlike[:, 0, 1] = unlike[:, 1, 0] = cost
            factors.append(_Factor((min(a, b), max(a, b)), unlike))
        best: list[tuple[tuple[int, ...], npt.NDArray[np.bool_]]] = []
        for region in self._order:
            touched = [factor for factor in factors if region in factor.regions]
            around = tuple(sorted({r for factor in touched for r in factor.regions} - {region}))
            joined = sum(
                (factor.over((*around, region)) for factor in _aligned(touched, (*around, region))), np.zeros(())
            )
            best.append((around, joined[..., 1] < joined[..., 0]))
            factors = [factor for factor in factors if region not in factor.regions]
            factors.append(_Factor(around, joined.min(axis=-1)))
        return self._labels(len(own), best)

    def _labels(self, n: int, best: Sequence[tuple[tuple[int, ...], npt.NDArray[np.bool_]]]) -> npt.NDArray[np.bool_]:
        labels = np.zeros((n, len(self._order)), dtype=bool)
        rows = np.arange(n)
        for region, (around, choice) in zip(reversed(self._order), reversed(best), strict=True):
            labels[:, region] = choice[(rows, *(labels[:, other].astype(int) for other in around))]
        return labels


def _aligned(factors: Sequence[_Factor], regions: tuple[int, ...]) -> list[_Factor]:
    """The same factors with their axes in the order of ``regions``."""
    found = []
    for factor in factors:
        order = sorted(range(len(factor.regions)), key=lambda i: regions.index(factor.regions[i]))
        costs = factor.costs.transpose(0, *(1 + i for i in order))
        found.append(_Factor(tuple(factor.regions[i] for i in order), costs))
    return found
