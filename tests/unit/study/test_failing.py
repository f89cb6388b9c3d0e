import numpy as np
import pytest

from autoquant.study.failing import Suspects
from autoquant.study.layout import Codes
from tests.unit.study.layouts import a_layout

LAYOUT = a_layout(4)


def codes(*rows: tuple[int, int, int, int]) -> Codes:
    return np.array(rows, dtype=np.int64).reshape(-1, 4)


def test_what_nobody_ran_shares_the_blame() -> None:
    found = Suspects.of(LAYOUT, codes((1, 1, 1, 0)), codes((1, 0, 0, 0)))
    assert np.argwhere(found.pairs[0]).tolist() == [[1, 1], [2, 1]]
    assert not found.certain.any()
    chances = found.chances(LAYOUT, codes((1, 0, 0, 2), (0, 1, 0, 0), (0, 1, 1, 0), (0, 2, 2, 0)))
    np.testing.assert_allclose(chances, [1.0, 0.55, 0.1, 1.0])


def test_a_cause_that_is_left_alone_twice_is_certain() -> None:
    once = Suspects.of(LAYOUT, codes((1, 1, 1, 0)), codes((1, 0, 1, 0)))
    assert not once.certain.any()
    assert once.chances(LAYOUT, codes((0, 1, 0, 0)))[0] == pytest.approx(0.1)
    twice = Suspects.of(LAYOUT, codes((1, 1, 1, 0), (0, 1, 0, 0)), codes((1, 0, 1, 0)))
    assert np.argwhere(twice.certain).tolist() == [[1, 1]]


def test_a_failure_of_parts_that_run_elsewhere_accuses_none_of_them() -> None:
    found = Suspects.of(LAYOUT, codes((1, 1, 0, 0)), codes((1, 0, 0, 0), (0, 1, 0, 0)))
    assert len(found.pairs) == 0
    assert found.chances(LAYOUT, codes((1, 1, 0, 0)))[0] == 1


def test_several_failures_add_to_the_doubt() -> None:
    found = Suspects.of(LAYOUT, codes((1, 1, 0, 0), (1, 0, 2, 0)), codes())
    assert found.chances(LAYOUT, codes((1, 0, 0, 0)))[0] == pytest.approx(0.55**2)


def test_failures_that_do_not_say_that_it_was_the_assignment_count_less() -> None:
    """Two interruptions had left a scheme of a region alone for good."""
    alone = (0, 1, 0, 0)
    once = Suspects.of(LAYOUT, codes(alone), codes(), [False])
    assert once.chances(LAYOUT, codes(alone))[0] == pytest.approx(0.5)
    assert not Suspects.of(LAYOUT, codes(*3 * [alone]), codes(), [False] * 3).certain.any()
    assert np.argwhere(Suspects.of(LAYOUT, codes(*3 * [alone]), codes(), [True, False, False]).certain).tolist() == [
        [1, 1]
    ]


def test_without_failures_everything_runs() -> None:
    found = Suspects.of(LAYOUT, codes(), codes((1, 1, 1, 1)))
    np.testing.assert_array_equal(found.chances(LAYOUT, codes((1, 1, 1, 1), (0, 0, 0, 0))), [1, 1])
    assert not found.certain.any()
    assert found.chances(LAYOUT, codes()).shape == (0,)
