"""Rounding with scales of its own: integers for the scale and the scale for the integers, in turns."""

from dataclasses import replace

import numpy as np

from autoquant.rounding.descent import descend
from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.problem import Floats, Problem

__all__ = ["round_and_scale"]

_N_TURNS = 3
_LARGEST_STEP = 2.0
"""Between the scale of the weights' extremes and that which is learned: a scale of a few bits is no longer that one."""


def round_and_scale(problem: Problem, *, is_shared: bool) -> tuple[Floats, Floats]:
    """Integers and scales whose error is at most that of the nearest integers on the given scales.

    Both steps have closed forms: the scale ``w^T H q / q^T H q`` of given integers ``q``, and the best integer given
    all others. They are begun with error feedback and none raises the error. Zero points stay, and ranges of
    activations: an operator's input is that of others too.

    Args:
        problem: With the scales of the weights' extremes.
        is_shared: Whether all output channels have one scale; then it is their sum that is not above.

    Returns:
        Integers as floats, shape (G, D, N), and scales, shape (G, 1, N).

    References:
        Hubara et al., "Improving post training neural quantization: layer-wise calibration and integer programming",
        arXiv 2006.10518, section 3.1.
    """
    start = round_with_feedback(problem)
    lowest, highest = (np.full((1, 1, 1), bound, np.float32) for bound in (problem.dtype.lowest, problem.dtype.highest))
    scaled, integers = problem, start
    for _ in range(_N_TURNS):
        scaled = replace(scaled, scale=_best_scale(scaled, integers, problem.scale, is_shared=is_shared))
        integers = descend(scaled, integers, lowest, highest)
    before, after = (problem.over_parts(of.errors(found)) for of, found in ((problem, start), (scaled, integers)))
    is_better = after.sum() < before.sum() if is_shared else after < before
    return np.where(is_better, integers, start), np.where(is_better, scaled.scale, problem.scale)


def _best_scale(problem: Problem, integers: Floats, first: Floats, *, is_shared: bool) -> Floats:
    """Of given integers, near to the first one; the present one where all are zero."""
    steps = integers - problem.zero_point
    seen = problem.moment @ steps
    wanted, power = (
        np.asarray(np.sum(each * seen, axis=1, keepdims=True, dtype=np.float64)) for each in (problem.weight, steps)
    )
    if is_shared:
        wanted, power = wanted.sum(keepdims=True), power.sum(keepdims=True)
    else:
        wanted, power = problem.over_parts(wanted), problem.over_parts(power)
    best = np.divide(wanted, power, out=problem.scale.astype(np.float64), where=power > 0)
    return np.clip(best, first / _LARGEST_STEP, first * _LARGEST_STEP).astype(np.float32)
