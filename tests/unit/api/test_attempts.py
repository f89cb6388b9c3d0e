import math
from dataclasses import replace

import pytest

from autoquant.api.attempts import Attempt, Demand, process_errors
from autoquant.domain.front import Front, Member
from autoquant.domain.share import Z_95
from autoquant.measurement.differences import UNSEEN_SPREAD
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


def measured(error: float, n_sessions: int = 3) -> Member:
    """With an interval that says so much of a further process."""
    low, high = (0.5 * math.exp(sign * Z_95 * error) for sign in (-1, 1))
    latency = replace(a_latency(0.5), ratio_low=low, ratio_high=high, n_sessions=n_sessions)
    return replace(a_member(f"m{error}"), latency={TARGET: latency})


def test_processes_differ_as_members_say() -> None:
    front = a_front(measured(0.03), measured(0.04), measured(0.5, n_sessions=1))
    assert process_errors(front, [TARGET]) == pytest.approx([math.sqrt((0.03**2 + 0.04**2) / 2)])


@pytest.mark.parametrize("front", [None, a_front(), a_front(measured(0.05, n_sessions=1))])
def test_what_nothing_tells_is_that_of_an_idle_machine(front: Front | None) -> None:
    assert process_errors(front, [TARGET, "other"]) == [UNSEEN_SPREAD] * 2
