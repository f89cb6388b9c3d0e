import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.cut import Cut
from autoquant.study.labelling import Labelling


@given(st.integers(1, 8), st.floats(0, 1), st.integers(0, 999))
def test_where_no_border_pays_it_finds_the_labels_of_lowest_cost(n_regions: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [pair for pair in itertools.permutations(range(n_regions), 2) if rng.random() < share / 2]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    own, border = rng.standard_normal((4, n_regions)), rng.exponential(0.3, (4, len(edges)))
    found, exact = (solver(n_regions, edges).solve(own, border) for solver in (Cut, Labelling))
    np.testing.assert_array_equal(found, exact)


def test_a_border_that_pays_counts_as_none() -> None:
    edges = np.array([[0, 1]])
    found = Cut(2, edges).solve(np.array([[-1.0, 0.1], [0.0, 0.0]]), np.array([[-5.0], [-5.0]]))
    assert found.tolist() == [[True, False], [False, False]]


def test_without_regions_that_touch_each_decides_for_itself() -> None:
    found = Cut(3, np.zeros((0, 2), dtype=np.int64)).solve(np.array([[-1.0, 2.0, -1e-3]]), np.zeros((1, 0)))
    assert found.tolist() == [[True, False, True]]


def test_a_region_that_must_stay_float_spoils_no_other_decision() -> None:
    edges = np.array([[0, 1], [1, 2]])
    own, border = np.array([[-0.3, 1e9, -1e-3]]), np.array([[0.01, 0.01]])
    found, exact = (solver(3, edges).solve(own, border) for solver in (Cut, Labelling))
    np.testing.assert_array_equal(found, exact)
    assert found.tolist() == [[True, False, False]]
