from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.gaussian import condition


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 99))
def test_it_is_ridge_regression(n: int, n_weights: int, seed: int) -> None:
    """Bishop, "Pattern Recognition and Machine Learning", 2006, equations 3.53 and 3.59."""
    rng = np.random.default_rng(seed)
    design, observed = rng.standard_normal((n, n_weights)), rng.standard_normal(n)
    variances = rng.uniform(0.1, 2, n)
    found = condition(design, observed, variances)
    covariance = np.linalg.inv(np.eye(n_weights) + design.T @ (design / variances[:, None]))
    assert np.allclose(found.mean, covariance @ design.T @ (observed / variances))
    further = rng.standard_normal((3, n_weights))
    assert np.allclose(found.variance(further), np.diag(further @ covariance @ further.T))


@given(st.integers(2, 8), st.integers(1, 8), st.integers(0, 99))
def test_what_the_others_say_of_an_observation_is_said_without_it(n: int, n_weights: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    design, observed, variances = rng.standard_normal((n, n_weights)), rng.standard_normal(n), rng.uniform(0.1, 2, n)
    distances, found = condition(design, observed, variances).left_out()
    for i in range(n):
        others = np.arange(n) != i
        without = condition(design[others], observed[others], variances[others])
        assert np.isclose(observed[i] - distances[i], design[i] @ without.mean)
        assert np.isclose(found[i], without.variance(design[i : i + 1])[0])


def test_draws_have_the_posterior_mean_and_covariance() -> None:
    rng = np.random.default_rng(0)
    design = rng.standard_normal((4, 3))
    found = condition(design, rng.standard_normal(4), np.full(4, 0.5))
    draws = found.draws(rng, 20_000)
    covariance = np.linalg.inv(np.eye(3) + design.T @ design / 0.5)
    assert np.allclose(draws.mean(axis=0), found.mean, atol=0.02)
    assert np.allclose(np.cov(draws.T), covariance, atol=0.02)


def test_draws_are_around_a_mean_that_was_moved() -> None:
    design = np.random.default_rng(0).standard_normal((4, 3))
    found = condition(design, np.ones(4), np.full(4, 0.5))
    step = np.array([0.5, -1.0, 0.0])
    moved = replace(found, mean=found.mean + step)
    before, after = (each.draws(np.random.default_rng(1), 10) for each in (found, moved))
    assert np.allclose(after - before, step)


def test_without_observations_it_is_the_prior() -> None:
    found = condition(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    assert np.array_equal(found.mean, np.zeros(3))
    assert np.array_equal(found.variance(np.eye(3)), np.ones(3))


def test_more_likely_observations_have_more_evidence() -> None:
    design = np.ones((30, 1))
    observed = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(30)
    evidence = {error: condition(design, observed, np.full(30, error**2)).log_evidence for error in (0.02, 0.1, 0.5)}
    assert max(evidence, key=lambda error: evidence[error]) == 0.1
