import numpy as np
import pytest

from autoquant.study.surrogate import Observations, Prediction
from autoquant.study.trust import Trust, believe
from tests.unit.study.layouts import a_landscape, a_layout


def told(trust: Trust, errors: float, n: int = 40, seed: int = 0) -> Trust:
    """Evaluations whose errors are so many times what was predicted."""
    rng = np.random.default_rng(seed)
    predicted = Prediction(np.full(n, 30.0), np.full(n, 2.0), np.full((n, 1), 0.5), np.full((n, 1), 0.02))
    snr_db = 30 + errors * 2 * rng.standard_normal((n, 1))
    ratios = 0.5 + errors * 0.02 * rng.standard_normal((n, 1))
    trust.compare(
        predicted, Observations(np.zeros((n, 1), dtype=np.int64), snr_db, ratios, np.zeros((n, 1)), np.zeros(n, bool))
    )
    return trust


@pytest.mark.parametrize("errors", [0.7, 1.0, 1.7])
def test_intervals_are_stretched_to_the_errors_that_were_seen(errors: float) -> None:
    trust = told(Trust(), errors)
    assert trust.stretch == pytest.approx((errors, errors), rel=0.25)
    assert trust.generic_share == 0


def test_models_that_are_refuted_lose_a_growing_share_and_win_it_back() -> None:
    trust = told(Trust(), 2.6)
    share = trust.generic_share
    assert 0.2 < share < told(Trust(), 4.0).generic_share <= 0.75
    assert told(told(trust, 0.5), 0.5).generic_share == 0


def test_candidates_that_equal_float_as_predicted_refute_nothing() -> None:
    trust, n = Trust(), 40
    predicted = Prediction(np.full(n, 119.9), np.full(n, 1.0), np.full((n, 1), 0.5), np.full((n, 1), 0.02))
    codes, ratios = np.zeros((n, 1), dtype=np.int64), np.full((n, 1), 0.5)
    trust.compare(predicted, Observations(codes, np.full((n, 1), 200.0), ratios, np.zeros((n, 1)), np.zeros(n, bool)))
    assert trust.generic_share == 0
    assert trust.stretch[0] < 1


def test_a_ratio_that_was_measured_badly_excuses_those_on_other_targets_nothing() -> None:
    trust, n = Trust(), 40
    predicted = Prediction(np.full(n, 30.0), np.full(n, 2.0), np.full((n, 2), 0.5), np.full((n, 2), 0.02))
    codes, snr_db, off = np.zeros((n, 1), dtype=np.int64), np.full((n, 1), 30.0), np.full((n, 2), 0.56)
    trust.compare(predicted, Observations(codes, snr_db, off, np.tile([0.0, 1.0], (n, 1)), np.zeros(n, bool)))
    assert trust.stretch[1] > 1.5


def test_a_few_evaluations_refute_nothing() -> None:
    assert told(Trust(), 5.0, n=10).generic_share == 0


def test_stretched_intervals_hold_about_what_they_say() -> None:
    for errors in (0.7, 1.6):
        trust = Trust()
        for i in range(120):
            told(trust, errors, n=1, seed=i)
        assert all(0.8 <= share <= 0.98 for share in trust.coverage())


def test_so_many_evaluations_as_were_predicted_count_as_recent_up_to_sixty() -> None:
    assert [told(Trust(), 1.0, n=n).n_recent for n in (0, 5, 100)] == [0, 5, 60]


def test_evaluations_without_a_latency_say_nothing_of_ratios() -> None:
    trust = Trust()
    predicted = Prediction(np.full(2, 30.0), np.full(2, 2.0), np.full((2, 1), 0.5), np.full((2, 1), 0.02))
    codes = np.zeros((2, 1), dtype=np.int64)
    found = Observations(codes, np.full((2, 1), 30.0), np.array([[0.5], [np.nan]]), np.zeros((2, 1)), np.zeros(2, bool))
    for _ in range(30):
        trust.compare(predicted, found)
    assert np.isfinite(trust.stretch).all()
    assert trust.coverage() == (1.0, 1.0)
    assert trust.n_recent == 30


def test_models_of_an_earlier_study_are_fitted_step_by_step() -> None:
    layout = a_layout(6)
    landscape, rng = a_landscape(layout), np.random.default_rng(0)
    codes = rng.integers(0, 2, (150, 6)) * rng.integers(1, 3, (150, 6)) * layout.allowed[:, 1:].all(axis=1)
    ratios = landscape.ratios_of(codes) + 0.1 * rng.standard_normal((150, 1))
    snr_db = -10 * np.log10(landscape.noise_of(codes) + 1e-9)
    found = Observations(codes, snr_db, ratios, np.zeros((150, 1)), np.zeros(150, bool))
    surrogate, trust = believe(layout, found, None)
    assert surrogate.n_observed == 150
    assert trust.n_recent == 60
    assert surrogate.predict(codes[:3]).ratio_errors.min() > 0.05
    assert believe(layout, found.of(slice(3)), None)[1].n_recent == 0
