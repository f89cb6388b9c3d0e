"""Which few points stand for many."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

__all__ = ["Demands", "covering", "evenly_spread"]

Floats = npt.NDArray[np.float64]
_N_DEMANDS = 4096
"""Evenly spread, and always the same ones."""
_LEAST_GAIN = 1e-2
"""Of a demand: what adds less adds nothing."""


@dataclass(frozen=True, slots=True)
class Demands:
    """What a user could ask of one loss: uniform from ``least`` to ``usual``, and beyond that ever less.

    Attributes:
        least: The loss that anybody accepts.
        usual: The smallest one that is asked for like any other.
        tail: Mean of what is asked for beyond ``usual``; 0 where there is nothing beyond.

    >>> Demands(0.0, -60.0, 20.0).at(np.array([0.0, 0.375, 0.75])).tolist()
    [0.0, -30.0, -60.0]
    """

    least: float
    usual: float
    tail: float = 0.0

    def at(self, shares: Floats) -> Floats:
        """The losses that these shares of all demands, from 0 to 1, leave behind themselves."""
        uniform = max(0.0, self.least - self.usual)
        if not self.tail:
            return self.least - shares * uniform
        weight = uniform / (uniform + self.tail)
        inside = self.least - shares / max(weight, 1e-12) * uniform
        beyond = np.minimum((1 - shares) / (1 - weight), 1.0)
        return np.where(shares <= weight, inside, self.least - uniform + self.tail * np.log(np.maximum(beyond, 1e-12)))


def covering(
    losses: Floats, errors: Floats, demands: Sequence[Demands], limit: int, alternatives: Sequence[int] = ()
) -> list[int]:
    """Points of which together as many demands as possible are expected to be met, the most important first.

    A point meets a demand if it is no worse in any column that it is about. Each next point is the one that adds most
    to what those before it are expected to meet, which is at least 63 % of what the best choice of as many points
    would. What adds nothing comes by how little it is beyond what anybody accepts, then in its order.

    Args:
        losses: Estimates, shape (n, d), smaller is better in every column.
        errors: Their standard deviations, of the same shape; errors of different points are independent.
        demands: For each column; demands in different columns are independent.
        limit: Most points.
        alternatives: Columns of which half of the demands are about one alone, each as often as another.

    References:
        Zitzler, Brockhoff and Thiele, "The hypervolume indicator revisited", EMO 2007 (weighted hypervolume).
        Nemhauser, Wolsey and Fisher, "An analysis of approximations for maximizing submodular set functions", 1978.
    """
    drawn, asked = evenly_spread(_N_DEMANDS, len(demands)), _asked(len(demands), alternatives)
    meets = np.ones((len(losses), _N_DEMANDS), dtype=np.float32)
    excess = np.zeros(len(losses))
    for column, demand in enumerate(demands):
        left, error = demand.at(drawn[:, column])[None] - losses[:, column, None], errors[:, column, None]
        met = np.where(error > 0, ndtr(left / np.where(error > 0, error, 1.0)), left >= 0)
        meets *= np.where(asked[:, column], met, 1.0).astype(np.float32)
        excess += np.maximum(0.0, losses[:, column] - demand.least) / (abs(demand.least - demand.usual) or 1.0)
    unmet = np.ones(_N_DEMANDS, dtype=np.float32)
    remaining = list(range(len(losses)))
    chosen: list[int] = []
    while remaining and len(chosen) < limit:
        gains = meets[remaining] @ unmet
        i = int(np.argmax(gains) if gains.max() > _LEAST_GAIN else np.argmin(excess[remaining]))
        unmet *= 1 - meets[remaining[i]]
        chosen.append(remaining.pop(i))
    return chosen


def _asked(n_columns: int, alternatives: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which columns each demand is about, shape (_N_DEMANDS, n_columns)."""
    found = np.ones((_N_DEMANDS, n_columns), dtype=bool)
    kinds = np.arange(_N_DEMANDS) % (2 * max(1, len(alternatives)))
    for kind, own in enumerate(alternatives):
        found[np.ix_(kinds == kind, [column for column in alternatives if column != own])] = False
    return found


def evenly_spread(n: int, n_columns: int) -> Floats:
    """Points of the unit cube, shape (n, n_columns): an additive recurrence.

    References:
        Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018.
    """
    root = 2.0
    for _ in range(40):
        root = (1 + root) ** (1 / (n_columns + 1))
    steps = root ** -np.arange(1.0, n_columns + 1)
    return np.asarray((0.5 + np.arange(1, n + 1)[:, None] * steps) % 1.0)
