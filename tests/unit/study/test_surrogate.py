from dataclasses import replace

import numpy as np
import pytest

from autoquant.domain.prior import LatencyPrior
from autoquant.study.surrogate import Observations, Surrogate
from tests.unit.study.layouts import a_landscape, a_layout

N_REGIONS = 12


def observations(n: int, *, seed: int = 0, n_outputs: int = 1, n_targets: int = 1) -> Observations:
    """Of an additive problem, with 0.4 dB and 1 % of noise."""
    rng = np.random.default_rng(seed)
    layout = a_layout(N_REGIONS)
    landscape = a_landscape(layout, n_outputs=n_outputs, n_targets=n_targets)
    codes = np.array([[rng.choice(np.flatnonzero(row)) for row in layout.allowed] for _ in range(n)])
    snr_db = -10 * np.log10(landscape.noise_of(codes)) + 0.4 * rng.standard_normal((n, n_outputs))
    ratios = landscape.ratios_of(codes) + 0.01 * rng.standard_normal((n, n_targets))
    return Observations(codes, snr_db, ratios, np.full((n, n_targets), 0.01), np.zeros(n, dtype=bool))


def fitted(found: Observations, n: int, n_targets: int = 1) -> Surrogate:
    surrogate = Surrogate(a_layout(N_REGIONS), n_targets)
    for k in range(10, n + 1, 10):
        surrogate.fit(found.of(slice(k)))
    return surrogate


@pytest.mark.parametrize(("n_outputs", "n_targets"), [(1, 1), (3, 2)])
def test_it_learns_an_additive_problem(n_outputs: int, n_targets: int) -> None:
    found = observations(160, n_outputs=n_outputs, n_targets=n_targets)
    new = found.of(slice(120, None))
    predicted = fitted(found, 120, n_targets).predict(new.codes)
    assert np.sqrt(np.mean((predicted.snr_db - new.snr_db.min(axis=1)) ** 2)) < 1.5
    assert np.sqrt(np.mean((predicted.ratios - new.ratios) ** 2)) < 0.03


def test_targets_are_learned_as_if_each_were_alone() -> None:
    found = observations(60, n_targets=3)
    together = fitted(found, 50, 3).predict(found.codes[50:])
    for i in range(3):
        alone = replace(found, ratios=found.ratios[:, i : i + 1], errors=found.errors[:, i : i + 1])
        predicted = fitted(alone, 50).predict(found.codes[50:])
        assert np.array_equal(together.ratios[:, i], predicted.ratios[:, 0])
        assert np.array_equal(together.ratio_errors[:, i], predicted.ratio_errors[:, 0])


def test_what_is_expected_of_latencies_is_expected_on_every_target() -> None:
    layout, found = a_layout(N_REGIONS), observations(6, n_targets=2)
    found = replace(found, ratios=found.ratios[:, [0, 0]])
    shape, n_borders = (N_REGIONS, layout.n_kinds), len(layout.edges)
    prior = LatencyPrior(
        base=1.0,
        change=-np.linspace(0, 0.1, N_REGIONS * layout.n_kinds).reshape(shape),
        spread=np.full(shape, 0.01),
        border=np.full(n_borders, 0.001),
        border_spread=np.full(n_borders, 0.001),
    )
    surrogate, without = Surrogate(layout, 2, prior), Surrogate(layout, 2)
    for each in (surrogate, without):
        each.fit(found.of(slice(2)))
    first, second = surrogate.predict(found.codes[2:]).ratios.T
    assert np.array_equal(first, second)
    assert not np.allclose(first, without.predict(found.codes[2:]).ratios[:, 0])


def test_its_intervals_hold_what_they_say() -> None:
    inside = []
    for seed in range(4):
        found = observations(150, seed=seed)
        new = found.of(slice(60, None))
        predicted = fitted(found, 60).predict(new.codes)
        errors = np.hypot(predicted.ratio_errors, new.errors)[:, 0]
        inside.append(
            (
                np.mean(np.abs(predicted.snr_db - new.snr_db[:, 0]) < 1.645 * predicted.snr_error_db),
                np.mean(np.abs(predicted.ratios - new.ratios)[:, 0] < 1.645 * errors),
            )
        )
    assert (np.mean(inside, axis=0) > 0.8).all()
    assert (np.mean(inside, axis=0) < 0.99).all()


def test_more_evaluations_leave_less_doubt() -> None:
    found = observations(200)
    few, many = (fitted(found, n).predict(found.codes[150:]) for n in (20, 140))
    assert (many.snr_error_db < few.snr_error_db).mean() > 0.9
    assert (many.ratio_errors < few.ratio_errors).all()


def test_a_ratio_that_is_left_out_moves_nothing_that_the_others_say_of_it() -> None:
    found = observations(40, n_targets=2)
    untimed = np.arange(40) == 3
    found = replace(found, ratios=np.where(untimed[:, None], np.nan, found.ratios))
    surrogate = Surrogate(a_layout(N_REGIONS), 2)
    surrogate.fit(found)
    ratios, errors = surrogate.left_out(found)
    after = surrogate.predict(found.codes)
    assert (np.isnan(ratios) == untimed[:, None]).all()
    assert (np.abs(ratios - found.ratios) > np.abs(after.ratios - found.ratios))[~untimed].all()
    assert (errors > after.ratio_errors)[~untimed].all()


def test_an_evaluation_that_was_stopped_early_counts_less() -> None:
    whole = observations(60)
    quick = Observations(whole.codes, whole.snr_db, whole.ratios, whole.errors, np.ones(60, dtype=bool))
    sure, unsure = (fitted(found, 60).predict(whole.codes) for found in (whole, quick))
    assert (unsure.snr_error_db > sure.snr_error_db).all()


def test_a_target_that_was_measured_better_is_known_better() -> None:
    found = observations(60)
    both = Observations(
        found.codes, found.snr_db, np.repeat(found.ratios, 2, axis=1), np.tile([0.001, 0.2], (60, 1)), found.is_quick
    )
    predicted = fitted(both, 60, n_targets=2).predict(observations(30, seed=9).codes)
    assert (predicted.ratio_errors[:, 0] < predicted.ratio_errors[:, 1]).all()


def test_the_mean_of_the_draws_is_near_the_mean() -> None:
    rng = np.random.default_rng(0)
    found = observations(100)
    surrogate = fitted(found, 100)
    mean, draws = surrogate.landscape(), surrogate.landscapes(rng, 300)
    assert np.allclose(np.mean([draw.own for draw in draws], axis=0), mean.own, atol=0.01)
    logs = [np.log(draw.noise[:, :, 1:]) for draw in draws]
    assert np.allclose(np.mean(logs, axis=0), np.log(mean.noise[:, :, 1:]), atol=0.5)
    assert (mean.noise[:, :, 0] == 0).all()


def test_evaluations_without_a_latency_teach_noise_alone() -> None:
    found = observations(80)
    untimed = np.arange(80) >= 40
    half = Observations(
        found.codes, found.snr_db, np.where(untimed[:, None], np.nan, found.ratios), found.errors, found.is_quick
    )
    assert (half.is_timed == ~untimed).all()
    few, mixed, many = (fitted(part, len(part)) for part in (found.of(slice(40)), half, found))
    new = observations(30, seed=9).codes
    np.testing.assert_allclose(mixed.predict(new).snr_db, many.predict(new).snr_db)
    assert np.mean(np.abs(mixed.predict(new).ratios - few.predict(new).ratios)) < 0.02


def test_equal_outputs_and_lost_ones_leave_it_finite() -> None:
    found = observations(20)
    extreme = Observations(found.codes, np.where(found.codes[:, :1] == 1, 200.0, -200.0), *_rest(found))
    predicted = fitted(extreme, 20).predict(found.codes)
    assert np.isfinite(predicted.snr_db).all()
    assert np.isfinite(predicted.snr_error_db).all()


def _rest(found: Observations) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.ratios, found.errors, found.is_quick


def test_it_says_how_many_evaluations_it_was_fitted_to() -> None:
    surrogate = Surrogate(a_layout(N_REGIONS))
    assert surrogate.n_observed == 0
    surrogate.fit(observations(20))
    assert surrogate.n_observed == 20


def test_only_outputs_that_are_the_worst_one_of_an_evaluation_are_modelled() -> None:
    found = observations(20, n_outputs=2)
    snr_db = np.where(np.arange(20)[:, None] == 0, 200.0, np.array([[90.0, 30.0]]))
    surrogate = fitted(Observations(found.codes, snr_db, *_rest(found)), 20)
    assert len(surrogate.landscape().noise) == 1
    assert surrogate.predict(found.codes).snr_db[1:] == pytest.approx(np.full(19, 30.0), abs=10)
    only_float = Observations(found.codes[:1], snr_db[:1], *(part[:1] for part in _rest(found)))
    assert len(fitted(only_float, 1).landscape().noise) == 1
