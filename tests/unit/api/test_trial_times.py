from dataclasses import replace

import pytest

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts, ScoringTimes
from autoquant.api.trial_times import Finish, TrialCosts, TrialTimes
from autoquant.domain.measurement import Evaluation, State
from tests.records import a_measured

FACTS = BenchFacts(float_s={"cpu-1t": 1e-3}, n_samples=4, opening_s=0.0)
FINISH = Finish(n_samples=4, size_bytes=1)


def costs_of(*float_s: float) -> TrialCosts:
    """Of a model that takes so long, on as many targets."""
    return TrialCosts(replace(FACTS, float_s={f"cpu-{i}t": seconds for i, seconds in enumerate(float_s, 1)}), 0.0)


@pytest.mark.parametrize(
    ("float_s", "n_rounds"), [([1e-4], 16), ([1e-3] * 4, 6), ([1e-3, 5e-3], 12), ([0.01], 12), ([1.0], 6)]
)
def test_rounds_take_a_quarter_of_a_second_where_they_are_neither_few_nor_many(
    float_s: list[float], n_rounds: int
) -> None:
    assert costs_of(*float_s).n_rounds == n_rounds


def test_a_trial_may_take_what_its_metrics_take() -> None:
    plain, scored = (
        TrialCosts(FACTS, 0.0),
        TrialCosts(replace(FACTS, scoring=ScoringTimes(trial_s=30.0, file_s=660.0)), 0.0),
    )
    assert scored.first_seconds(6) == pytest.approx(plain.first_seconds(6) + 30)
    assert scored.later_seconds(6) == pytest.approx(plain.later_seconds(6) + 30)
    assert scored.untimed_seconds == plain.untimed_seconds


def test_trials_take_as_long_as_what_they_run() -> None:
    costs = TrialCosts(replace(FACTS, float_s={"cpu-1t": 0.1}, n_samples=1000, opening_s=3.0), 0.5)
    assert costs.first_seconds(4) == pytest.approx(3 + 1000 * 0.1 + 4 * 0.1)
    assert costs.later_seconds(4) < 0.2 * costs.first_seconds(4)
    assert costs.untimed_seconds < costs.later_seconds(4)


def counted(*trials: tuple[float, State], is_new: bool = True, is_proposed: bool = True) -> TrialTimes:
    """Of trials none of which was unusual."""
    times = TrialTimes()
    for seconds, state in trials:
        times.count(seconds, state, is_new=is_new, is_proposed=is_proposed, is_usual=True)
    return times


def test_the_time_saved_is_what_stopped_proposals_took_less_than_complete_ones() -> None:
    assert TrialTimes().saved is None
    complete = [(seconds, State.COMPLETE) for seconds in (1.0, 9.0, 2.0)]
    stopped = [(seconds, State.REJECTED_EARLY) for seconds in (0.5, 0.25)]
    assert counted(*stopped).saved is None
    assert counted(*complete).saved == 0
    assert counted(*complete, *stopped).saved == 3.25
    assert counted(*complete, *stopped, (90.0, State.REJECTED_EARLY)).saved == 0


@pytest.mark.parametrize("named", [{"is_new": False}, {"is_proposed": False}])
def test_what_was_known_or_not_proposed_saves_nothing(named: dict[str, bool]) -> None:
    assert counted((1.0, State.COMPLETE), (0.5, State.REJECTED_EARLY), **named).saved is None


def test_the_longest_of_the_latest_usual_trials_tells_what_the_next_one_may_take() -> None:
    times = counted(*((seconds, State.COMPLETE) for seconds in (9.0, 1.0, 2.0, 3.0, 2.0, 1.0)))
    times.count(60.0, State.FAILED, is_new=False, is_proposed=True, is_usual=False)
    assert times.longest(5.0) == 3
    assert times.every == [9, 1, 2, 3, 2, 1, 60]
    assert TrialTimes().longest(5.0) == 5


def test_what_was_not_to_be_timed_is_not_the_shortest() -> None:
    assert counted((0.1, State.UNTIMED), (2.0, State.REJECTED_EARLY), (3.0, State.COMPLETE)).shortest_new(5.0) == 2
    assert counted((2.0, State.COMPLETE), is_new=False).shortest_new(5.0) == 5


def kept_s(found: list[Evaluation], finish: Finish = FINISH, *, float_s: float = 1e-3, has_size: bool = False) -> float:
    """Of a budget of much time."""
    return finish.seconds(found, costs_of(float_s), Deadline(10_000.0), has_size=has_size)


def measured(n: int, ratio: float) -> list[Evaluation]:
    return [a_measured(number=i, ratio=ratio) for i in range(n)]


def test_less_time_is_kept_where_fewer_candidates_are_measured_again() -> None:
    assert kept_s(measured(8, 0.7), replace(FINISH, n_finalists=1)) < kept_s(measured(8, 0.7))


def test_no_time_is_kept_for_candidates_that_are_slower_than_float_unless_they_may_be_smaller() -> None:
    found = measured(8, 1.2)
    assert kept_s(found) == pytest.approx(kept_s(found, replace(FINISH, n_finalists=1)))
    assert kept_s(found, has_size=True) > kept_s(found)


def test_time_is_kept_for_finalists_as_fast_as_candidates_are() -> None:
    assert kept_s(measured(3, 0.001), float_s=1.0) < kept_s(measured(3, 0.9), float_s=1.0)


def test_refining_takes_its_share_of_the_budget() -> None:
    refined = replace(FINISH, is_refined=True)
    assert kept_s(measured(3, 0.7), refined) >= 0.2 * 10_000
    short = refined.seconds(measured(3, 0.7), costs_of(1.0), Deadline(10.0), has_size=False)
    assert short == 5
    assert refined.seconds([], costs_of(1.0), Deadline(None), has_size=False) < 0.2 * 10_000
