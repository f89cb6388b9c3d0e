import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.gain import Gain
from autoquant.study.surrogate import Prediction

points = st.lists(st.tuples(st.floats(-20, 90), st.floats(0.2, 1.3)), max_size=12)


def gain_of(found: list[tuple[float, float]], **limits: float) -> Gain:
    snr_db, ratios = np.array(found, dtype=float).reshape(-1, 2).T
    return Gain.of(snr_db, ratios, **limits)


@given(points, st.floats(-20, 90), st.floats(0.2, 1.3))
def test_the_gain_of_a_point_is_what_it_adds_to_the_mean_saving(
    found: list[tuple[float, float]], snr_db: float, ratio: float
) -> None:
    added = gain_of([*found, (snr_db, ratio)]).saving - gain_of(found).saving
    assert np.isclose(gain_of(found).of_points(np.array([snr_db]), np.array([ratio]))[0], added)


@given(points)
def test_members_have_all_of_the_saving(found: list[tuple[float, float]]) -> None:
    snr_db, ratios = np.array(found, dtype=float).reshape(-1, 2).T
    members = gain_of(found).of_members(snr_db, ratios)
    assert np.isclose(gain_of([found[i] for i in members]).saving, gain_of(found).saving)


def test_what_is_of_no_interest_gains_nothing() -> None:
    gain = gain_of([], min_snr_db=40.0, max_ratio=0.7)
    gains = gain.of_points(np.array([30.0, 60.0, 60.0]), np.array([0.4, 0.8, 0.6]))
    assert gains[0] == gains[1] == 0
    assert gains[2] > 0


def test_doubt_is_worth_something_beside_the_front() -> None:
    gain = gain_of([(40.0, 0.5)])
    sure = Prediction(np.array([30.0]), np.zeros(1), np.array([[0.55]]), np.zeros((1, 1)))
    unsure = Prediction(np.array([30.0]), np.zeros(1), np.array([[0.55]]), np.full((1, 1), 0.1))
    assert gain.expected(sure, np.ones(1), (1.0, 1.0))[0] == 0
    assert gain.expected(unsure, np.ones(1), (1.0, 1.0))[0] > 0
    assert gain.expected(unsure, np.ones(1), (1.0, 2.0)) > gain.expected(unsure, np.ones(1), (1.0, 1.0))


@given(points, st.floats(0, 60), st.floats(0.2, 1.3), st.floats(0.1, 10), st.floats(0.001, 0.2))
def test_what_is_expected_is_the_mean_of_what_draws_gain(
    found: list[tuple[float, float]], snr_db: float, ratio: float, snr_error_db: float, ratio_error: float
) -> None:
    gain, normals = gain_of(found), np.random.default_rng(0).standard_normal((2, 4000))
    predicted = Prediction(
        np.array([snr_db]), np.array([snr_error_db]), np.full((1, 2), ratio), np.full((1, 2), ratio_error)
    )
    weights, stretch = np.array([0.6, 0.4]), (1.5, 0.8)
    error = stretch[1] * ratio_error * np.hypot(*weights)
    drawn = gain.of_points(snr_db + stretch[0] * snr_error_db * normals[0], ratio + error * normals[1])
    tolerance = 5 * drawn.std() / np.sqrt(drawn.size) + 1e-3
    assert abs(gain.expected(predicted, weights, stretch)[0] - drawn.mean()) < tolerance
