import gc
import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.feed import Feed, Shapes, shapes_of
from autoquant.measurement.latency import Repeats, Timings, bootstrap_interval, run_new_shapes, run_round
from tests.fakes import FakeClock, FakeSession

FEED: Feed = {"x": np.arange(3)}
positive = st.floats(1e-6, 1e3)


def timings_of(pairs: Sequence[tuple[float, float]], sessions: Sequence[int] | None = None) -> Timings:
    timings = Timings()
    for i, (candidate, reference) in enumerate(pairs):
        timings.add([candidate], [reference], 0 if sessions is None else sessions[i])
    return timings


def some_sessions(log: list[tuple[str, Feed]], clock: FakeClock) -> dict[str, FakeSession]:
    return {
        name: FakeSession(name=name, clock=clock, seconds=s, log=log)
        for name, s in {"a": 1.0, "b": 2.0, "c": 4.0}.items()
    }


def test_a_round_runs_every_session_its_repeats_in_a_row_and_times_each_inference() -> None:
    log: list[tuple[str, Feed]] = []
    clock = FakeClock()
    seconds, outputs = run_round(some_sessions(log, clock), FEED, 3, random.Random(0), clock)
    assert seconds == {"a": [1.0] * 3, "b": [2.0] * 3, "c": [4.0] * 3}
    names = [name for name, _ in log]
    assert Counter(names) == {"a": 3, "b": 3, "c": 3}
    assert all(len(set(names[i : i + 3])) == 1 for i in (0, 3, 6))
    assert all(output[0] is FEED["x"] for output in outputs.values())


def test_the_order_is_random_and_follows_from_the_seed() -> None:
    orders: list[list[str]] = []
    for _ in range(2):
        log: list[tuple[str, Feed]] = []
        rng, clock = random.Random(5), FakeClock()
        for _ in range(120):
            run_round(some_sessions(log, clock), FEED, 1, rng, clock)
        orders.append([name for name, _ in log])
    assert orders[0] == orders[1]
    firsts = Counter(orders[0][::3])
    assert all(25 <= firsts[name] <= 55 for name in "abc")


def test_garbage_is_not_collected_in_a_round_and_is_again_behind_it() -> None:
    states: list[bool] = []

    def look(feed: Feed) -> list[npt.NDArray[np.generic]]:
        states.append(gc.isenabled())
        return list(feed.values())

    session = FakeSession(look)
    run_round({"a": session}, FEED, 2, random.Random(0), FakeClock())
    assert states == [False, False]
    assert gc.isenabled()


def test_collection_goes_on_behind_a_session_that_fails_and_stays_off_where_it_was_off() -> None:
    def fail(feed: Feed) -> list[npt.NDArray[np.generic]]:
        raise ValueError(feed)

    with pytest.raises(ValueError, match="x"):
        run_round({"a": FakeSession(fail)}, FEED, 1, random.Random(0), FakeClock())
    assert gc.isenabled()
    gc.disable()
    try:
        run_round({"a": FakeSession()}, FEED, 1, random.Random(0), FakeClock())
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(("seconds", "expected"), [(0.0, 5000), (1e-4, 50), (4e-3, 1), (5.0, 1)])
def test_short_inferences_are_repeated_until_a_timing_is_long_enough(seconds: float, expected: int) -> None:
    assert Repeats().of("cpu-1t", frozenset(), seconds) == expected


def test_how_often_follows_from_the_rounds_before_with_samples_of_these_shapes() -> None:
    repeats, small, large = Repeats(), shapes_of({"x": np.zeros(1)}), shapes_of({"x": np.zeros(2)})
    for seconds in (5e-3, 1e-3, 5e-3, 5e-3, 1e-3):  # most of them were disturbed
        repeats.learn("cpu-1t", small, [1.0, seconds, seconds])
    assert repeats.of("cpu-1t", small, 1.0) == 5
    assert repeats.of("cpu-1t", large, 2.5e-3) == repeats.of("cpu-2t", small, 2.5e-3) == 2


@given(ratio=st.floats(0.1, 3), reference=st.lists(positive, min_size=1, max_size=20))
def test_the_ratio_is_that_of_pairs_so_that_drift_cancels(ratio: float, reference: list[float]) -> None:
    latency = timings_of([(ratio * r, r) for r in reference]).latency(seed=0)
    assert (latency.ratio_low, latency.ratio, latency.ratio_high) == pytest.approx((ratio, ratio, ratio))
    assert latency.median_ms == pytest.approx(1e3 * ratio * float(np.median(reference)))
    assert latency.n_rounds == len(reference)


def test_percentiles_are_those_of_single_inferences_whatever_round_they_are_of() -> None:
    timings, seconds = Timings(), np.arange(100.0)
    for inferences in seconds.reshape(10, 10):
        timings.add(inferences.tolist(), [1.0])
    latency = timings.latency(seed=0)
    assert latency.p90_ms == pytest.approx(1e3 * 0.9 * seconds[-1])
    assert latency.p99_ms == pytest.approx(1e3 * 0.99 * seconds[-1])


@given(pairs=st.lists(st.tuples(positive, positive), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_intervals_lie_inside_the_values_and_follow_from_the_seed(pairs: list[tuple[float, float]], seed: int) -> None:
    timings = timings_of(pairs)
    latency = timings.latency(seed)
    own = [1e3 * candidate for candidate, _ in pairs]
    assert min(own) * (1 - 1e-9) <= latency.low_ms <= latency.high_ms <= max(own) * (1 + 1e-9)
    assert latency.ratio_low <= latency.ratio_high
    assert timings.ratio == latency.ratio
    assert timings.latency(seed) == latency


def test_the_interval_covers_the_true_median_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    covered = []
    for seed in range(150):
        values = rng.lognormal(0.0, 0.3, 31)
        low, high = bootstrap_interval(values, np.zeros(31, np.int64), seed)
        covered.append(low <= 1.0 <= high)
    assert 0.9 <= np.mean(covered) <= 0.99


def test_the_interval_covers_the_true_median_with_sessions_that_differ_where_a_plain_one_does_not() -> None:
    rng = np.random.default_rng(8)
    sessions = np.repeat(np.arange(10), 6)
    covered = []
    for seed in range(50):
        values = 1.0 + rng.normal(0, 0.1, 10)[sessions] + rng.normal(0, 0.02, 60)
        pair = bootstrap_interval(values, sessions, seed), bootstrap_interval(values, np.zeros(60, np.int64), seed)
        covered.append([low <= 1.0 <= high for low, high in pair])
    clustered, plain = np.mean(covered, axis=0)
    assert clustered >= 0.85
    assert plain <= 0.75


def test_an_interval_is_wider_when_sessions_differ_and_not_when_they_do_not() -> None:
    rng = np.random.default_rng(9)
    sessions = np.repeat([0, 1, 2], 20)
    noise = rng.normal(1.0, 0.01, 60)

    def width(values: npt.NDArray[np.float64], clusters: npt.NDArray[np.int64]) -> float:
        low, high = bootstrap_interval(values, clusters, 0)
        return high - low

    differing = noise + np.array([0.0, 0.1, 0.2])[sessions]
    assert width(differing, sessions) > 2 * width(differing, 0 * sessions)
    assert width(noise, sessions) < 2 * width(noise, 0 * sessions)


def test_a_session_runs_what_has_new_shapes_once() -> None:
    session, known = FakeSession(), set[Shapes]()
    for length in (3, 4, 3, 4):
        run_new_shapes(session, {"x": np.arange(length)}, known)
    assert [feed["x"].size for _, feed in session.log] == [3, 4]


def test_the_error_of_a_ratio_is_unknown_for_two_rounds_and_falls_with_their_number() -> None:
    rng = np.random.default_rng(3)
    pairs = [(float(c), 1.0) for c in rng.normal(1.0, 0.1, 400)]
    assert timings_of(pairs[:2]).error == math.inf
    assert timings_of([(0.5, 1.0)] * 3).error == 0.0
    assert timings_of(pairs).error == pytest.approx(1.2533 * 0.1 / math.sqrt(400), rel=0.25)
