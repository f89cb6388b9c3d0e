import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.threshold import Threshold

SNRS = np.arange(0.0, 80.0, 5.0)


@pytest.mark.parametrize("at_db", [20.0, 45.0])
def test_it_is_found_between_what_is_kept_and_what_is_not(at_db: float) -> None:
    threshold = Threshold()
    for snr_db in SNRS:
        threshold.learn(float(snr_db), is_kept=bool(snr_db >= at_db))
    assert at_db - 8 <= threshold.lowest_db() <= at_db
    low, high = threshold.chances(np.array([at_db - 10, at_db + 8]))
    assert low < 0.15 < 0.85 < high


def test_one_trial_on_the_wrong_side_is_no_proof() -> None:
    threshold = Threshold()
    for snr_db in (*SNRS, 60.0):
        threshold.learn(float(snr_db), is_kept=bool(snr_db >= 30) and snr_db != 60)
    assert threshold.chances(np.array([50.0]))[0] > 0.7


def test_a_metric_that_has_nothing_to_do_with_the_snr_excludes_nothing() -> None:
    threshold, rng = Threshold(), np.random.default_rng(0)
    for _ in range(60):
        threshold.learn(float(rng.uniform(10, 60)), is_kept=bool(rng.random() < 0.4))
    assert threshold.lowest_db() == -10
    assert (threshold.chances(np.array([15.0, 35.0, 55.0])) > 0.25).all()


@given(st.lists(st.tuples(st.floats(-200, 200), st.booleans()), max_size=12))
def test_the_chance_rises_with_the_snr(trials: list[tuple[float, bool]]) -> None:
    threshold = Threshold()
    for snr_db, is_kept in trials:
        threshold.learn(snr_db, is_kept=is_kept)
    chances = threshold.chances(np.linspace(-20, 120, 60))
    assert (np.diff(chances) >= -1e-9).all()
    assert ((chances >= 0) & (chances <= 1 + 1e-9)).all()
    assert -10 <= threshold.lowest_db() <= 90
