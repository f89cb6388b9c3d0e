from dataclasses import replace

import numpy as np

from autoquant.study.landscape import Landscape
from autoquant.study.surrogate import Observations, Surrogate
from experiments.search.forecasters import LeastSquares, PriorOnly
from tests.unit.study.layouts import WITH_DYNAMIC, a_landscape, a_layout, every_assignment

LAYOUT = a_layout(4)
EVERY = np.random.default_rng(0).permutation(every_assignment(LAYOUT))


def observed(landscape: Landscape, codes: np.ndarray) -> Observations:
    return Observations(
        codes=codes,
        snr_db=-10 * np.log10(landscape.noise_of(codes)),
        ratios=landscape.ratios_of(codes),
        errors=np.zeros((len(codes), 1)),
        is_quick=np.zeros(len(codes), dtype=bool),
    )


def test_least_squares_finds_what_is_additive() -> None:
    landscape = a_landscape(LAYOUT, n_outputs=1)
    forecaster = LeastSquares(LAYOUT)
    forecaster.fit(observed(landscape, EVERY[:40]))
    predicted = forecaster.predict(EVERY[40:])
    np.testing.assert_allclose(predicted.snr_db, -10 * np.log10(landscape.noise_of(EVERY[40:])[:, 0]), atol=0.01)
    np.testing.assert_allclose(predicted.ratios, landscape.ratios_of(EVERY[40:]), atol=1e-6)


def test_its_errors_become_as_large_as_they_were() -> None:
    exact = observed(a_landscape(LAYOUT), EVERY)
    off = replace(exact, ratios=exact.ratios + np.random.default_rng(0).normal(0, 0.02, exact.ratios.shape))
    forecaster = LeastSquares(LAYOUT)
    for n in range(10, len(off.codes)):
        forecaster.fit(off.of(slice(n)))
    predicted = forecaster.predict(EVERY[:1])
    assert predicted.snr_error_db[0] < 5
    assert 0.02 < predicted.ratio_errors[0, 0] < 0.1


def test_the_prior_learns_nothing() -> None:
    forecaster, found = PriorOnly(Surrogate(LAYOUT)), observed(a_landscape(LAYOUT), EVERY)
    before = forecaster.predict(EVERY)
    forecaster.fit(found)
    np.testing.assert_array_equal(forecaster.predict(EVERY).snr_db, before.snr_db)


def test_least_squares_has_a_term_for_schemes_with_ranges_at_run_time() -> None:
    layout = a_layout(4, schemes=WITH_DYNAMIC)
    every = np.random.default_rng(0).permutation(every_assignment(layout))
    landscape, forecaster = a_landscape(layout), LeastSquares(layout)
    forecaster.fit(observed(landscape, every[:80]))
    predicted = forecaster.predict(every[80:])
    np.testing.assert_allclose(predicted.ratios, landscape.ratios_of(every[80:]), atol=1e-6)
