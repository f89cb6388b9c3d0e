import numpy as np

from autoquant.study.moves import unseen
from tests.unit.study.layouts import a_layout, every_assignment

LAYOUT = a_layout(6)


def test_the_last_assignment_that_is_not_known_is_found_however_far_it_is() -> None:
    every = every_assignment(LAYOUT)
    known, start, last = {codes.tobytes() for codes in every[:-1]}, every[0], every[-1]
    found = unseen(np.random.default_rng(0), start, LAYOUT.allowed, known)
    assert found is not None
    assert found.tolist() == last.tolist()
    assert unseen(np.random.default_rng(0), start, LAYOUT.allowed, known | {last.tobytes()}) is None


def test_what_is_new_is_near_the_start_and_allowed() -> None:
    start = np.array([2, 1, 0, 2, 1, 0])
    for seed in range(20):
        found = unseen(np.random.default_rng(seed), start, LAYOUT.allowed, {start.tobytes()})
        assert found is not None
        assert 1 <= (found != start).sum() <= 3
        assert LAYOUT.allowed[np.arange(6), found].all()
