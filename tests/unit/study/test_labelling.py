import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.labelling import Labelling


@given(st.integers(1, 8), st.floats(0, 0.6), st.integers(0, 999))
def test_it_finds_the_labels_of_lowest_cost(n_regions: int, share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = [pair for pair in itertools.combinations(range(n_regions), 2) if rng.random() < share]
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    own, border = rng.standard_normal((3, n_regions)), rng.standard_normal((3, len(edges)))
    labels = Labelling(n_regions, edges).solve(own, border)

    def cost(candidates: np.ndarray, i: int) -> np.ndarray:
        unlike = candidates[:, edges[:, 0]] != candidates[:, edges[:, 1]]
        return np.asarray(candidates @ own[i] + unlike @ border[i])

    every = np.array(list(itertools.product([False, True], repeat=n_regions)))
    for i in range(3):
        assert np.isclose(cost(labels[i : i + 1], i)[0], cost(every, i).min())


def test_chains_are_narrow_and_complete_graphs_are_not() -> None:
    chain = np.array([(i, i + 1) for i in range(199)])
    complete = np.array(list(itertools.combinations(range(20), 2)))
    assert Labelling(200, chain).width == 1
    assert Labelling(200, chain).is_narrow
    assert not Labelling(20, complete).is_narrow


def test_costs_that_no_border_outweighs_leave_the_others_their_digits() -> None:
    labels = Labelling(2, np.array([[0, 1]])).solve(np.array([[-1e12, 1e-5]]), np.array([[2e-5]]))
    assert labels.tolist() == [[True, True]]
