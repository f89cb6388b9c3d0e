from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.calibration.methods import choose_range, relative_error
from autoquant.domain.scales import scale_of
from autoquant.domain.scheme import RangeMethod, TensorFormat
from autoquant.domain.statistics import N_BINS, CalibrationRange, TensorStatistics

Floats = npt.NDArray[np.float64]

METHODS = [RangeMethod.parse(text) for text in ("min-max", "percentile-99.9", "percentile-75", "mse", "entropy")]
FORMATS = [
    TensorFormat.parse(f"{dtype}:tensor:{symmetry}{scales}")
    for dtype in ("u8", "s8", "u16", "s16")
    for symmetry in ("asym", "sym")
    for scales in ("", ":pow2")
]
U8 = TensorFormat.parse("u8:tensor:asym")
S8 = TensorFormat.parse("s8:tensor:sym")
MIN_MAX, MSE, ENTROPY = (RangeMethod.parse(text) for text in ("min-max", "mse", "entropy"))

finite = st.just(0.0) | st.floats(-1000, 1000, width=32)
arrays = hnp.arrays(np.float64, st.integers(1, 200), elements=finite)
formats = st.sampled_from(FORMATS)


def observe(values: Floats) -> TensorStatistics:
    largest = float(np.abs(values).max())
    limit = max(2.0 ** np.frexp(largest)[1], 2.0**-100) if largest else 0.0
    counts = np.histogram(values[values != 0], N_BINS, (-limit, limit))[0] if limit else np.zeros(N_BINS)
    return TensorStatistics(
        minimum=float(values.min()),
        maximum=float(values.max()),
        limit=float(limit),
        counts=counts.astype(np.int64),
        n_zeros=int((values == 0).sum()),
    )


def normal(n: int = 100_000) -> Floats:
    return np.random.default_rng(0).normal(size=n)


def bin_width(values: Floats) -> float:
    return observe(values).limit / (N_BINS // 2)


def quantization_error(values: Floats, chosen: CalibrationRange, tensor_format: TensorFormat) -> float:
    """Mean squared error of QuantizeLinear and DequantizeLinear, value by value."""
    low, high = min(chosen.low, 0.0), max(chosen.high, 0.0)
    lowest, highest = tensor_format.integer_range()
    if tensor_format.symmetric:
        low, high = -max(-low, high), max(-low, high)
    scale = float(scale_of(np.array(low), np.array(high), tensor_format))
    zero_point = np.round((lowest + highest) / 2 if tensor_format.symmetric else lowest - low / scale)
    integers = np.clip(np.round(values / scale) + zero_point, tensor_format.dtype.lowest, tensor_format.dtype.highest)
    return float(np.mean((values - (integers - zero_point) * scale) ** 2))


@given(arrays, formats, st.sampled_from(METHODS))
def test_every_range_lies_inside_the_values_and_zero(
    values: Floats, tensor_format: TensorFormat, method: RangeMethod
) -> None:
    chosen = choose_range(observe(values), method, tensor_format)
    assert min(values.min(), 0) <= chosen.low <= chosen.high <= max(values.max(), 0)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
def test_the_smallest_values_have_a_range(method: RangeMethod, tensor_format: TensorFormat) -> None:
    smallest = np.array([np.finfo(np.float32).tiny])
    chosen = choose_range(observe(smallest), method, tensor_format)
    assert 0 <= chosen.low <= chosen.high <= smallest[0]


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
def test_a_tensor_of_zeros_has_the_range_zero(method: RangeMethod, tensor_format: TensorFormat) -> None:
    assert choose_range(observe(np.zeros(3)), method, tensor_format) == CalibrationRange(0, 0)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
@pytest.mark.parametrize("constant", [3.3, -0.7])
def test_the_range_of_a_constant_reaches_to_it(
    method: RangeMethod, tensor_format: TensorFormat, constant: float
) -> None:
    chosen = choose_range(observe(np.full(100, constant)), method, tensor_format)
    end = chosen.high if constant > 0 else chosen.low
    # Within a step: the grid of u8:tensor:sym does not hold the ends of its range.
    assert end == pytest.approx(constant, rel=1 / 127)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
def test_a_one_sided_tensor_keeps_zero_as_its_other_end(method: RangeMethod, tensor_format: TensorFormat) -> None:
    values = np.maximum(normal(), 0)
    assert choose_range(observe(values), method, tensor_format).low == 0
    assert choose_range(observe(-values), method, tensor_format).high == 0


def test_min_max_is_exact() -> None:
    statistics = observe(np.array([2.0, 5.1, 3.3]))
    assert choose_range(statistics, MIN_MAX, U8) == CalibrationRange(2.0, 5.1)


@given(arrays, st.floats(51, 99.99))
def test_a_percentile_by_magnitude_is_numpys_within_the_gap_between_values(values: Floats, percent: float) -> None:
    chosen = choose_range(observe(values), RangeMethod.parse(f"percentile-{percent:.6f}"), S8)
    magnitudes = np.abs(values)
    lower = np.quantile(magnitudes, float(f"{percent:.6f}") / 100, method="lower")
    higher = np.quantile(magnitudes, float(f"{percent:.6f}") / 100, method="higher")
    if (1 - float(f"{percent:.6f}") / 100) * values.size >= np.count_nonzero(values):
        lower = higher = magnitudes.max()  # rather than nothing but zeros
    width = bin_width(values)
    ends = np.abs([chosen.low, chosen.high])
    assert lower - width <= ends.max() <= higher + width


@pytest.mark.parametrize("percent", [90, 99, 99.9])
def test_a_two_sided_percentile_keeps_its_share_and_cuts_each_end_by_its_share_of_magnitude(percent: float) -> None:
    values = np.where(normal() > 0, 3 * normal(), normal())
    chosen = choose_range(observe(values), RangeMethod.parse(f"percentile-{percent}"), U8)
    tail = 1 - percent / 100
    share_low = -values[values < 0].sum() / np.abs(values).sum()
    # One bin, and one for the gaps between values far out.
    tolerance = 2 * bin_width(values)
    assert chosen.low == pytest.approx(np.quantile(values, tail * share_low), abs=tolerance)
    assert chosen.high == pytest.approx(np.quantile(values, 1 - tail * (1 - share_low)), abs=tolerance)
    inside = (values >= chosen.low) & (values <= chosen.high)
    assert 100 * inside.mean() == pytest.approx(percent, abs=0.05)


def test_a_percentile_counts_zeros() -> None:
    values = np.concatenate([np.zeros(900), np.linspace(0.01, 1, 100)])
    chosen = choose_range(observe(values), RangeMethod.parse("percentile-95"), U8)
    assert chosen.high == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
def test_a_percentile_that_would_leave_nothing_but_zeros_is_min_max(tensor_format: TensorFormat) -> None:
    values = np.append(np.zeros(100_000), [2.5, -1.0, 0.5])
    chosen = choose_range(observe(values), RangeMethod.parse("percentile-99.99"), tensor_format)
    assert chosen == CalibrationRange(-1.0, 2.5)


def test_a_percentile_between_bulk_and_outlier_cuts_to_the_bulk() -> None:
    values = np.append(np.linspace(-1, 1, 999), 100.0)
    for tensor_format in (U8, S8):
        chosen = choose_range(observe(values), RangeMethod.parse("percentile-99.8"), tensor_format)
        assert chosen.high == pytest.approx(1, abs=bin_width(values))


@pytest.mark.parametrize("tensor_format", FORMATS, ids=str)
@pytest.mark.parametrize("fraction", [1.0, 0.6, 0.1])
def test_the_expected_error_is_that_of_quantizing_every_value(tensor_format: TensorFormat, fraction: float) -> None:
    values = np.where(normal() > 0, 3 * normal(), normal())
    chosen = CalibrationRange(float(values.min()) * fraction, float(values.max()) * fraction)
    expected = relative_error(observe(values), chosen, tensor_format)
    share = quantization_error(values, chosen, tensor_format) / np.mean(np.square(values))
    assert expected == pytest.approx(share, rel=0.03)


def test_exact_zeros_cost_nothing() -> None:
    values = normal(10_000)
    chosen = CalibrationRange(float(values.min()), float(values.max()))
    error = relative_error(observe(values), chosen, U8)
    assert relative_error(observe(np.append(values, np.zeros(30_000))), chosen, U8) == pytest.approx(error)


def test_a_value_on_the_grid_costs_nothing() -> None:
    assert relative_error(observe(np.full(9, 3.3)), CalibrationRange(0, 3.3), U8) == pytest.approx(0, abs=1e-20)


def test_a_range_without_width_has_the_scale_one() -> None:
    error = relative_error(observe(np.full(9, 2.25)), CalibrationRange(0, 0), U8)
    assert error == pytest.approx((0.25 / 2.25) ** 2, rel=1e-3)


@given(arrays, formats)
def test_mse_never_expects_more_error_than_min_max(values: Floats, tensor_format: TensorFormat) -> None:
    statistics = observe(values)
    errors = [
        relative_error(statistics, choose_range(statistics, method, tensor_format), tensor_format)
        for method in (MSE, MIN_MAX)
    ]
    assert errors[0] <= errors[1]


@pytest.mark.parametrize("name", ["normal", "laplace", "relu", "outlier", "silu"])
def test_mse_is_within_two_percent_of_the_best_symmetric_range_by_brute_force(name: str) -> None:
    rng = np.random.default_rng(1)
    values = {
        "normal": normal(),
        "laplace": rng.laplace(size=100_000),
        "relu": np.maximum(normal(), 0),
        "outlier": np.append(normal(), 30),
        "silu": 3 * normal() / (1 + np.exp(-3 * normal())),
    }[name]
    statistics = observe(values)
    largest = float(np.abs(values).max())
    best = min(quantization_error(values, CalibrationRange(-t, t), S8) for t in np.geomspace(largest, largest / 20, 60))
    assert quantization_error(values, choose_range(statistics, MSE, S8), S8) <= 1.02 * best


def test_mse_shrinks_both_ends_of_an_asymmetric_range_independently() -> None:
    values = np.append(np.maximum(normal(), -0.2), 12)
    chosen = choose_range(observe(values), MSE, U8)
    assert chosen.low < -0.15
    assert 3 < chosen.high < 11.5


def test_mse_keeps_all_values_where_steps_are_fine() -> None:
    values = normal()
    chosen = choose_range(observe(values), MSE, TensorFormat.parse("u16:tensor:asym"))
    assert chosen == CalibrationRange(values.min(), values.max())


@pytest.mark.parametrize("tensor_format", [U8, S8], ids=str)
@pytest.mark.parametrize("is_one_sided", [False, True])
def test_entropy_cuts_an_outlier_and_keeps_nearly_all_values(tensor_format: TensorFormat, is_one_sided: bool) -> None:
    values = np.append(np.maximum(normal(), 0) if is_one_sided else normal(), 30)
    chosen = choose_range(observe(values), ENTROPY, tensor_format)
    assert chosen.high < 6
    assert ((values >= chosen.low) & (values <= chosen.high)).mean() > 0.99


@pytest.mark.parametrize("tensor_format", [U8, S8], ids=str)
def test_entropy_keeps_all_of_an_even_distribution(tensor_format: TensorFormat) -> None:
    values = np.linspace(-1, 1, 100_001)
    chosen = choose_range(observe(values), ENTROPY, tensor_format)
    assert chosen.low == pytest.approx(-1, abs=0.01)
    assert chosen.high == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("tensor_format", [U8, S8], ids=str)
def test_entropy_keeps_a_tensor_of_few_distinct_values(tensor_format: TensorFormat) -> None:
    values = np.random.default_rng(0).integers(-3, 4, 10_000).astype(np.float64)
    assert choose_range(observe(values), ENTROPY, tensor_format) == CalibrationRange(-3, 3)


def test_entropy_agrees_with_the_published_loop_over_thresholds() -> None:
    values = np.append(np.random.default_rng(2).laplace(size=20_000), 25)
    statistics = observe(values)
    counts = statistics.counts[N_BINS // 2 :] + statistics.counts[: N_BINS // 2][::-1]
    chosen = choose_range(statistics, ENTROPY, S8)
    chosen_bins = round(max(-chosen.low, chosen.high) / bin_width(values))
    least = min(published_divergence(counts, n) for n in range(128, counts.size + 1, 16) if counts[n - 1])
    assert published_divergence(counts, chosen_bins) <= 1.01 * least


def published_divergence(counts: npt.NDArray[np.int64], n_bins: int) -> float:
    """Migacz 2017, slide 38, for one threshold; its level edges, where the bins do not divide evenly, are ours."""
    inside = counts[:n_bins]
    if inside.sum() < 0.95 * counts.sum():
        return np.inf
    reference = inside.astype(np.float64)
    reference[-1] += counts[n_bins:].sum()
    levels = n_bins * np.arange(129) // 128
    candidate = np.zeros(n_bins)
    for left, right in pairwise(levels):
        group = inside[left:right]
        candidate[left:right] = np.where(group > 0, group.sum() / max(int((group > 0).sum()), 1), 0)
    p, q = reference / reference.sum(), candidate / candidate.sum()
    return float((p[p > 0] * np.log(p[p > 0] / q[p > 0])).sum())


def test_a_tensor_of_zeros_has_no_relative_error() -> None:
    assert relative_error(observe(np.zeros(9)), CalibrationRange(0.0, 0.0), U8) == 0.0
