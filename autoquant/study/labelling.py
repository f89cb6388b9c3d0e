"""Which regions run on integers, exactly: dynamic programming over the graph of touching regions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.study.layout import Codes, Floats

__all__ = ["Labelling"]

_WIDEST = 12
"""Tables have 2 to the power of so many entries at most."""


@dataclass(frozen=True, slots=True)
class _Step:
    """How one region is eliminated.

    Attributes:
        region: Which.
        around: Its neighbours among those that are left, in ascending order.
        tables: What it occurs in: number of the table, the order of its axes, and its shape with an axis for the region
            itself and each neighbour, without the last one.
    """

    region: int
    around: tuple[int, ...]
    tables: tuple[tuple[int, tuple[int, ...], tuple[int, ...]], ...]


class Labelling:
    """Minimises, for many costs at once, the sum of a cost for each region's label and one for each unlike border.

    Regions are eliminated one by one, that with the fewest neighbours first; what is minimised over is a table over the
    labels of its neighbours. Graphs of networks are nearly chains, so the tables stay small. The last axis of each
    is that of the costs, as loops over two labels would take most of the time.

    Args:
        n_regions: Number of regions.
        edges: Pairs of touching regions; shape (E, 2).

    References:
        Dechter, "Bucket elimination: A unifying framework for reasoning", 1999.
    """

    def __init__(self, n_regions: int, edges: Codes) -> None:
        self._n_regions, self._edges = n_regions, edges
        self._steps: list[_Step] = []
        held: dict[int, tuple[int, ...]] = {i: (i,) for i in range(n_regions)}
        held |= {n_regions + i: (min(pair), max(pair)) for i, pair in enumerate(edges.tolist())}
        neighbours: list[set[int]] = [set() for _ in range(n_regions)]
        for a, b in edges.tolist():
            neighbours[a].add(b)
            neighbours[b].add(a)
        left, self.width = set(range(n_regions)), 0
        while left:
            region = min(left, key=lambda r: (len(neighbours[r]), r))
            around = neighbours[region]
            for other in around:
                neighbours[other] |= around - {other}
                neighbours[other].discard(region)
            left.remove(region)
            step = _step(region, tuple(sorted(around)), held)
            for number, _, _ in step.tables:
                del held[number]
            held[n_regions + len(edges) + len(self._steps)] = step.around
            self.width = max(self.width, len(step.around))
            self._steps.append(step)

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
        largest = 1.0 + np.abs(border).sum(axis=1, keepdims=True)
        own = np.clip(own, -largest, largest)  # what all borders together don't outweigh costs the others no digits
        unlike = np.zeros((len(self._edges), 2, 2, len(own)))
        unlike[:, 0, 1] = unlike[:, 1, 0] = border.T
        tables = [*np.stack([np.zeros(own.T.shape), own.T], axis=1), *unlike]
        choices: list[npt.NDArray[np.bool_]] = []
        for step in self._steps:
            parts = (tables[number].transpose(order).reshape(*shape, len(own)) for number, order, shape in step.tables)
            zero, one = sum(parts, np.zeros(len(own)))
            choices.append(np.asarray(one < zero))
            tables.append(np.minimum(zero, one))
        return self._labels(len(own), choices)

    def _labels(self, n: int, choices: Sequence[npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
        labels, rows = np.zeros((self._n_regions, n), dtype=np.int64), np.arange(n)
        for step, choice in zip(reversed(self._steps), reversed(choices), strict=True):
            labels[step.region] = choice[(*(labels[other] for other in step.around), rows)]
        return np.asarray(labels.T == 1)


def _step(region: int, around: tuple[int, ...], held: Mapping[int, tuple[int, ...]]) -> _Step:
    axes = (region, *around)
    tables = []
    for number, regions in held.items():
        if region in regions:
            order = sorted(range(len(regions)), key=lambda i: axes.index(regions[i]))
            shape = tuple(2 if other in regions else 1 for other in axes)
            tables.append((number, (*order, len(regions)), shape))
    return _Step(region, around, tuple(tables))
