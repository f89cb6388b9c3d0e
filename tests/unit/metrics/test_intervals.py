import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.metrics.intervals import (
    drop_interval,
    jackknife_groups,
    jackknife_interval,
    mean_interval,
    share_interval,
)

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=40)
COUNTS = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=40)
PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 1.0])), min_size=1, max_size=40)
OTHER_PAIRS = st.lists(st.tuples(st.floats(0, 1), st.floats(-3, 3)), min_size=1, max_size=40)


@given(scores=SHARES | COUNTS)
def test_the_interval_of_a_share_contains_the_mean_and_stays_within_0_and_1(scores: list[float]) -> None:
    values = np.array(scores)
    low, high = share_interval(values, 0)
    assert low <= values.mean() <= high
    assert (low >= 0 and high <= 1) or len(scores) < 6 or min(scores) == max(scores)


@given(pairs=PAIRS | OTHER_PAIRS)
def test_the_interval_of_a_drop_contains_it(pairs: list[tuple[float, float]]) -> None:
    reference, candidate = np.array(pairs).T
    low, high = drop_interval(reference, candidate, 0)
    assert low <= (reference - candidate).mean() <= high


@given(pairs=PAIRS)
def test_the_interval_of_a_drop_mirrors(pairs: list[tuple[float, float]]) -> None:
    reference, candidate = np.array(pairs).T
    low, high = drop_interval(reference, candidate, 0)
    assert drop_interval(candidate, reference, 0) == pytest.approx((-high, -low))


@pytest.mark.parametrize("n", [5, 12])
def test_what_scores_that_are_no_counts_and_do_not_differ_drop_elsewhere_is_not_known(n: int) -> None:
    scores = np.linspace(0.25, 0.75, n)
    assert drop_interval(scores, scores, 0) == (-math.inf, math.inf)


@pytest.mark.parametrize("n", [6, 8, 12])
def test_means_of_few_scores_are_covered_about_as_often_as_they_say(n: int) -> None:
    """As SNRs of as few samples; plain percentiles cover 87 to 92 %."""
    rng = np.random.default_rng(n)
    found = [mean_interval(rng.standard_normal(n), seed) for seed in range(400)]
    assert 0.89 < np.mean([low <= 0 <= high for low, high in found]) < 0.98


def test_wilson_as_published() -> None:
    # Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", 2001: n = 10, none and half are right
    assert share_interval(np.zeros(10), 0) == pytest.approx((0, 0.2775), abs=1e-4)
    assert share_interval(np.repeat([0.0, 1.0], 5), 0) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_bonett_and_price_in_closed_form() -> None:
    # 2 of 30 became wrong, 1 became right: shares 3/32 and 2/32
    reference, candidate = np.array([1.0, 1.0, 0.0] + [1.0] * 27), np.array([0.0, 0.0, 1.0] + [1.0] * 27)
    half = 1.959964 * math.sqrt((5 / 32 - (1 / 32) ** 2) / 32)
    assert drop_interval(reference, candidate, 0) == pytest.approx((1 / 32 - half, 1 / 32 + half), abs=1e-6)


def test_all_right_is_not_certainty() -> None:
    low, high = share_interval(np.ones(32), 0)
    assert (low, high) == pytest.approx((0.8928, 1.0), abs=1e-3)
    low, high = drop_interval(np.ones(32), np.ones(32), 0)
    assert low == pytest.approx(-high)
    assert 0 < high < 0.1


def test_the_bootstrap_is_close_to_the_normal_interval_and_repeats() -> None:
    values = np.random.default_rng(0).normal(3, 1, 400)
    low, high = mean_interval(values, 0)
    half = 1.96 * values.std() / 20
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.02)
    assert mean_interval(values, 0) == (low, high)


def test_many_values_are_resampled_in_blocks() -> None:
    values = np.random.default_rng(0).normal(0, 1, 3000)
    low, high = mean_interval(values, 1)
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(3000), rel=0.1)


def test_a_single_score_says_nothing_of_others() -> None:
    assert mean_interval(np.array([0.5]), 0) == (-math.inf, math.inf)


@given(n_samples=st.integers(0, 100), seed=st.integers(0, 5))
def test_each_sample_is_left_out_once(n_samples: int, seed: int) -> None:
    groups = jackknife_groups(n_samples, seed)
    assert len(groups) == (min(10, n_samples) if n_samples > 2 else 0)
    left_out = [i for kept in groups for i in sorted(set(range(n_samples)) - set(kept.tolist()))]
    assert sorted(left_out) == (list(range(n_samples)) if groups else [])


@given(values=st.lists(st.integers(-100, 100), min_size=10, max_size=10).filter(lambda values: len(set(values)) > 1))
def test_of_a_mean_with_one_sample_a_group_the_jackknife_is_the_t_interval(values: list[int]) -> None:
    numbers = np.array(values, np.float64)
    replicates = [float(np.delete(numbers, i).mean()) for i in range(10)]
    half = 2.262 * numbers.std(ddof=1) / math.sqrt(10)
    mean = float(numbers.mean())
    assert jackknife_interval(mean, replicates) == pytest.approx((mean - half, mean + half), abs=1e-9)


@pytest.mark.parametrize("replicates", [[], [1.0], [1.0, math.nan], [1.0, 1.0, 1.0]])
def test_an_interval_without_replicates_that_differ_is_unknown(replicates: list[float]) -> None:
    assert jackknife_interval(1.0, replicates) == (-math.inf, math.inf)


def test_intervals_cover_the_true_share_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = [
        low <= 0.9 <= high
        for low, high in (share_interval(rng.binomial(1, 0.9, 40).astype(np.float64), 0) for _ in range(500))
    ]
    assert 0.92 <= np.mean(hits) <= 1


def test_paired_intervals_cover_the_true_drop_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    kinds = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # float's score and the candidate's
    draws = [kinds[rng.choice(3, p=[0.02, 0.08, 0.9], size=60)] for _ in range(500)]
    hits = [low <= 0.06 <= high for low, high in (drop_interval(d[:, 0], d[:, 1], 0) for d in draws)]
    assert 0.92 <= np.mean(hits) <= 1
