"""Text out of the scores of a model trained with CTC."""

from collections.abc import Sequence

import numpy as np

__all__ = ["BLANK", "decode", "edit_distance"]

BLANK = 0


def decode(scores: np.ndarray) -> list[int]:
    """The best path: the highest class of each step, repetitions once, without blanks.

    Args:
        scores: Shape (steps, classes), class 0 the blank.

    Returns:
        Classes in order.

    References:
        Graves et al., "Connectionist Temporal Classification", ICML 2006, section 3.2.
    """
    path = scores.argmax(axis=-1)
    begins = np.concatenate([[True], path[1:] != path[:-1]]) if len(path) else np.zeros(0, bool)
    return [int(c) for c in path[begins & (path != BLANK)]]


def edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Fewest insertions, deletions and replacements that turn one into the other (Levenshtein)."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]
