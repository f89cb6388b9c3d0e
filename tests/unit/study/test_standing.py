from dataclasses import replace

import numpy as np
import pytest
from optuna.trial import create_trial

from autoquant.study.standing import Interest, Standing
from autoquant.study.steering import Steering
from autoquant.study.surrogate import Observations
from tests.unit.study.layouts import a_layout

LAYOUT = a_layout(4)
RATIOS = np.array([[1.0, 1.0], [0.6, 0.8], [0.5, 0.95], [0.7, 0.7], [np.nan, np.nan], [0.4, 0.4]])
SNR_DB = np.array([60.0, 40.0, 30.0, 35.0, 50.0, 45.0])
FOUND = Observations(
    codes=np.zeros((6, 4), dtype=np.int64),
    snr_db=np.column_stack([SNR_DB, SNR_DB + 5]),
    ratios=RATIOS,
    errors=np.full(RATIOS.shape, 0.01),
    is_quick=np.array([False] * 5 + [True]),
)
"""Two targets; the last but one is not timed, the last one was stopped early."""
WEIGHTS = np.array([0.5, 0.5])


def a_standing(interest: Interest | None = None, *, broken: int | None = None) -> Standing:
    """One of the trials may break a demand on a metric."""
    interest = interest or Interest()
    steering = Steering(LAYOUT, max_size_bytes=interest.max_size_bytes, has_size=interest.has_size)
    broke: list[dict[str, float] | None] = [{"drop[top1]": 0.1} if i == broken else None for i in range(len(FOUND))]
    trials = [create_trial(values=[1.0, 1.0], constraints=each) for each in broke]
    steering.learn(trials, FOUND.codes, SNR_DB, FOUND.is_quick)
    return Standing(FOUND, steering, interest)


@pytest.mark.parametrize(
    ("interest", "broken", "kept"),
    [
        (Interest(), None, [0, 1, 2, 3]),
        (Interest(max_ratio=0.9), None, [1, 3]),
        (Interest(min_snr_db=38.0), None, [0, 1, 2, 3]),
        (Interest(), 1, [0, 2, 3]),
    ],
)
def test_what_was_measured_to_the_end_and_keeps_the_demands_but_that_on_snr_counts(
    interest: Interest, broken: int | None, kept: list[int]
) -> None:
    assert np.flatnonzero(a_standing(interest, broken=broken).kept).tolist() == kept


def test_members_are_the_fastest_at_some_snr() -> None:
    standing = a_standing()
    assert standing.members(standing.gain(WEIGHTS), WEIGHTS).tolist() == [0, 1]
    first = np.array([1.0, 0.0])
    assert standing.members(standing.gain(first), first).tolist() == [0, 1, 2]


def test_what_an_evaluation_brought_is_what_it_adds_to_the_saving() -> None:
    standing, every = a_standing(), np.arange(len(FOUND))
    before = standing.gain(WEIGHTS, every < 1)
    added = standing.gain(WEIGHTS, every < 2).saving - before.saving
    assert standing.gain_of(1, WEIGHTS, before) == pytest.approx(added)
    assert added > 0
    assert standing.gain_of(4, WEIGHTS, before) == standing.gain_of(5, WEIGHTS, before) == 0


@pytest.mark.filterwarnings("ignore:sizes are of interest:UserWarning")
@pytest.mark.parametrize(("has_size", "weights", "highest"), [(False, [0.5, 0.5], 0.6), (True, [0.25, 0.25, 0.5], 0.8)])
def test_a_highest_ratio_counts_by_the_share_of_latency_in_the_weights(
    has_size: bool, weights: list[float], highest: float
) -> None:
    standing = a_standing(Interest(max_ratio=0.6, has_size=has_size))
    assert (standing.n_targets, standing.n_weights) == (2, len(weights))
    assert standing.gain(np.array(weights)).highest == pytest.approx(highest)


def test_the_lowest_snr_of_interest_is_where_gains_begin() -> None:
    assert a_standing(Interest(min_snr_db=38.0)).gain(WEIGHTS).demands_db[0] == 38


def test_there_may_be_no_evaluation_yet() -> None:
    none = FOUND.of(slice(0))
    standing = replace(a_standing(), found=none, steering=Steering(LAYOUT))
    gain = standing.gain(WEIGHTS)
    assert gain.saving == 0
    assert standing.members(gain, WEIGHTS).tolist() == []
