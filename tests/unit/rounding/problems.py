"""Small problems with correlated inputs."""

from itertools import product

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from autoquant.domain.scheme import DType
from autoquant.rounding.problem import Floats, Problem, damped

__all__ = ["a_problem", "least_error", "moment_of", "problems"]


def moment_of(inputs: Floats) -> Floats:
    """Damped, of inputs of shape (P, D) or (G, P, D)."""
    by_group = inputs if inputs.ndim == 3 else inputs[np.newaxis]
    n_products = by_group.shape[1]
    return damped((by_group.swapaxes(1, 2) @ by_group / n_products).astype(np.float32), n_products)


def a_problem(
    weight: npt.ArrayLike, moment: npt.ArrayLike, *, scale: float = 1.0, zero_point: int = 0, dtype: DType = DType.S8
) -> Problem:
    """Of one group where the weight has two dimensions."""
    columns, moments = (np.asarray(each, np.float32) for each in (weight, moment))
    columns = columns if columns.ndim == 3 else columns[np.newaxis]
    shape = (len(columns), 1, columns.shape[2])
    return Problem(
        weight=columns,
        moment=np.broadcast_to(moments, (len(columns), columns.shape[1], columns.shape[1])),
        scale=np.full(shape, scale, np.float32),
        zero_point=np.full(shape, zero_point, np.float32),
        dtype=dtype,
    )


@st.composite
def problems(draw: st.DrawFn, max_inputs: int = 40, *, has_own_scales: bool = False) -> Problem:
    """Inputs of any rank, with a mean of their own; every scale suits the weights or is finer, so that some clip.

    Those of the inputs of each product have scales of their own on demand, some of them negative.
    """
    n_groups, n_inputs, n_outputs = (draw(st.integers(1, n)) for n in (3, max_inputs, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_products = draw(st.integers(1, 3 * n_inputs))
    inputs = rng.standard_normal((n_groups, n_products, n_inputs)) @ rng.standard_normal((n_groups, n_inputs, n_inputs))
    inputs = (inputs + draw(st.sampled_from([0, 3]))) * draw(st.sampled_from([1e-12, 1.0, 1e9]))
    weight = rng.standard_normal((n_groups, n_inputs, n_outputs)).astype(np.float32)
    dtype = draw(st.sampled_from(DType))
    bound = 2 ** (dtype.bits - 1) - 1
    scale = np.abs(weight).max(axis=1, keepdims=True) / bound * draw(st.sampled_from([1.0, 0.6, 8.0]))
    zero_point = np.full_like(scale, 0 if dtype.is_signed else bound)
    if has_own_scales:
        scale = scale * rng.choice(np.array([-2, -1, 0.5, 1], np.float32), weight.shape)
    return Problem(
        weight=weight, moment=moment_of(inputs.astype(np.float32)), scale=scale, zero_point=zero_point, dtype=dtype
    )


def least_error(problem: Problem) -> npt.NDArray[np.float64]:
    """The least error of each column, of all integers less than three from the weight; shape (G, 1, N)."""
    start: Floats = np.floor(problem.weight / problem.scale) - 2 + problem.zero_point
    offsets = product(range(6), repeat=problem.weight.shape[1])
    near = (start + np.array(each, np.float32)[:, np.newaxis] for each in offsets)
    within = (np.clip(each, problem.dtype.lowest, problem.dtype.highest) for each in near)
    return np.asarray(np.min([problem.errors(each) for each in within], axis=0))
