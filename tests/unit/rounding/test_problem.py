import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.scheme import DType
from autoquant.rounding.problem import damped
from tests.models import floats
from tests.unit.rounding.problems import a_problem


def test_the_error_is_the_mean_square_of_what_the_output_misses() -> None:
    inputs, weight = floats(50, 6), floats(6, 3, seed=1)
    problem = a_problem(weight, inputs.T @ inputs / 50, scale=0.3)
    integers = problem.nearest(problem.weight)
    expected = ((inputs @ (weight - 0.3 * integers[0])) ** 2).mean(axis=0)
    np.testing.assert_allclose(problem.errors(integers)[0, 0], expected, rtol=1e-4)


def test_integers_stay_in_the_range_of_their_type() -> None:
    problem = a_problem([[-300.0, 0.4, 300.0]], [[1.0]], zero_point=10, dtype=DType.U8)
    np.testing.assert_array_equal(problem.nearest(problem.weight), [[[0, 10, 255]]])
    np.testing.assert_array_equal(problem.dequantized(problem.nearest(problem.weight)), [[[-10, 0, 245]]])


def test_of_several_integers_each_column_takes_those_of_the_least_error_and_the_first_of_equal_ones() -> None:
    problem = a_problem([[0.2, 0.7, 0.5]], [[1.0]])
    zeros, ones = np.zeros((1, 1, 3), np.float32), np.ones((1, 1, 3), np.float32)
    np.testing.assert_array_equal(problem.least(zeros, ones), [[[0, 1, 0]]])
    np.testing.assert_array_equal(problem.least(ones, zeros), [[[0, 1, 1]]])


@given(st.integers(1, 12), st.sampled_from([1e-15, 1.0, 1e15]))
def test_one_product_is_enough_for_a_positive_definite_moment(n_inputs: int, size: float) -> None:
    x = (floats(n_inputs, 1, seed=n_inputs) * size).astype(np.float32)
    assert np.linalg.eigvalsh(damped((x @ x.T)[np.newaxis], 1).astype(np.float64)).min() > 0


@pytest.mark.parametrize(("n_products", "share"), [(10**9, 0.01), (2, 0.26), (1, 0.51)])
def test_a_share_of_the_mean_diagonal_of_each_group_is_added_the_fewer_products_the_more(
    n_products: int, share: float
) -> None:
    moment = np.array([np.diag([1, 3]), np.diag([100, 500])], np.float32)
    expected = moment + share * np.array([2 * np.eye(2), 300 * np.eye(2)])
    np.testing.assert_allclose(damped(moment, n_products), expected, rtol=1e-6)


def test_inputs_that_are_always_zero_make_every_error_count_alike() -> None:
    np.testing.assert_array_equal(damped(np.zeros((2, 3, 3), np.float32), 0), [np.eye(3)] * 2)
