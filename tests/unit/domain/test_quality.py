import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.domain.quality import QualityMeter, snr_db

Floats = npt.NDArray[np.float32]
samples = st.lists(hnp.arrays(np.float32, (2, 3), elements=st.floats(-100, 100, width=32)), min_size=1, max_size=5)


def floats_of(*values: float) -> Floats:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [(1.0, 1.0, 0.0), (1.0, 0.001, 30.0), (5.0, 0.0, math.inf), (0.0, 0.0, math.inf), (0.0, 1.0, -math.inf),
     (1.0, math.inf, -math.inf), (1.0, math.nan, -math.inf)],
)  # fmt: skip
def test_decibels_of_two_powers(signal: float, noise: float, expected: float) -> None:
    assert snr_db(signal, noise) == pytest.approx(expected)


@given(samples, st.floats(0.001, 0.5))
def test_powers_are_pooled_over_all_samples(references: list[Floats], error: float) -> None:
    meter = QualityMeter(["y"])
    candidates = [ref + np.float32(error) for ref in references]
    for ref, out in zip(references, candidates, strict=True):
        meter.add([ref], [out])
    true, found = (np.concatenate(arrays).astype(np.float64) for arrays in (references, candidates))
    assert meter.quality().per_output["y"] == pytest.approx(
        snr_db(float((true**2).sum()), float(((true - found) ** 2).sum()))
    )
    assert meter.quality().n_samples == len(references)


@pytest.mark.parametrize("element", [0, -1])
def test_powers_are_of_all_elements_of_an_output_however_many_there_are(element: int) -> None:
    reference = np.ones(40_000, np.float32)
    candidate = reference.copy()
    candidate[element] = 0
    meter = QualityMeter(["y"])
    meter.add([reference], [candidate])
    assert meter.quality().worst_db == pytest.approx(10 * math.log10(40_000))


def test_the_order_of_samples_does_not_count() -> None:
    pairs = [(floats_of(1, 2), floats_of(1, 3)), (floats_of(100), floats_of(90))]
    found = []
    for order in (pairs, pairs[::-1]):
        meter = QualityMeter(["y"])
        for ref, out in order:
            meter.add([ref], [out])
        found.append(meter.quality())
    assert found[0] == found[1]


def test_integers_that_are_numbers_have_an_snr_and_keep_their_sign() -> None:
    meter = QualityMeter(["y", "n"], frozenset({"y"}))
    for _ in range(2):
        meter.add([np.array([200, 100], np.uint8), np.arange(2)], [np.array([201, 99], np.uint8), np.arange(2)])
    assert meter.quality().per_output == {"y": pytest.approx(10 * math.log10((200**2 + 100**2) / 2))}
    assert meter.quality().agreement == {"n": 1.0}
    assert meter.part(range(1)).quality().per_output == meter.quality().per_output


def test_equal_strings_are_counted() -> None:
    meter = QualityMeter(["label"])
    for found in ("cat", "dog", "cat"):
        meter.add([np.array(["cat"], dtype=object)], [np.array([found], dtype=object)])
    assert meter.quality().agreement == {"label": pytest.approx(2 / 3)}
    assert meter.interval(seed=0).worst_db == meter.quality().worst_db < 10


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_no_signal_and_noise_only_where_it_differs(value: float) -> None:
    reference = floats_of(3.0, value, 4.0)
    for candidate, expected in ((floats_of(3.0, value, 4.5), 20.0), (floats_of(3.0, 7.0, 4.0), -math.inf)):
        meter = QualityMeter(["y"])
        meter.add([reference], [candidate])
        assert meter.quality().worst_db == pytest.approx(expected)


def test_doubles_whose_squares_are_beyond_doubles_are_finite() -> None:
    meter = QualityMeter(["y"])
    meter.add([np.array([1e200, 1.0])], [np.array([1e200, 1.0])])
    assert meter.quality().worst_db == math.inf


@pytest.mark.parametrize(("found", "agreement"), [([], 1.0), ([7, 8, 9], 0.0)])
def test_integers_that_are_not_there_agree_where_there_are_none(found: list[int], agreement: float) -> None:
    meter = QualityMeter(["n"])
    for _ in range(3):
        meter.add([np.array([], np.int64)], [np.array(found, np.int64)])
    assert meter.quality().agreement == {"n": agreement}
    assert meter.quality().worst_db == meter.interval(seed=0).worst_db == (math.inf if agreement else 0.0)


def test_elements_too_many_do_not_agree() -> None:
    meter = QualityMeter(["n"])
    meter.add([np.array([1, 2])], [np.array([1, 2])])
    meter.add([np.array([], np.int64)], [np.array([5, 6])])
    assert meter.quality().agreement == {"n": 0.5}


def test_equal_outputs_are_infinitely_good_and_the_worst_output_counts() -> None:
    meter = QualityMeter(["a", "b", "n"])
    meter.add(
        [floats_of(1), floats_of(10), np.array([1, 2, 3, 4])],
        [floats_of(1), floats_of(9), np.array([1, 2, 0, 4])],
    )
    quality = meter.quality()
    assert quality.per_output == {"a": math.inf, "b": pytest.approx(20)}
    assert quality.agreement == {"n": 0.75}
    assert quality.worst_db == pytest.approx(20)


@pytest.mark.parametrize(
    "broken", [floats_of(1, 2), floats_of(1, 2, 3).reshape(3, 1), floats_of(1, math.nan, 3), floats_of(1, math.inf, 3)]
)
def test_an_output_of_another_shape_or_that_is_not_finite_is_all_noise(broken: Floats) -> None:
    meter = QualityMeter(["y"])
    meter.add([floats_of(1, 2, 3)], [broken])
    meter.add([floats_of(1, 2, 3)], [floats_of(1, 2, 3)])
    assert meter.quality().worst_db == -math.inf


def test_an_output_that_is_zero_on_all_samples_is_not_judged_beside_others() -> None:
    meter = QualityMeter(["y", "silent"])
    for _ in range(6):
        meter.add([floats_of(10), floats_of(0, 0)], [floats_of(9), floats_of(0, 0.5)])
    assert meter.quality().per_output == {"y": pytest.approx(20)}
    assert meter.interval(seed=0).low_db == pytest.approx(20)
    meter.add([floats_of(10), floats_of(0, 0)], [floats_of(9), floats_of(0, math.nan)])
    assert meter.quality().per_output == {"y": pytest.approx(20), "silent": -math.inf}


def test_counted_outputs_judge_where_float_ones_are_zero_on_all_samples() -> None:
    meter = QualityMeter(["z", "n"])
    for unlike in range(8):
        meter.add([floats_of(0, 0), np.array([1, 2])], [floats_of(0, 0), np.array([1, 2 + unlike % 2])])
    quality = meter.quality()
    assert (quality.per_output, quality.agreement) == ({}, {"n": 0.75})
    assert quality.worst_db == meter.interval(seed=0).worst_db == pytest.approx(10 * math.log10(4))
    meter.add([floats_of(0, 0), np.array([1, 2])], [floats_of(0, math.inf), np.array([1, 2])])
    assert meter.quality().worst_db == -math.inf


def test_where_all_is_zero_any_noise_is_all_noise() -> None:
    meter = QualityMeter(["a", "b"])
    meter.add([floats_of(0), floats_of(0)], [floats_of(0), floats_of(1e-9)])
    assert meter.quality().per_output == {"a": math.inf, "b": -math.inf}


def test_an_integer_output_of_another_shape_agrees_nowhere() -> None:
    meter = QualityMeter(["n"])
    meter.add([np.array([True, False])], [np.array([True])])
    meter.add([np.array([True, False])], [np.array([True, False])])
    assert meter.quality().agreement == {"n": 0.5}
    assert meter.quality().worst_db == pytest.approx(10 * math.log10(2))


def test_without_float_outputs_only_full_agreement_is_equal() -> None:
    meter = QualityMeter(["n"])
    meter.add([np.array([True, False])], [np.array([True, False])])
    assert meter.quality().worst_db == math.inf


def test_another_number_of_outputs_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        QualityMeter(["y"]).add([floats_of(1)], [])


def test_half_precision_outputs_do_not_overflow() -> None:
    meter = QualityMeter(["y"])
    meter.add([np.full(4, 60000, np.float16)], [np.full(4, 59968, np.float16)])
    assert meter.quality().worst_db == pytest.approx(20 * math.log10(60000 / 32))


def test_shares_make_an_estimate_for_all_samples() -> None:
    meter = QualityMeter(["y"])
    meter.add([floats_of(10)], [floats_of(9)])
    estimate = meter.quality(np.array([0.25]), np.array([400.0]))
    assert estimate.worst_db == pytest.approx(10 * math.log10(400 / 4))


def test_an_output_that_is_zero_in_one_part_is_judged_there_by_its_mean_power() -> None:
    whole = QualityMeter(["y", "events"])
    for k in range(8):
        events = floats_of(0.0 if k < 4 else 4.0)
        whole.add([floats_of(10), events], [floats_of(9), events + 1])
    parts = whole.part(range(4)), whole.part(range(4, 8)), whole
    found = [part.quality().per_output for part in parts]
    assert [each.keys() for each in found] == [{"y", "events"}] * 3
    assert [each["events"] for each in found] == pytest.approx([10 * math.log10(power) for power in (8, 16, 8)])


def test_nothing_measured_is_nothing_known() -> None:
    quality = QualityMeter(["y"]).quality()
    assert quality.per_output == {}
    assert quality.n_samples == 0


def noisy(n_samples: int, *, names: tuple[str, ...] = ("y",), seed: int = 0) -> QualityMeter:
    rng, meter = np.random.default_rng(seed), QualityMeter(names)
    for _ in range(n_samples):
        outputs = [rng.normal(size=8).astype(np.float32) for _ in names]
        meter.add(outputs, [out + rng.normal(scale=0.1, size=8).astype(np.float32) for out in outputs])
    return meter


@pytest.mark.parametrize("n_samples", [8, 40])
def test_an_interval_covers_the_truth_as_often_as_it_says(n_samples: int) -> None:
    found = [noisy(n_samples, seed=seed).interval(seed) for seed in range(400)]
    covered = sum(f.low_db is not None and f.high_db is not None and f.low_db <= 20 <= f.high_db for f in found)
    assert 0.91 * 400 <= covered <= 0.99 * 400


def test_an_interval_narrows_with_more_samples_and_holds_the_pooled_value() -> None:
    widths = []
    for n in (10, 1000):
        found = noisy(n, names=("a", "b")).interval(0)
        assert found.worst_db == noisy(n, names=("a", "b")).quality().worst_db
        assert found.low_db is not None
        assert found.high_db is not None
        assert found.low_db <= found.worst_db <= found.high_db
        widths.append(found.high_db - found.low_db)
    assert widths[1] < widths[0] / 5


@pytest.mark.parametrize("n_samples", [1, 3, 5])
def test_few_samples_have_no_interval(n_samples: int) -> None:
    found = noisy(n_samples).interval(0)
    assert (found.n_samples, found.low_db, found.high_db) == (n_samples, None, None)


def test_equal_and_broken_outputs_have_intervals_without_nan() -> None:
    equal, broken = QualityMeter(["y"]), QualityMeter(["y"])
    for k in range(8):
        equal.add([floats_of(1)], [floats_of(1)])
        broken.add([floats_of(1)], [floats_of(math.nan if k == 0 else 0.9)])
    assert equal.interval(0).low_db == equal.interval(0).high_db == math.inf
    assert broken.interval(0).low_db == -math.inf
    assert broken.interval(0).high_db == pytest.approx(20, abs=1e-5)


def test_an_interval_of_integers_is_that_of_their_agreement() -> None:
    meter = QualityMeter(["n"])
    for k in range(20):
        meter.add([np.arange(10)], [np.arange(10) + (np.arange(10) < k % 3)])
    found = meter.interval(0)
    assert found.worst_db == pytest.approx(-10 * math.log10(19 / 200))
    assert found.low_db is not None
    assert found.high_db is not None
    assert found.low_db < found.worst_db < found.high_db


@pytest.mark.parametrize(("n_unlike", "low_share", "high_share"), [(0, 0.8064, 1.0), (1, 0.7167, 0.9889)])
def test_answers_that_were_right_in_all_samples_are_not_certain(
    n_unlike: int, low_share: float, high_share: float
) -> None:
    meter = QualityMeter(["n", "m"])
    for k in range(16):
        meter.add([np.array([7]), np.array(["a"])], [np.array([8 if k < n_unlike else 7]), np.array(["a"])])
    found = meter.interval(0)
    assert found.low_db == pytest.approx(-10 * math.log10(1 - low_share), abs=0.01)
    assert found.high_db == pytest.approx(math.inf if high_share == 1 else -10 * math.log10(1 - high_share), abs=0.05)


def test_resamples_in_which_an_output_has_no_signal_take_its_mean_power() -> None:
    alone, beside = QualityMeter(["rare"]), QualityMeter(["rare", "y"])
    for k in range(16):
        rare, noise = floats_of(10.0 if k < 2 else 0.0), 1.0 + k % 3
        alone.add([rare], [rare + noise])
        beside.add([rare, floats_of(100)], [rare + noise, floats_of(99)])
    for found in (alone.interval(0), beside.interval(0)):
        assert found.low_db is not None
        assert found.high_db is not None
        assert -20 < found.low_db < found.worst_db < found.high_db < 20


def test_parts_of_a_meter_pool_their_own_samples() -> None:
    whole = noisy(10)
    first, second = whole.part(range(4)), whole.part(range(4, 99))
    assert (first.quality().n_samples, second.quality().n_samples) == (4, 6)
    first.merge(second)
    assert first.quality() == whole.quality()
    assert whole.part(range(10, 20)).quality().n_samples == 0
