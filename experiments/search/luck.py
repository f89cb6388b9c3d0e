"""A table without the luck of its measurements."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from experiments.search.table import Table

__all__ = ["Luck", "without_luck"]

_ORDERS = (1, 2, 3)
_N_FOLDS = 10
_RIDGE = 1e-3
"""Added to what is solved for each term, in evaluations: some occur in no graph."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """How far ratios are from what other graphs say of them.

    Attributes:
        order: So many regions have a term together: of 1, 2 and 3 what predicts graphs best that were left out.
        error: Root mean square of what it is wrong by then, of graphs with the most rounds.
        said: Standard error that their rounds say, in the median.
    """

    order: int
    error: float
    said: float


def without_luck(table: Table) -> tuple[Table, Luck]:
    """The table with ratios by least squares over what regions, pairs and perhaps triples of them run.

    SNRs are of all samples, and stay.
    """
    measured, weights = table.ratio[:, 0].astype(np.float64), np.sqrt(table.rounds / table.rounds.max())
    is_careful = table.rounds == table.rounds.max()
    designs = {order: _design(table.effective, order) for order in _ORDERS}
    errors = {
        order: float(np.sqrt(np.mean(np.square(measured - _left_out(design, measured, weights))[is_careful])))
        for order, design in designs.items()
    }
    order = min(errors, key=errors.__getitem__)
    ratios = designs[order] @ _solved(designs[order], measured, weights)
    widths = (table.ratio[:, 2] - table.ratio[:, 1])[is_careful]
    luck = Luck(order=order, error=errors[order], said=float(np.median(widths)) / (2 * 1.96))
    return replace(table, ratio=np.repeat(ratios[:, None], 3, axis=1).astype(np.float32)), luck


def _design(effective: npt.NDArray[np.uint8], order: int) -> Floats:
    """Whether so many regions or fewer run some schemes other than float together; shape (G, terms)."""
    n_graphs, n_regions = effective.shape
    schemes = range(1, int(effective.max(initial=1)) + 1)
    terms = [np.ones(n_graphs, dtype=bool)]
    for n in range(1, order + 1):
        for regions in itertools.combinations(range(n_regions), n):
            chosen = effective[:, list(regions)]
            terms += [(chosen == codes).all(axis=1) for codes in itertools.product(schemes, repeat=n)]
    return np.stack(terms, axis=1).astype(np.float64)


def _solved(design: Floats, measured: Floats, weights: Floats) -> Floats:
    scaled = design * weights[:, None]
    squares = scaled.T @ scaled + _RIDGE * np.eye(design.shape[1])
    return np.asarray(np.linalg.solve(squares, scaled.T @ (measured * weights)), dtype=np.float64)


def _left_out(design: Floats, measured: Floats, weights: Floats) -> Floats:
    """What the other folds predict of each graph; shape (G,)."""
    fold = np.random.default_rng(0).integers(0, _N_FOLDS, len(measured))
    predicted = np.empty(len(measured))
    for number in range(_N_FOLDS):
        others = fold != number
        solved = _solved(design[others], measured[others], weights[others])
        predicted[~others] = design[~others] @ solved
    return predicted
