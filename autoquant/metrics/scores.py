"""Scores of single samples, from 0 to 1."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["accuracy", "agreement", "cosine"]

Array = npt.NDArray[np.generic]
Scores = npt.NDArray[Any]


def cosine(reference: Array, candidate: Array) -> float:
    """Cosine of the angle between two outputs as vectors of what is finite in float's, negative values included.

    Args:
        reference: Float's output.
        candidate: The candidate's.

    Returns:
        1 for equal outputs, also where both are 0 everywhere; 0 where only one is, where shapes differ, and where the
        candidate is not finite in all places in which float is, or is another value than float in others.
    """
    if reference.shape != candidate.shape:
        return 0.0
    is_finite = np.isfinite(reference)
    if not np.array_equal(reference[~is_finite], candidate[~is_finite], equal_nan=True):
        return 0.0
    a, b = (values[is_finite].astype(np.float64) for values in (reference, candidate))
    if not np.isfinite(b).all():
        return 0.0
    if np.array_equal(a, b):
        return 1.0
    a_norm, b_norm = (_norm(values) for values in (a, b))
    if a_norm == 0 or b_norm == 0:
        return 0.0
    return float(np.clip(np.dot(a / a_norm, b / b_norm), -1, 1))


def agreement(reference: Scores, candidate: Scores, k: int, axis: int) -> float:
    """Share of positions where float's class is among the candidate's ``k`` highest scores.

    Of equal scores the first counts as the highest, as in ``argmax``; NaN never agrees. Positions at which float has
    NaN do not count.

    Args:
        reference: Float's scores.
        candidate: The candidate's; in another shape they agree nowhere, without any position that counts everywhere.
        k: How many of the highest.
        axis: Of the classes; every index along the others is a position.
    """
    if reference.shape != candidate.shape:
        return 0.0
    if not reference.size:
        return 1.0
    scores = np.moveaxis(candidate, axis, -1)
    classes = np.moveaxis(reference, axis, -1).argmax(axis=-1)[..., np.newaxis]
    own = np.take_along_axis(scores, classes, axis=-1)
    earlier = np.arange(scores.shape[-1]) < classes
    n_above = np.sum((scores > own) | ((scores == own) & earlier), axis=-1)
    agrees = (n_above < k) & ~np.isnan(scores).any(axis=-1)
    counts = ~np.isnan(reference).any(axis=axis)
    return float(np.mean(agrees[counts])) if counts.any() else 1.0


def accuracy(output: Array, label: Array, axis: int) -> float:
    """Share of positions with the class of the label; NaN is never right.

    Args:
        output: Scores, or classes where they are no floats.
        label: The classes of this sample, one a position; in another number they match nowhere, none match none.
        axis: Of the scores of a position.
    """
    if not output.size and not label.size:
        return 1.0
    is_scores = output.dtype.kind == "f"
    found: Array = output.argmax(axis=axis) if is_scores else output
    if found.size != label.size:
        return 0.0
    is_right = found.reshape(-1) == label.reshape(-1)
    if is_scores:
        is_right &= ~np.isnan(output).any(axis=axis).reshape(-1)
    return float(np.mean(is_right))


def _norm(values: npt.NDArray[np.float64]) -> float:
    largest = float(np.abs(values).max(initial=0.0))
    return largest * math.sqrt(float(np.square(values / largest).sum())) if largest > 0 else 0.0
