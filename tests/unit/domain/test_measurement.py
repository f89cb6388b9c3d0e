import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.measurement import Failure, Latency, Measurement, Quality, State
from tests.records import a_failure, a_latency, a_measured


def a_quality(per_output: dict[str, float], agreement: dict[str, float] | None = None) -> Quality:
    return Quality(per_output=per_output, agreement=agreement or {}, n_samples=8)


def measured(**latency: Latency) -> Measurement:
    found = a_measured().outcome
    assert isinstance(found, Measurement)
    return Measurement(
        quality=found.quality, latency=latency, digest="", effective={}, state=State.COMPLETE, size_bytes=1
    )


@given(st.floats(0.01, 3))
def test_an_interval_moves_with_its_ratio_and_nothing_else_does(ratio: float) -> None:
    before = Latency(median_ms=3, low_ms=2, high_ms=5, ratio=0.5, ratio_low=0.4, ratio_high=0.7, n_rounds=9, p90_ms=4)
    after = before.moved_to(ratio)
    assert (after.ratio, after.ratio_low, after.ratio_high) == pytest.approx((ratio, ratio - 0.1, ratio + 0.2))
    assert (after.median_ms, after.low_ms, after.high_ms, after.n_rounds, after.p90_ms) == (3, 2, 5, 9, 4)


@pytest.mark.parametrize(
    ("per_output", "worst_db"),
    [
        ({"a": 40.0, "b": 30.0}, 30.0),
        ({"a": math.inf, "b": -3.0}, -3.0),
        ({"a": 40.0, "b": -math.inf}, -math.inf),
        ({"a": math.inf}, math.inf),
    ],
)
def test_the_worst_float_output_counts_whatever_others_agree_on(per_output: dict[str, float], worst_db: float) -> None:
    assert a_quality(per_output, {"n": 0.1}).worst_db == worst_db


@pytest.mark.parametrize(
    ("agreement", "worst_db"),
    [({"a": 0.9}, 10), ({"a": 0.9, "b": 0.999}, 10), ({"a": 0.5}, 3.0103), ({"a": 0.0}, 0), ({"a": 1.0}, math.inf)],
)
def test_without_float_outputs_the_share_that_differs_counts_in_decibels(
    agreement: dict[str, float], worst_db: float
) -> None:
    assert a_quality({}, agreement).worst_db == pytest.approx(worst_db, abs=1e-3)


@pytest.mark.parametrize(("share", "expected"), [(0.99, 20), (0.999, 30)])
def test_a_share_that_differs_by_a_round_number_keeps_a_round_demand(share: float, expected: float) -> None:
    assert a_quality({}, {"a": share}).worst_db == expected


def test_without_outputs_everything_is_equal() -> None:
    assert a_quality({}).worst_db == math.inf


def test_an_inference_on_all_targets_takes_as_long_beside_float_as_was_measured() -> None:
    both = measured(one=a_latency(0.5, float_ms=10), two=a_latency(0.25, float_ms=100))
    assert both.expected_s({"one": 0.02, "two": 0.4}) == pytest.approx(0.01 + 0.1)
    assert measured().expected_s({"one": 0.02}) == 0


def test_only_what_was_measured_to_the_end_is_complete() -> None:
    found = [a_measured(), a_measured(ratio=None), a_measured(is_complete=False)]
    outcomes = [each.outcome for each in found if isinstance(each.outcome, Measurement)]
    assert [(outcome.state, outcome.is_complete) for outcome in outcomes] == [
        (State.COMPLETE, True),
        (State.UNTIMED, False),
        (State.REJECTED_EARLY, False),
    ]
    assert Failure(stage="build", reason="").state is State.FAILED


def test_what_was_to_be_quantized_is_not_what_stayed_float() -> None:
    mixed = a_measured(assignment={"r0": "float", "r1": "u8s8", "r2": "float"})
    assert (mixed.quantized, mixed.is_quantized) == ({"r1": "u8s8"}, True)
    plain = a_measured(assignment={"r0": "float"})
    assert (plain.quantized, plain.is_quantized) == ({}, False)
    assert a_failure().is_quantized
