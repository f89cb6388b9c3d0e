"""Assignments that are not known yet, where the models have none to propose."""

import itertools
from collections.abc import Set

import numpy as np
import numpy.typing as npt

from autoquant.study.layout import Codes

__all__ = ["unseen"]

_N_MOVES = 100
_MOST_REGIONS = 3


def unseen(rng: np.random.Generator, start: Codes, allowed: npt.NDArray[np.bool_], seen: Set[bytes]) -> Codes | None:
    """An assignment that differs in up to three regions, or else, after many tries, any that is not known.

    Args:
        rng: Which one.
        start: Scheme numbers, shape (R,).
        allowed: Schemes that regions may take, shape (R, S).
        seen: Assignments that are known, as bytes.

    Returns:
        Shape (R,); None where all are known.
    """
    choices = [np.flatnonzero(row) for row in allowed]
    free = [region for region, schemes in enumerate(choices) if len(schemes) > 1]
    for _ in range(_N_MOVES if free else 0):
        changed = start.copy()
        for region in rng.choice(free, size=rng.integers(1, _MOST_REGIONS, endpoint=True)):
            changed[region] = rng.choice(choices[region])
        if changed.tobytes() not in seen:
            return changed
    every = (np.array(codes, dtype=np.int64) for codes in itertools.product(*choices))
    return next((codes for codes in every if codes.tobytes() not in seen), None)
