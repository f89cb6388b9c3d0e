import math
from dataclasses import replace

import numpy as np
import pytest

from autoquant.api.attempts import Attempt, Demand, process_errors
from autoquant.domain.front import Front, Member
from autoquant.measurement.differences import UNSEEN_SPREAD
from autoquant.measurement.intervals import SessionInterval, session_intervals
from tests.records import a_failure, a_front, a_latency, a_measured, a_member
from tests.unit.api.resolving import a_prediction

TARGET = "cpu-1t"


@pytest.mark.parametrize(
    ("demand", "text"), [(Demand(20.0), "20 dB"), (Demand(20.5, 0.8), "20.5 dB at a ratio of 0.8")]
)
def test_a_demand_is_called_by_what_it_is(demand: Demand, text: str) -> None:
    assert str(demand) == text


def test_what_a_trial_gave_is_told_and_compared_with_the_prediction() -> None:
    attempt = Attempt(a_prediction(snr_db=38.0), a_measured(snr_db=35.0, ratio=0.6))
    assert (attempt.snr_db, attempt.overestimated_db) == (35.0, 3.0)
    assert attempt.gave == "its trial gave 35.00 dB and a ratio of 0.600"


def test_of_a_trial_that_failed_nothing_is_known_but_why() -> None:
    attempt = Attempt(a_prediction(), a_failure(stage="build", reason="no range for 'x'"))
    assert (attempt.snr_db, attempt.overestimated_db) == (-math.inf, 0.0)
    assert attempt.gave == "it failed at build (no range for 'x')"


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
