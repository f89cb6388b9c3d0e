"""Rounding with error feedback: what one integer gets wrong, those that follow make up for."""

import numpy as np

from autoquant.rounding.problem import Floats, Problem

__all__ = ["round_with_feedback"]

_BLOCK = 128
"""Rows that are rounded one by one before a product of matrices tells all others of them."""


def round_with_feedback(problem: Problem) -> Floats:
    """Integers whose error is at most that of the nearest ones in every output channel, mostly far below.

    Rows are rounded one after the other, those of the largest inputs first; each takes the value that is best given the
    errors of those before it, all later ones free to be any real numbers. Written with the Cholesky factor of ``H``
    instead of that of its inverse: the same as Babai's nearest plane algorithm.

    Returns:
        Integers as floats, shape (G, D, N).

    References:
        Frantar et al., "GPTQ: Accurate post-training quantization for generative pre-trained transformers", ICLR 2023,
        arXiv 2210.17323. Chen et al., "The geometry of LLM quantization: GPTQ as Babai's nearest plane algorithm",
        arXiv 2507.18553.
    """
    order = np.argsort(np.einsum("gdd->gd", problem.moment), axis=1, kind="stable")  # rounded from its end
    found = np.empty_like(problem.weight)
    np.put_along_axis(found, order[:, :, np.newaxis], _feed_back(problem.ordered(order)), 1)
    return problem.least(problem.nearest(problem.weight), found)


def _feed_back(problem: Problem) -> Floats:
    """Integers of sorted rows, from the last to the first."""
    weight = problem.weight
    n_rows = weight.shape[1]
    factor = np.linalg.cholesky(problem.moment.astype(np.float64)).astype(np.float32)  # lower triangular
    integers, errors = np.empty_like(weight), np.zeros_like(weight)
    for start in reversed(range(0, n_rows, _BLOCK)):
        end = min(start + _BLOCK, n_rows)
        carried = factor[:, end:, start:end].swapaxes(1, 2) @ errors[:, end:]
        for row in reversed(range(start, end)):
            k, here, own = row - start, slice(row, row + 1), problem.row(row)
            wanted = own.weight + carried[:, k : k + 1] / factor[:, here, here]
            integers[:, here] = own.nearest(wanted)
            errors[:, here] = own.weight - own.dequantized(integers[:, here])
            carried[:, :k] += factor[:, here, start:row].swapaxes(1, 2) * errors[:, here]
    return integers
