from dataclasses import replace

import numpy as np

from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.noise import NoiseModel
from tests.unit.study.layouts import a_layout

N_REGIONS = 12
PATTERNS = np.arange(N_REGIONS) % 3


def a_problem(*, is_alike: bool) -> tuple[Codes, Floats]:
    """One-region probes and the logs of their noise powers; each pattern has its own or none of them tells anything."""
    rng = np.random.default_rng(3)
    level = rng.normal(-7, 3, 3)[PATTERNS] if is_alike else rng.normal(-7, 3, N_REGIONS)
    codes = np.eye(N_REGIONS, dtype=np.int64) * 2
    return codes, level + 0.1 * rng.standard_normal(N_REGIONS)


def error(layout: Layout, *, is_alike: bool) -> float:
    """Of the predictions for all regions after the first half of them was probed, one by one."""
    codes, log = a_problem(is_alike=is_alike)
    model, half = NoiseModel(layout), N_REGIONS // 2
    for n in range(1, half + 1):
        model.fit(codes[:n], np.exp(log[:n]), np.zeros(n, dtype=bool), n_new=1)
    return float(np.abs(model.mean(codes[half:]) - log[half:]).mean())


def test_what_is_learned_of_a_region_is_believed_of_those_with_its_pattern() -> None:
    untold, told = a_layout(N_REGIONS), replace(a_layout(N_REGIONS), patterns=PATTERNS)
    assert error(told, is_alike=True) < 0.8 * error(untold, is_alike=True)


def test_patterns_that_tell_nothing_mislead_little() -> None:
    untold, told = a_layout(N_REGIONS), replace(a_layout(N_REGIONS), patterns=PATTERNS)
    assert error(told, is_alike=False) < 1.3 * error(untold, is_alike=False)


def test_a_region_that_differs_from_its_likes_is_believed_once_it_was_probed() -> None:
    codes, log = a_problem(is_alike=True)
    log[0] += 3.0
    codes, log = np.tile(codes, (2, 1)), np.tile(log, 2)
    model = NoiseModel(replace(a_layout(N_REGIONS), patterns=PATTERNS))
    for n in range(1, len(codes) + 1):
        model.fit(codes[:n], np.exp(log[:n]), np.zeros(n, dtype=bool), n_new=1)
    assert abs(model.mean(codes)[0] - log[0]) < 0.5


def test_the_error_is_tuned_also_where_as_many_old_observations_are_left_out_as_there_are_new_ones() -> None:
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 3, (90, N_REGIONS))
    codes[:, 0] = 1
    scatter = np.exp(np.where(np.arange(90) < 30, 0.0, 1.0) * rng.standard_normal(90))
    noise = (1e-3 * (codes > 0).sum(axis=1) * scatter).astype(np.float64)
    model, is_quick = NoiseModel(a_layout(N_REGIONS)), np.zeros(30, dtype=bool)
    model.fit(codes[:30], noise[:30], is_quick, n_new=30)
    before = model.error
    for n in range(35, 91, 5):
        model.fit(codes[n - 30 : n], noise[n - 30 : n], is_quick, n_new=5)
    assert model.error > max(before, 0.4)


def test_what_quantizes_badly_is_expected_to_be_noisy_before_anything_was_observed() -> None:
    errors = np.full((N_REGIONS, 3), 1e-4)
    errors[3, 1], errors[:, 0] = 1e-2, 0.0
    layout = a_layout(N_REGIONS)
    plain, told = NoiseModel(layout), NoiseModel(replace(layout, own_errors=errors))
    before, after = plain.table(), told.table()
    assert after[3, 1] / after[3, 2] > 5 * before[3, 1] / before[3, 2]
    assert after[2, 1] / after[2, 2] == before[2, 1] / before[2, 2]
    assert (after[:, 0] == 0).all()


def test_how_large_errors_are_on_the_whole_says_nothing() -> None:
    layout = a_layout(N_REGIONS)
    small, large = (NoiseModel(replace(layout, own_errors=np.full((N_REGIONS, 3), size))) for size in (1e-6, 1e-2))
    np.testing.assert_allclose(small.table(), large.table())


def test_expected_errors_are_corrected_by_what_is_observed() -> None:
    codes, log = a_problem(is_alike=False)
    errors = np.random.default_rng(1).permuted(np.geomspace(1e-5, 1e-3, 3 * N_REGIONS)).reshape(N_REGIONS, 3)
    codes, log = np.tile(codes, (3, 1)), np.tile(log, 3)
    model = NoiseModel(replace(a_layout(N_REGIONS), own_errors=errors))
    for n in range(1, len(codes) + 1):
        model.fit(codes[:n], np.exp(log[:n]), np.zeros(n, dtype=bool), n_new=1)
    assert np.abs(model.mean(codes) - log).max() < 0.5


def test_one_candidate_without_any_signal_left_hardly_moves_what_is_held_of_others() -> None:
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 3, (60, N_REGIONS))
    noise = np.exp(rng.normal(-7, 2, (N_REGIONS, 3)))
    noise[:, 0] = 0.0
    power = noise[np.arange(N_REGIONS), codes].sum(axis=1) * np.exp(0.2 * rng.standard_normal(60))
    told = power.copy()
    told[40] = 100.0
    model, is_quick = NoiseModel(a_layout(N_REGIONS)), np.zeros(60, dtype=bool)
    for n in range(1, 41):
        model.fit(codes[:n], told[:n], is_quick[:n], n_new=1)
    before = np.abs(model.mean(codes[41:]) - np.log(power[41:])).mean()
    model.fit(codes[:41], told[:41], is_quick[:41], n_new=1)
    assert np.abs(model.mean(codes[41:]) - np.log(power[41:])).mean() < before + 0.3
