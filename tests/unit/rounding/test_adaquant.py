from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.rounding.adaquant import round_and_scale
from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.problem import Problem, damped
from tests.models import floats
from tests.unit.rounding.problems import a_problem, moment_of, problems


def errors(problem: Problem, *, is_shared: bool) -> np.ndarray:
    integers, scale = round_and_scale(problem, is_shared=is_shared)
    return replace(problem, scale=scale).errors(integers)


@given(problems())
def test_the_error_of_a_channel_is_never_above_that_of_error_feedback_or_the_nearest_integers(problem: Problem) -> None:
    found = errors(problem, is_shared=False)
    assert (found <= problem.errors(round_with_feedback(problem))).all()
    assert (found <= problem.errors(problem.nearest(problem.weight))).all()


@given(problems())
def test_with_one_scale_it_is_the_sum_that_is_not_above(problem: Problem) -> None:
    shared = replace(problem, scale=np.full_like(problem.scale, problem.scale.max()))
    integers, scale = round_and_scale(shared, is_shared=True)
    assert len(np.unique(scale)) == 1
    found = replace(shared, scale=scale).errors(integers).sum()
    assert found <= shared.errors(shared.nearest(shared.weight)).sum()


@given(problems(), st.booleans())
def test_integers_can_be_stored_and_scales_are_near_to_the_given_ones(problem: Problem, is_shared: bool) -> None:
    shared = replace(problem, scale=np.full_like(problem.scale, problem.scale.max()))
    integers, scale = round_and_scale(shared, is_shared=is_shared)
    np.testing.assert_array_equal(integers, integers.astype(problem.dtype.numpy))
    assert scale.dtype == np.float32
    assert (scale >= shared.scale / 2.001).all()
    assert (scale <= shared.scale * 2.001).all()


@given(problems())
def test_it_finds_the_same_again(problem: Problem) -> None:
    for first, second in zip(*(round_and_scale(problem, is_shared=False) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(first, second)


def test_a_scale_that_makes_every_weight_exact_is_found() -> None:
    integers = np.array([[4.0, -3.0], [7.0, 2.0], [1.0, 5.0]])
    problem = a_problem(integers * 1.03, np.eye(3))
    found, scale = round_and_scale(problem, is_shared=False)
    np.testing.assert_array_equal(found[0], integers)
    np.testing.assert_allclose(scale, 1.03, rtol=1e-6)


def test_the_scale_of_given_integers_is_the_least_squares_one() -> None:
    """``w = 1.2``, ``q = 1``, whatever ``H``: the scale is 1.2; two equal weights share it."""
    problem = a_problem([[1.2], [1.2]], [[2.0, 0.5], [0.5, 1.0]])
    found, scale = round_and_scale(problem, is_shared=False)
    assert found.ravel().tolist() == [1, 1]
    np.testing.assert_allclose(scale, 1.2, rtol=1e-6)


def test_a_channel_of_zeros_keeps_its_scale() -> None:
    problem = a_problem(np.zeros((4, 2)), np.eye(4), scale=0.5)
    found, scale = round_and_scale(problem, is_shared=False)
    assert not found.any()
    np.testing.assert_array_equal(scale, problem.scale)


@pytest.mark.parametrize("n_products", [1, 3])
def test_inputs_that_are_always_zero_or_few_give_finite_numbers(n_products: int) -> None:
    inputs = floats(n_products, 8)
    inputs[:, :5] = 0
    for moment in (moment_of(inputs), damped(np.zeros((1, 8, 8), np.float32), n_products)):
        found, scale = round_and_scale(a_problem(floats(8, 3, seed=1) * 20, moment), is_shared=False)
        assert np.isfinite(found).all()
        assert np.isfinite(scale).all()


@given(problems(), st.integers(1, 4))
def test_parts_of_the_inputs_share_their_scales(problem: Problem, n_parts: int) -> None:
    whole = replace(
        problem,
        weight=problem.weight.repeat(n_parts, axis=0) + np.arange(n_parts * len(problem.weight))[:, None, None] % 2,
        moment=problem.moment.repeat(n_parts, axis=0),
        scale=problem.scale.repeat(n_parts, axis=0),
        zero_point=problem.zero_point.repeat(n_parts, axis=0),
        n_parts=n_parts,
    )
    integers, scale = round_and_scale(whole, is_shared=False)
    by_part = scale.reshape(-1, n_parts, *scale.shape[1:])
    np.testing.assert_array_equal(by_part, by_part[:, :1].repeat(n_parts, axis=1))
    found, first = replace(whole, scale=scale).errors(integers), whole.errors(round_with_feedback(whole))
    assert (whole.over_parts(found) <= whole.over_parts(first)).all()
