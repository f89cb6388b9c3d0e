import math
from dataclasses import replace

import numpy as np
import pytest

from autoquant.api.processes import process_errors, seen_by_others
from autoquant.domain.front import Front, Member
from autoquant.domain.measurement import Evaluation, Measurement
from autoquant.measurement.differences import UNSEEN_SPREAD
from autoquant.measurement.intervals import SessionInterval, session_intervals
from tests.records import a_failure, a_front, a_latency, a_measured, a_member

TARGET = "cpu-1t"


def a_front_of(spread: float, n_members: int, n_sessions: int) -> Front:
    """Members whose ratios scatter by so much between processes, as they would be written."""
    rng = np.random.default_rng(n_members * 10 + n_sessions)
    medians = {f"m{i}": np.exp(spread * rng.standard_normal(n_sessions)).tolist() for i in range(n_members)}
    return a_front(*(measured(name, found, n_sessions) for name, found in session_intervals(medians).items()))


def measured(name: str, found: SessionInterval, n_sessions: int) -> Member:
    latency = replace(a_latency(0.5), ratio_low=found.next_low, ratio_high=found.next_high, n_sessions=n_sessions)
    return replace(a_member(name), latency={TARGET: latency})


@pytest.mark.parametrize("n_members", [1, 2, 6])
@pytest.mark.parametrize("n_sessions", [2, 3, 5])
def test_processes_differ_as_members_say(n_members: int, n_sessions: int) -> None:
    (unit,) = process_errors(a_front_of(1e-3, n_members, n_sessions), [TARGET])
    rng = np.random.default_rng(n_members * 10 + n_sessions)
    medians = 1e-3 * rng.standard_normal((n_members, n_sessions))
    pooled = np.sqrt(np.mean(np.var(medians, axis=1, ddof=1)))
    assert unit == pytest.approx(pooled, rel=0.25)


def test_what_one_process_says_of_itself_does_not_count() -> None:
    interval = SessionInterval(1.0, 0.9, 1.1, 0.5, 2.0)
    (found,) = process_errors(a_front(*a_front_of(0.02, 2, 3).members[:2], measured("one", interval, 1)), [TARGET])
    assert found < 0.1


@pytest.mark.parametrize(
    "front", [None, a_front(), a_front(measured("m", SessionInterval(1.0, 0.9, 1.1, 0.5, 2.0), 1))]
)
def test_what_nothing_tells_is_that_of_an_idle_machine(front: Front | None) -> None:
    assert process_errors(front, [TARGET, "other"]) == [UNSEEN_SPREAD] * 2


def a_trial(ratio: float, low: float, high: float) -> Evaluation:
    found = replace(a_latency(ratio), ratio_low=low, ratio_high=high)
    trial = a_measured(0)
    assert isinstance(trial.outcome, Measurement)
    return replace(trial, outcome=replace(trial.outcome, latency={TARGET: found}))


def interval(evaluation: Evaluation) -> tuple[float, float]:
    assert isinstance(evaluation.outcome, Measurement)
    found = evaluation.outcome.latency[TARGET]
    return found.ratio_low, found.ratio_high


def test_trials_know_what_a_repetition_gives_and_are_told_with_what_processes_differ_by() -> None:
    front, trial = a_front_of(0.03, 6, 5), a_trial(0.5, 0.49, 0.52)
    (error,) = process_errors(front, [TARGET])
    (told,) = seen_by_others([trial], front)
    below, above = (math.hypot(math.log(end / 0.5), 1.96 * math.sqrt(2) * error) for end in (0.49, 0.52))
    assert interval(told) == pytest.approx((0.5 * math.exp(-below), 0.5 * math.exp(above)), rel=1e-4)
    assert isinstance(told.outcome, Measurement)
    assert told.outcome.latency[TARGET].ratio == 0.5


def test_further_processes_are_where_trials_say() -> None:
    """Both the trial's own process and the further one have luck, and rounds scatter besides."""
    rng, spread, of_rounds, n_inside = np.random.default_rng(0), 0.03, 0.01, 0
    for _ in range(400):
        medians = {f"m{i}": np.exp(spread * rng.standard_normal(5)).tolist() for i in range(6)}
        front = a_front(*(measured(name, found, 5) for name, found in session_intervals(medians).items()))
        ratio, half = math.exp(math.hypot(spread, of_rounds) * rng.standard_normal()), math.exp(1.96 * of_rounds)
        ((low, high),) = map(interval, seen_by_others([a_trial(ratio, ratio / half, ratio * half)], front))
        n_inside += low <= math.exp(spread * rng.standard_normal()) <= high
    assert 0.92 * 400 <= n_inside <= 0.98 * 400


def test_what_failed_or_was_not_timed_stays_as_it_is() -> None:
    evaluations = [a_failure(0), a_measured(1, ratio=None)]
    assert seen_by_others(evaluations, a_front()) == evaluations
