import math

import pytest

from autoquant.api.attempts import Attempt, Demand
from tests.records import a_failure, a_measured
from tests.unit.api.resolving import a_prediction


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
