"""Rounding up or down: the integer below or above each weight, whichever suits the others."""

import numpy as np

from autoquant.rounding.descent import descend
from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.problem import Floats, Problem

__all__ = ["round_up_or_down"]


def round_up_or_down(problem: Problem) -> Floats:
    """Integers next to their weights whose error is at most that of the nearest ones in every output channel.

    The objective is that of AdaRound, quadratic in the integers, so that choices are flipped one by one as long as that
    lowers it, without a relaxation, gradients or a learning rate. That is begun at the nearest integers and at those
    with error feedback, as far as these are next to their weights.

    Returns:
        Integers as floats, shape (G, D, N).

    References:
        Nagel et al., "Up or down? Adaptive rounding for post-training quantization", ICML 2020, arXiv 2004.10568,
        equation 20 without the activation function.
    """
    exact = problem.weight / problem.scale
    low, high = (problem.stored(side(exact)) for side in (np.floor, np.ceil))
    nearest = problem.nearest(problem.weight)
    starts = nearest, np.clip(round_with_feedback(problem), low, high)
    return problem.least(nearest, *(descend(problem, start, low, high) for start in starts))
