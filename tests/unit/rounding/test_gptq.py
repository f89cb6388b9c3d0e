import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.rounding.gptq import round_with_feedback
from autoquant.rounding.problem import Floats, Problem
from tests.models import floats
from tests.unit.rounding.problems import a_problem, least_error, moment_of, problems

TOLERANCE = 1 + 1e-3
"""Of errors in float32."""


def rounded(problem: Problem) -> Floats:
    return problem.nearest(problem.weight)


@given(problems() | problems(has_own_scales=True))
def test_the_error_is_never_above_that_of_the_nearest_integers(problem: Problem) -> None:
    found = round_with_feedback(problem)
    assert (problem.errors(found) <= problem.errors(rounded(problem))).all()


@given(problems() | problems(has_own_scales=True))
def test_integers_can_be_stored(problem: Problem) -> None:
    found = round_with_feedback(problem)
    np.testing.assert_array_equal(found, found.astype(problem.dtype.numpy))


def test_on_few_weights_it_comes_near_to_the_best_integers() -> None:
    ratios = []
    for seed in range(20):
        x = floats(30, 5, seed=seed) @ floats(5, 5, seed=seed) + 1
        problem = a_problem(floats(5, 8, seed=seed) * 5, moment_of(x))
        best = least_error(problem)
        ratios.append([problem.errors(each) / best for each in (round_with_feedback(problem), rounded(problem))])
    found, nearest = np.mean(ratios, axis=(0, 2, 3, 4))
    assert np.min(ratios) > 1 / TOLERANCE
    assert found < 1.2
    assert nearest > 2


@given(st.integers(0, 1000))
def test_uncorrelated_inputs_are_best_rounded_to_the_nearest_integers(seed: int) -> None:
    problem = a_problem(floats(9, 3, seed=seed) * 20, np.diag(np.exp(floats(9, seed=seed))))
    np.testing.assert_array_equal(round_with_feedback(problem), rounded(problem))


@pytest.mark.parametrize(("correlation", "expected"), [(0.0, [0, 0]), (0.9, [1, 0]), (-0.9, [0, 0])])
def test_two_weights_make_up_for_each_other_as_far_as_their_inputs_are_alike(
    correlation: float, expected: list[int]
) -> None:
    problem = a_problem([[0.45], [0.4]], [[1, correlation], [correlation, 1]])
    found = round_with_feedback(problem)
    assert found.ravel().tolist() == expected
    np.testing.assert_allclose(problem.errors(found), least_error(problem), rtol=1e-5)


@given(st.integers(2, 6), st.integers(0, 1000))
def test_the_error_is_within_the_bound_of_the_nearest_plane(n_inputs: int, seed: int) -> None:
    x = floats(30, n_inputs, seed=seed) @ floats(n_inputs, n_inputs, seed=seed)
    moment = moment_of(x)[0]
    order = np.argsort(np.diag(moment))
    steps = np.diag(np.linalg.cholesky(moment[np.ix_(order, order)].astype(np.float64)))
    problem = a_problem(floats(n_inputs, 5, seed=seed) * 10, moment)
    assert problem.errors(round_with_feedback(problem)).max() <= (steps**2).sum() / 4 * TOLERANCE


@pytest.mark.parametrize("n_inputs", [7, 128, 300])
def test_it_is_the_published_algorithm(n_inputs: int) -> None:
    """Until float32 tips a tie in a column, which changes what follows."""
    x = floats(2 * n_inputs, n_inputs) @ floats(n_inputs, n_inputs, seed=1)
    problem = a_problem(floats(n_inputs, 4, seed=2) * 10, moment_of(x))
    found, nearest, (order, wanted) = round_with_feedback(problem), rounded(problem), published(problem)
    other = problem.stored(np.rint(wanted[np.newaxis]).astype(np.float32))
    expected = np.where(problem.errors(other) < problem.errors(nearest), other, nearest)
    for ours, theirs, values in zip(found[0, order].T, expected[0, order].T, wanted[order].T, strict=True):
        for first in np.flatnonzero(ours != theirs)[:1]:
            assert abs(values[first] % 1 - 0.5) < 1e-4
    np.testing.assert_allclose(problem.errors(found), problem.errors(expected), rtol=0.02)


def published(problem: Problem) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The order of rounding, and what is rounded to the nearest integers.

    One group with unit scale, with the inverse of ``H`` as in section 3 of arXiv 2210.17323, without blocks.
    """
    weight, moment = problem.weight[0].astype(np.float64), problem.moment[0].astype(np.float64)
    order = np.argsort(-np.diag(moment), kind="stable")
    weight, moment = weight[order], moment[np.ix_(order, order)]
    inverse = np.linalg.inv(moment)
    wanted = np.empty_like(weight)
    for i, row in enumerate(order):
        wanted[row] = weight[i]
        weight[i:] -= np.outer(inverse[i:, i], (weight[i] - np.rint(weight[i]).clip(-128, 127)) / inverse[i, i])
        inverse[i:, i:] -= np.outer(inverse[i:, i], inverse[i, i:]) / inverse[i, i]
    return order, wanted


def test_groups_and_output_channels_do_not_know_each_other() -> None:
    x = floats(3, 40, 12) @ floats(12, 12, seed=1)
    moment = moment_of(x)
    together = a_problem(floats(3, 12, 2, seed=2) * 10, moment)
    alone = [a_problem(together.weight[g, :, n : n + 1], moment[g]) for g in range(3) for n in range(2)]
    found = round_with_feedback(together)
    for problem, column in zip(alone, found.swapaxes(1, 2).reshape(6, 12), strict=True):
        np.testing.assert_array_equal(round_with_feedback(problem)[0, :, 0], column)


def test_it_wins_most_where_inputs_are_alike() -> None:
    x = floats(200, 64) + 3
    problem = a_problem(floats(64, 8, seed=1) * 20, moment_of(x))
    nearest = problem.errors(rounded(problem))
    assert problem.errors(round_with_feedback(problem)).mean() < nearest.mean() / 2


@pytest.mark.parametrize("n_products", [1, 8, 64, 256])
def test_few_products_are_not_trusted(n_products: int) -> None:
    x, weight = floats(n_products, 64), floats(64, 32, seed=1) * 20
    known, true = a_problem(weight, moment_of(x)), a_problem(weight, np.eye(64))
    assert true.errors(round_with_feedback(known)).sum() < 1.4 * true.errors(rounded(true)).sum()
