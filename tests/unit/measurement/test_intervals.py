import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.measurement.intervals import (
    STOPPED_LEVEL,
    SessionInterval,
    are_narrow,
    difference_intervals,
    intervals_by_target,
    session_intervals,
)
from autoquant.measurement.medians import variance_of_medians

medians = st.lists(st.floats(0.01, 100), min_size=2, max_size=8)


@given(st.dictionaries(st.text(), medians, min_size=1, max_size=5))
def test_an_interval_holds_its_value_and_the_next_session_is_less_certain(found: dict[str, list[float]]) -> None:
    for key, interval in session_intervals(found).items():
        assert interval.next_low <= interval.low <= interval.value <= interval.high <= interval.next_high
        assert interval.value == pytest.approx(math.exp(np.mean(np.log(found[key]))))


def test_sessions_that_agree_have_no_interval() -> None:
    interval = session_intervals({"float": [1.0, 1.0, 1.0]})["float"]
    assert (interval.next_low, interval.low, interval.value, interval.high, interval.next_high) == (1, 1, 1, 1, 1)


def test_sessions_that_tie_beside_others_that_do_not_are_no_certainty() -> None:
    ties, scatters = [0.5, 0.5, 0.5], [0.5, 0.51, 0.49]
    found = [
        session_intervals({("a", "b"): ties, ("a", "c"): scatters})["a", "b"],
        difference_intervals({("a", "b"): ties, ("a", "c"): scatters, ("b", "c"): scatters})["a", "b"],
    ]
    for interval in found:
        assert interval.next_low < interval.low < interval.value < interval.high < interval.next_high


def test_two_sessions_alone_have_the_interval_of_students_t_with_one_degree_of_freedom() -> None:
    interval = session_intervals({"a": [math.exp(0.1), math.exp(-0.1)]})["a"]
    assert math.log(interval.high) == pytest.approx(12.706 * math.sqrt(0.02) / math.sqrt(2), rel=1e-3)
    assert math.log(interval.next_high) == pytest.approx(12.706 * math.sqrt(0.02) * math.sqrt(1.5), rel=1e-3)


def coverage(n_sessions: int, *, common: float, own: tuple[float, float], n_draws: int) -> tuple[float, float]:
    """Of the truth and of the next session, of eight models that sessions disturb together and each by itself."""
    rng = np.random.default_rng(3)
    covers_value, covers_next = [], []
    for _ in range(n_draws):
        spread = rng.uniform(*own, 8)
        truth = rng.uniform(0.3, 1.2, 8)
        logs = np.log(truth)[:, None] + spread[:, None] * rng.standard_normal((8, n_sessions + 1))
        logs += common * rng.standard_normal(n_sessions + 1)
        found = session_intervals({i: list(np.exp(logs[i, :-1])) for i in range(8)})
        covers_value += [found[i].low <= truth[i] <= found[i].high for i in range(8)]
        covers_next += [found[i].next_low <= np.exp(logs[i, -1]) <= found[i].next_high for i in range(8)]
    return float(np.mean(covers_value)), float(np.mean(covers_next))


@pytest.mark.parametrize("common", [0.0, 0.01])
@pytest.mark.parametrize("n_sessions", [2, 3, 5])
def test_both_intervals_cover_what_they_say_as_often_as_they_say(n_sessions: int, common: float) -> None:
    n_draws = 600 if common else 150
    for found in coverage(n_sessions, common=common, own=(0.005, 0.015), n_draws=n_draws):
        assert 0.92 <= found <= 0.98


@pytest.mark.parametrize(("n_sessions", "least"), [(2, 0.82), (3, 0.92), (5, 0.93)])
def test_what_sessions_do_to_all_models_alike_does_not_count_once_for_each_model(n_sessions: int, least: float) -> None:
    """Intervals from as many degrees of freedom as models bring cover 0.76, 0.87 and 0.92 here."""
    for found in coverage(n_sessions, common=0.01, own=(1e-4, 1e-4), n_draws=1000):
        assert found >= least


@given(st.integers(2, 6), st.integers(2, 5), st.integers(0, 99))
def test_the_same_models_under_more_names_have_the_intervals_of_one_or_of_two_degrees_of_freedom(
    n_sessions: int, n_names: int, seed: int
) -> None:
    values = list(np.exp(0.01 * np.random.default_rng(seed).standard_normal(n_sessions)))
    found = session_intervals(dict.fromkeys(range(n_names), values))[0]
    alone = session_intervals({0: values})[0]
    if n_sessions > 2:
        assert found.high == pytest.approx(alone.high)
    else:
        half = math.log(alone.high / alone.value)
        assert math.log(found.high / found.value) == pytest.approx(4.303 / 12.706 * half, rel=1e-3)


@pytest.mark.parametrize("common", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("n_files", [1, 4])
@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_intervals_cover_the_truth_also_where_sessions_end_as_soon_as_they_are_narrow(
    n_files: int, spread: float, common: float
) -> None:
    rng = np.random.default_rng(5)
    covers = []
    own, together = spread / math.hypot(1.0, common), spread * common / math.hypot(1.0, common)
    for _ in range(250):
        medians: dict[int, list[float]] = {i: [] for i in range(n_files)}
        found: dict[int, SessionInterval] = {}
        while len(medians[0]) < 40 and not (found and are_narrow(found.values(), 0.01)):
            n_more = 1 if found else 5
            disturbed = together * rng.standard_normal(n_more) if common else 0.0
            for values in medians.values():
                values.extend(np.exp(own * rng.standard_normal(n_more) + disturbed))
            found = session_intervals(medians, level=STOPPED_LEVEL)
        covers += [interval.low <= 1 <= interval.high for interval in found.values()]
    assert np.mean(covers) >= 0.95


def test_targets_have_common_effects_of_their_own() -> None:
    rng = np.random.default_rng(2)
    common = {target: 0.01 * rng.standard_normal(3) for target in ("cpu-1t", "cpu-2t")}
    medians = {
        (str(i), target): list(np.exp(effect + 1e-4 * rng.standard_normal(3)))
        for target, effect in common.items()
        for i in range(10)
    }
    found = intervals_by_target(medians)
    alone = session_intervals({pair: values for pair, values in medians.items() if pair[1] == "cpu-2t"})
    assert found.keys() == medians.keys()
    assert {pair: found[pair] for pair in alone} == alone


@pytest.mark.parametrize("n_models", [2, 3, 10])
@pytest.mark.parametrize("n_sessions", [2, 3, 5])
def test_intervals_of_differences_cover_what_they_say_and_know_nothing_of_common_effects(
    n_sessions: int, n_models: int
) -> None:
    rng, covers = np.random.default_rng(4), []
    for _ in range(400):
        logs = 0.01 * rng.standard_normal((n_models, n_sessions))
        pairs = {(str(a), str(b)): list(np.exp(logs[a] - logs[b])) for a in range(n_models) for b in range(a)}
        found = difference_intervals(pairs)
        covers += [interval.low <= 1 <= interval.high for interval in found.values()]
        if n_sessions > 2 and n_models == 10:
            interval = found["1", "0"]
            assert math.log(interval.high / interval.low) < 2 * 2.45 * 0.03 / math.sqrt(n_sessions)
    assert 0.92 <= np.mean(covers) <= 0.98


def test_intervals_are_narrow_where_half_of_each_is_the_share_at_most() -> None:
    narrow, wide = (SessionInterval(1.0, 1 - x, 1 + x, 0.5, 1.5) for x in (0.01, 0.02))
    assert are_narrow([narrow], 0.0101)
    assert not are_narrow([narrow, wide], 0.0101)


@pytest.mark.parametrize("n_sessions", [3, 5])
def test_a_disturbance_of_one_model_in_one_session_widens_its_own_interval(n_sessions: int) -> None:
    logs = 0.01 * np.random.default_rng(4).standard_normal((12, n_sessions))
    disturbed = logs.copy()
    disturbed[0, 0] += math.log(2)
    quiet, found = (session_intervals(dict(enumerate(np.exp(each)))) for each in (logs, disturbed))
    half = [math.log(found[i].high / found[i].value) / math.log(quiet[i].high / quiet[i].value) for i in range(12)]
    assert half[0] > 5
    assert max(half[1:]) < 1.5


def test_medians_of_few_rounds_that_agree_are_not_known_better_than_these_rounds_say() -> None:
    agreeing = {"a": [0.96, 0.96, 0.96], "b": [0.9, 0.96, 1.02]}
    found, plain = session_intervals(agreeing, rounds={"a": 0.06**2}), session_intervals(agreeing)
    assert math.log(found["a"].high / found["a"].value) > math.log(plain["a"].high / plain["a"].value)
    assert found["b"] == plain["b"]
    alone = session_intervals({"a": agreeing["a"]}, rounds={"a": 0.01**2})["a"]
    assert math.log(alone.high / alone.value) == pytest.approx(1.96 * 0.01 / math.sqrt(3), rel=1e-3)


def test_intervals_of_sessions_that_happen_to_agree_cover_the_next_one_more_often() -> None:
    """Of the fifth of all files, alone in their measurements, whose medians agree most."""
    rng, found = np.random.default_rng(7), []
    for _ in range(1000):
        logs = 0.05 * rng.standard_normal((4, 5))
        medians, sessions = np.median(logs, axis=1), np.repeat(np.arange(3), 5)
        rounds = {"a": variance_of_medians(np.exp(logs[:3].ravel()), sessions)}
        of_sessions = {"a": list(np.exp(medians[:3]))}
        intervals = (session_intervals(of_sessions)["a"], session_intervals(of_sessions, rounds=rounds)["a"])
        is_inside = [each.next_low <= np.exp(medians[3]) <= each.next_high for each in intervals]
        found.append((float(np.std(medians[:3])), *is_inside))
    plain, ours = np.mean([each[1:] for each in sorted(found)[:200]], axis=0)
    assert plain < 0.8 < 0.85 < ours
    assert 0.95 <= np.mean([each[2] for each in found]) <= 0.985
