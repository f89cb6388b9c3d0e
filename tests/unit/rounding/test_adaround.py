from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.scheme import DType
from autoquant.rounding.adaround import round_up_or_down
from autoquant.rounding.problem import Floats, Problem, damped
from tests.models import floats
from tests.unit.rounding.problems import a_problem, moment_of, problems


def nearest(problem: Problem) -> Floats:
    return problem.nearest(problem.weight)


@given(problems())
def test_the_error_is_never_above_that_of_the_nearest_integers(problem: Problem) -> None:
    assert (problem.errors(round_up_or_down(problem)) <= problem.errors(nearest(problem))).all()


@given(problems())
def test_every_integer_is_next_to_its_weight_and_can_be_stored(problem: Problem) -> None:
    found = round_up_or_down(problem)
    np.testing.assert_array_equal(found, found.astype(problem.dtype.numpy))
    exact = np.clip(problem.weight / problem.scale + problem.zero_point, problem.dtype.lowest, problem.dtype.highest)
    assert (np.abs(found - exact) <= 1).all()


@given(problems())
def test_it_finds_the_same_again(problem: Problem) -> None:
    np.testing.assert_array_equal(round_up_or_down(problem), round_up_or_down(problem))


@given(st.integers(0, 1000))
def test_uncorrelated_inputs_are_best_rounded_to_the_nearest_integers(seed: int) -> None:
    problem = a_problem(floats(9, 3, seed=seed) * 20, np.diag(np.exp(floats(9, seed=seed))))
    np.testing.assert_array_equal(round_up_or_down(problem), nearest(problem))


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, [0, 0]), (0.9, [1, 0]), (-0.9, [0, 0])])
def test_one_of_two_weights_goes_up_where_their_inputs_are_alike(correlation: float, expected: list[int]) -> None:
    """Down errs by 0.45 and 0.4 in the same direction; up and down by -0.55 and 0.4."""
    problem = a_problem([[0.45], [0.4]], [[1, correlation], [correlation, 1]])
    assert round_up_or_down(problem).ravel().tolist() == expected


def test_on_few_weights_it_is_mostly_the_best_of_all_choices() -> None:
    ratios = []
    for seed in range(20):
        x = floats(30, 6, seed=seed) @ floats(6, 6, seed=seed) + 1
        problem = a_problem(floats(6, 4, seed=seed) * 5, moment_of(x))
        choices = [np.floor(problem.weight) + np.reshape(each, (6, 1)) for each in product((0, 1), repeat=6)]
        best = np.min([problem.errors(each.astype(np.float32)) for each in choices], axis=0)
        ratios.append(problem.errors(round_up_or_down(problem)) / best)
    assert np.min(ratios) > 0.999
    assert np.median(ratios) < 1.001
    assert np.mean(ratios) < 1.1


@pytest.mark.parametrize("n_products", [1, 3])
def test_inputs_that_are_always_zero_or_few_give_finite_integers(n_products: int) -> None:
    inputs = floats(n_products, 8)
    inputs[:, :5] = 0
    for moment in (moment_of(inputs), damped(np.zeros((1, 8, 8), np.float32), n_products)):
        problem = a_problem(floats(8, 3, seed=1) * 20, moment)
        assert np.isfinite(round_up_or_down(problem)).all()


def test_a_weight_beyond_what_can_be_stored_is_clipped() -> None:
    problem = a_problem([[300.0], [-300.0], [1.4]], np.eye(3), dtype=DType.S8)
    assert round_up_or_down(problem).ravel().tolist() == [127, -128, 1]
