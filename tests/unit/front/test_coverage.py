import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.front.coverage import Demands, covering, evenly_spread

SNR = Demands(0.0, -60.0, 20.0)
RATIO = Demands(1.0, 0.3)
points = st.lists(st.tuples(st.floats(-80, -5), st.floats(0.3, 0.99)), min_size=1, max_size=8, unique=True)


def chosen(found: list[tuple[float, float]], limit: int, errors: tuple[float, float] = (0.0, 0.0)) -> list[int]:
    return covering(np.array(found), np.tile(errors, (len(found), 1)), [SNR, RATIO], limit)


def n_met(found: list[tuple[float, float]], which: tuple[int, ...]) -> int:
    """Of the same demands."""
    drawn = evenly_spread(4096, 2)
    snr, ratio = SNR.at(drawn[:, 0]), RATIO.at(drawn[:, 1])
    return int(np.any([(found[i][0] <= snr) & (found[i][1] <= ratio) for i in which], axis=0).sum())


@given(found=points, limit=st.integers(1, 3))
@settings(max_examples=25)
def test_as_much_is_met_as_a_greedy_choice_guarantees(found: list[tuple[float, float]], limit: int) -> None:
    best = max(n_met(found, which) for which in itertools.combinations(range(len(found)), min(limit, len(found))))
    assert n_met(found, tuple(chosen(found, limit))) >= (1 - 1 / math.e) * best


@given(found=points)
def test_all_are_taken_where_there_is_room_and_the_first_one_meets_most(found: list[tuple[float, float]]) -> None:
    order = chosen(found, 20)
    assert sorted(order) == list(range(len(found)))
    assert n_met(found, (order[0],)) == max(n_met(found, (i,)) for i in range(len(found)))


def test_what_is_nearly_as_good_is_taken_as_a_spare_only_where_estimates_err() -> None:
    found = [(-40.0, 0.5), (-40.0, 0.501), (-55.0, 0.9)]
    assert chosen(found, 2) == [0, 2]
    assert chosen(found, 2, (15.0, 0.3)) == [0, 1]


def test_a_point_that_meets_nothing_comes_last() -> None:
    assert chosen([(10.0, 0.4), (-20.0, 1.2), (-30.0, 0.6)], 3) == [2, 0, 1]


@pytest.mark.parametrize("tail", [0.0, 20.0])
def test_demands_are_as_frequent_as_they_say(tail: float) -> None:
    asked = Demands(0.0, -60.0, tail).at(evenly_spread(20_000, 1)[:, 0])
    assert np.mean(asked < -60) == pytest.approx(tail / (60 + tail), abs=2e-3)
    assert np.mean(asked > -30) == pytest.approx(30 / (60 + tail), abs=2e-3)
    if tail:
        assert -asked[asked < -60].mean() == pytest.approx(60 + tail, rel=0.01)


def test_a_demand_that_is_certain_is_the_only_one() -> None:
    assert Demands(0.4, 0.5).at(np.array([0.0, 0.5, 1.0])).tolist() == [0.4, 0.4, 0.4]


@given(n_columns=st.integers(1, 6))
def test_what_is_drawn_fills_the_cube_evenly(n_columns: int) -> None:
    drawn = evenly_spread(4096, n_columns)
    assert drawn.shape == (4096, n_columns)
    for corner in itertools.product((False, True), repeat=n_columns):
        share = np.mean(((drawn > 0.5) == corner).all(axis=1))
        assert share == pytest.approx(2.0**-n_columns, abs=0.01)


def test_what_meets_nothing_comes_by_how_little_is_missing() -> None:
    assert chosen([(30.0, 0.5), (3.0, 0.5), (20.0, 0.4)], 3) == [1, 2, 0]


def test_what_is_known_exactly_and_asked_for_by_everybody_leaves_no_half_of_a_demand() -> None:
    losses = np.array([[0.0, 0.5], [0.0, 0.501], [0.0, 0.9]])
    assert covering(losses, np.zeros((3, 2)), [Demands(0.0, 0.0), RATIO], 1) == [0]
    assert covering(
        np.column_stack([[-40.0, -40.1, -10.0], losses]), np.zeros((3, 3)), [SNR, Demands(0.0, 0.0), RATIO], 2
    ) == [1, 0]


def test_half_of_the_demands_are_about_one_of_several_alternatives() -> None:
    """The second point is slow in one column, and the only accurate one that saves in the other."""
    found = np.array([(-26.0, 0.7, 0.8), (-43.0, 0.85, 1.1), (-28.0, 0.72, 0.82), (-30.0, 0.8, 0.9)])
    slow = Demands(1.1, 0.7)
    asked = [SNR, slow, slow]
    assert covering(found, np.zeros(found.shape), asked, 2) == [0, 3]
    assert covering(found, np.zeros(found.shape), asked, 2, [1, 2]) == [0, 1]


def test_a_single_alternative_is_always_asked_for() -> None:
    found = np.array([(-26.0, 0.7), (-43.0, 0.85), (-50.0, 1.2)])
    plain = covering(found, np.zeros(found.shape), [SNR, RATIO], 3)
    assert covering(found, np.zeros(found.shape), [SNR, RATIO], 3, [1]) == plain
