import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.rounding import descent
from autoquant.rounding.descent import descend
from autoquant.rounding.problem import Floats, Problem
from tests.models import floats
from tests.unit.rounding.problems import a_problem, moment_of, problems

TOLERANCE = 1 + 1e-4
"""Of errors in float32."""


def descended(problem: Problem) -> Floats:
    """From the nearest integers, wherever it leads."""
    bounds = (np.float32(bound) for bound in (problem.dtype.lowest, problem.dtype.highest))
    return descend(problem, problem.nearest(problem.weight), *map(np.asarray, bounds))


@given(problems())
def test_errors_never_rise(problem: Problem) -> None:
    before = problem.errors(problem.nearest(problem.weight))
    assert (problem.errors(descended(problem)) <= before * TOLERANCE).all()


@given(problems(max_inputs=12))
def test_no_change_of_a_single_integer_lowers_an_error_any_further(problem: Problem) -> None:
    """Once descent has come to its end, for which one problem in thousands takes more sweeps than it is given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descent, "_N_SWEEPS", 200)
        found = descended(problem)
    errors = problem.errors(found)
    for row in range(found.shape[1]):
        for change in (-1, 1):
            other = found.copy()
            other[:, row] = np.clip(other[:, row] + change, problem.dtype.lowest, problem.dtype.highest)
            assert (problem.errors(other) * TOLERANCE >= errors).all()


@given(problems(), st.integers(0, 3))
def test_integers_stay_within_their_bounds(problem: Problem, reach: int) -> None:
    start = problem.nearest(problem.weight)
    found = descend(problem, start, start - reach, start)
    assert (found <= start).all()
    assert (found >= start - reach).all()


@pytest.mark.parametrize("n_inputs", [128, 129, 300])
def test_blocks_of_rows_know_of_each_other(n_inputs: int) -> None:
    problem = a_problem(floats(n_inputs, 6, seed=1) * 9, moment_of(floats(2 * n_inputs, n_inputs) + 1))
    found, one_by_one = problem.errors(descended(problem)), problem.errors(naive(problem))
    np.testing.assert_allclose(found, one_by_one, rtol=1e-3)


def naive(problem: Problem) -> Floats:
    """One group with unit scale, in float64, without blocks."""
    weight, moment = problem.weight[0].astype(np.float64), problem.moment[0].astype(np.float64)
    integers = np.rint(weight)
    for _ in range(20):
        for row in range(len(weight)):
            slopes = moment[row] @ (weight - integers)
            integers[row] = np.clip(integers[row] + np.rint(slopes / moment[row, row]), -128, 127)
    return np.asarray(integers[np.newaxis], np.float32)
