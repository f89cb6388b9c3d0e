import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.measurement.intervals import STOPPED_LEVEL, SessionInterval, are_narrow, session_intervals

medians = st.lists(st.floats(0.01, 100), min_size=2, max_size=8)


@given(st.dictionaries(st.text(), medians, min_size=1, max_size=5))
def test_an_interval_holds_its_value_and_the_next_session_is_less_certain(found: dict[str, list[float]]) -> None:
    for key, interval in session_intervals(found).items():
        assert interval.next_low <= interval.low <= interval.value <= interval.high <= interval.next_high
        assert interval.value == pytest.approx(math.exp(np.mean(np.log(found[key]))))


def test_sessions_that_agree_have_no_interval() -> None:
    interval = session_intervals({"float": [1.0, 1.0, 1.0]})["float"]
    assert (interval.next_low, interval.low, interval.value, interval.high, interval.next_high) == (1, 1, 1, 1, 1)


def test_two_sessions_alone_have_the_interval_of_students_t_with_one_degree_of_freedom() -> None:
    interval = session_intervals({"a": [math.exp(0.1), math.exp(-0.1)]})["a"]
    assert math.log(interval.high) == pytest.approx(12.706 * math.sqrt(0.02) / math.sqrt(2), rel=1e-3)
    assert math.log(interval.next_high) == pytest.approx(12.706 * math.sqrt(0.02) * math.sqrt(1.5), rel=1e-3)


@pytest.mark.parametrize("n_sessions", [2, 3, 5])
def test_both_intervals_cover_what_they_say_as_often_as_they_say(n_sessions: int) -> None:
    rng = np.random.default_rng(3)
    covers_value, covers_next = [], []
    for _ in range(150):
        spread = rng.uniform(0.005, 0.015, 8)
        truth = rng.uniform(0.3, 1.2, 8)
        logs = np.log(truth)[:, None] + spread[:, None] * rng.standard_normal((8, n_sessions + 1))
        found = session_intervals({i: list(np.exp(logs[i, :-1])) for i in range(8)})
        covers_value += [found[i].low <= truth[i] <= found[i].high for i in range(8)]
        covers_next += [found[i].next_low <= np.exp(logs[i, -1]) <= found[i].next_high for i in range(8)]
    assert 0.92 <= np.mean(covers_value) <= 0.98
    assert 0.92 <= np.mean(covers_next) <= 0.98


@pytest.mark.parametrize("n_files", [1, 4])
@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_intervals_cover_the_truth_also_where_sessions_end_as_soon_as_they_are_narrow(
    n_files: int, spread: float
) -> None:
    rng = np.random.default_rng(5)
    covers = []
    for _ in range(250):
        medians: dict[int, list[float]] = {i: [] for i in range(n_files)}
        found: dict[int, SessionInterval] = {}
        while len(medians[0]) < 40 and not (found and are_narrow(found.values(), 0.01)):
            for values in medians.values():
                values.extend(np.exp(spread * rng.standard_normal(1 if found else 5)))
            found = session_intervals(medians, level=STOPPED_LEVEL)
        covers += [interval.low <= 1 <= interval.high for interval in found.values()]
    assert np.mean(covers) >= 0.95


def test_intervals_are_narrow_where_half_of_each_is_the_share_at_most() -> None:
    narrow, wide = (SessionInterval(1.0, 1 - x, 1 + x, 0.5, 1.5) for x in (0.01, 0.02))
    assert are_narrow([narrow], 0.0101)
    assert not are_narrow([narrow, wide], 0.0101)
