"""Integers that are improved one by one, each given all others of its output channel."""

import numpy as np

from autoquant.rounding.problem import Floats, Problem

__all__ = ["descend"]

_BLOCK = 128
"""Rows that are looked at one by one before a product of matrices tells the others of them."""
_N_SWEEPS = 20
"""Few change after ten."""


def descend(problem: Problem, start: Floats, lowest: Floats, highest: Floats) -> Floats:
    """Integers from which no change of a single one lowers an error any further, or nearly so.

    The error is quadratic in each integer, so that the best one within bounds is the bound or the integer that is
    nearest to the minimum: coordinate descent needs no gradient steps. A change always lowers the error.

    Args:
        problem: What is minimised.
        start: Integers within the bounds, shape (G, D, N).
        lowest: Of each integer, broadcast to the shape of ``start``.
        highest: Like ``lowest``.
    """
    low, high = (np.broadcast_to(bound, start.shape) for bound in (lowest, highest))
    integers = start.copy()
    errors = problem.rest(integers, slice(None))
    for _ in range(_N_SWEEPS):
        before = integers.copy()
        for first in range(0, start.shape[1], _BLOCK):
            rows = slice(first, first + _BLOCK)
            slopes = problem.moment[:, rows] @ errors
            _descend_rows(problem, rows, slopes, integers, (low, high))
            errors[:, rows] = problem.rest(integers[:, rows], rows)
        if np.array_equal(integers, before):
            break
    return integers


def _descend_rows(
    problem: Problem, rows: slice, slopes: Floats, integers: Floats, bounds: tuple[Floats, Floats]
) -> None:
    """Improve some rows in place; ``slopes`` are theirs of ``H e``."""
    moment, found = problem.moment[:, rows, rows], integers[:, rows]
    low, high = (bound[:, rows] for bound in bounds)
    for k in range(found.shape[1]):
        row = slice(k, k + 1)
        wanted = found[:, row] + np.rint(slopes[:, row] / moment[:, row, row] / problem.scale)
        better = np.clip(wanted, low[:, row], high[:, row])
        slopes[:, k + 1 :] += moment[:, k + 1 :, row] * (problem.scale * (found[:, row] - better))
        found[:, row] = better
