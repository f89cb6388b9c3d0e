import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.measurement.differences import shown_faster
from autoquant.measurement.intervals import session_intervals
from autoquant.measurement.latency import REFERENCE, Timings


def timings(
    medians: dict[str, float], *, n_sessions: int, noise: float, shared: float = 0.0, seed: int = 0
) -> dict[str, Timings]:
    """Of 12 rounds a session; ``shared`` is what a round's disturbance does to all models alike."""
    rng = np.random.default_rng(seed)
    found = {name: Timings() for name in medians}
    for session in range(n_sessions):
        for _ in range(12):
            disturbance = 1 + shared * rng.random()
            for name, median in medians.items():
                found[name].add([median * disturbance * (1 + noise * rng.standard_normal())], [1.0], session)
    return found


def test_a_difference_is_shown_where_it_is_larger_than_the_noise() -> None:
    found = shown_faster(timings({"a": 0.50, "b": 0.52, "c": 0.60}, n_sessions=4, noise=0.005), seed=0)
    assert found == {"a": {"b", "c"}, "b": {"c"}, "c": frozenset()}


def test_what_disturbs_all_models_alike_hides_no_difference() -> None:
    found = shown_faster(timings({"a": 0.50, "b": 0.52}, n_sessions=4, noise=0.005, shared=0.5), seed=0)
    assert found == {"a": {"b"}, "b": frozenset()}


@pytest.mark.parametrize("n_sessions", [1, 3, 5])
def test_a_difference_that_is_not_there_is_hardly_ever_shown(n_sessions: int) -> None:
    pairs = [timings({"a": 0.5, "b": 0.5}, n_sessions=n_sessions, noise=0.02, seed=seed) for seed in range(100)]
    n_shown = sum(len(others) for pair in pairs for others in shown_faster(pair, seed=0).values())
    assert n_shown <= 10


def with_lucky_sessions(n_sessions: int, luck: float, seed: int, *, saved: float = 0.0) -> dict[str, Timings]:
    """Ten files, as fast as float where nothing is saved, which alone is slow or fast for a whole session."""
    rng = np.random.default_rng(seed)
    medians = {str(i): 1.0 - i * saved for i in range(10)} | {REFERENCE: 1.0}
    found = {name: Timings() for name in medians}
    for session in range(n_sessions):
        own = {name: np.exp(0.001 * rng.standard_normal()) for name in medians}
        own[REFERENCE] *= np.exp(luck * rng.standard_normal())
        for _ in range(12):
            for name, median in medians.items():
                found[name].add([median * own[name] * (1 + 0.001 * rng.standard_normal())], [1.0], session)
    return found


@pytest.mark.parametrize("n_sessions", [3, 5])
def test_no_file_is_shown_to_be_faster_than_float_because_float_was_unlucky(n_sessions: int) -> None:
    """Intervals with the degrees of freedom of ten files show it in 11 and 7 of 100."""
    found = [shown_faster(with_lucky_sessions(n_sessions, 0.01, seed), seed=0) for seed in range(200)]
    n_lucky = sum(any(REFERENCE in found[str(i)] for i in range(10)) for found in found)
    assert n_lucky <= 8


def test_the_luck_of_float_hides_no_difference_between_files() -> None:
    found = shown_faster(with_lucky_sessions(3, 0.05, seed=0, saved=0.01), seed=0)
    assert all(str(i) in found[str(j)] for i, j in [(0, 1), (0, 9), (8, 9)])
    assert not any(REFERENCE in others for others in found.values())


def test_a_file_that_is_faster_on_average_is_shown_to_be_although_a_further_process_may_be_slow() -> None:
    """Ratios of three processes on a busy machine (decision 0011)."""
    found = {"a": Timings(), REFERENCE: Timings()}
    for session, ratio in enumerate((0.65, 0.55, 0.68)):
        found["a"].add([ratio], [1.0], session)
        found[REFERENCE].add([1.0], [1.0], session)
    (interval,) = session_intervals({"a": found["a"].ratio_by_session()}).values()
    assert interval.next_high > 1
    assert REFERENCE in shown_faster(found, seed=0)["a"]


def test_one_process_shows_what_its_rounds_show() -> None:
    found = shown_faster(timings({"a": 0.5, "b": 0.6}, n_sessions=1, noise=0.02), seed=0)
    assert found == {"a": {"b"}, "b": frozenset()}


@pytest.mark.parametrize(("n_sessions", "ratio", "is_shown"), [(1, 0.985, False), (1, 0.97, True), (3, 0.985, True)])
def test_one_process_shows_no_difference_that_processes_make(n_sessions: int, ratio: float, is_shown: bool) -> None:
    medians = {"a": ratio, "b": 1.0, REFERENCE: 1.0}
    found = shown_faster(timings(medians, n_sessions=n_sessions, noise=0.001), seed=0)
    assert found["a"] == ({"b", REFERENCE} if is_shown else frozenset())


@given(st.lists(st.floats(0.1, 1), min_size=1, max_size=4), st.integers(1, 4))
def test_no_two_models_are_faster_than_each_other(medians: list[float], n_sessions: int) -> None:
    given_models = {str(i): median for i, median in enumerate(medians)}
    found = shown_faster(timings(given_models, n_sessions=n_sessions, noise=0.05), seed=0)
    assert found.keys() == given_models.keys()
    assert not any(a in found[b] and b in found[a] for a in found for b in found)


def test_who_ends_when_ratios_are_known_well_enough_shows_less() -> None:
    """Of files only: what float does is part of all comparisons with it, so that they ask for more in any case."""
    pairs = [timings({"a": 0.5, "b": 0.51, REFERENCE: 1.0}, n_sessions=3, noise=0.02, seed=seed) for seed in range(30)]
    stopped, others = ([shown_faster(pair, 0, is_stopped=is_stopped) for pair in pairs] for is_stopped in (True, False))
    assert all(less[name] <= more[name] for less, more in zip(stopped, others, strict=True) for name in less)
    assert sum("b" in found["a"] for found in stopped) < sum("b" in found["a"] for found in others)


@pytest.mark.parametrize("saved", [0.01, 0.5])
def test_sessions_that_happen_to_agree_show_no_more_than_their_rounds(saved: float) -> None:
    found = {"a": Timings(), "b": Timings(), REFERENCE: Timings()}
    for session in range(3):
        for noise in (0.7, 1.0, 1.3):
            found["a"].add([noise], [1.0], session)
            found["b"].add([1 - saved], [1.0], session)
            found[REFERENCE].add([1.0], [1.0], session)
    assert ("a" in shown_faster(found, seed=0)["b"]) == (saved > 0.1)
