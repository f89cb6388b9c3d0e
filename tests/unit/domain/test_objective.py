import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.measurement import Believed, Measurement
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Goal, Objectives, Standing, standing_of
from autoquant.metrics.grammar import parse_metrics
from tests.records import a_latency, a_measured

METRICS = parse_metrics(["top1", "mine=tasks:error:min"])
ALL = Objectives(metrics=METRICS, has_size=True)


def a_standing(snr_db: float = 40.0, ratio: float = 0.5, size_bytes: int = 1000, **drops: float) -> Standing:
    outcome = a_measured(snr_db=snr_db, ratio=ratio, size_bytes=size_bytes, drops=drops).outcome
    assert isinstance(outcome, Measurement)
    return standing_of(outcome)


def test_losses_and_goals_come_in_one_order() -> None:
    assert ALL.losses(a_standing(top1=0.1, mine=0.2)) == [-40, 0.1, 0.2, 0.5, 1000]
    assert list(ALL.goals.items()) == [
        ("snr", Goal.MAXIMIZE),
        ("top1", Goal.MAXIMIZE),
        ("mine", Goal.MINIMIZE),
        ("latency", Goal.MINIMIZE),
        ("size", Goal.MINIMIZE),
    ]
    assert DEFAULT_OBJECTIVES.losses(a_standing()) == [-40, 0.5]
    assert (ALL.n_qualities, DEFAULT_OBJECTIVES.n_qualities) == (3, 1)


def test_what_is_believed_moves_the_worst_output_and_the_ratios_with_their_intervals() -> None:
    outcome = a_measured(ratio=0.5).outcome
    assert isinstance(outcome, Measurement)
    outcome = replace(outcome, quality=replace(outcome.quality, per_output={"y": 40.0, "z": 50.0}))
    standing = standing_of(outcome, Believed(snr_db=37.0, ratios=(0.6,)))
    (latency,) = standing.latency.values()
    (before,) = outcome.latency.values()
    assert standing.quality.per_output == {"y": 37.0, "z": 47.0}
    assert (latency.ratio, latency.median_ms) == (0.6, before.median_ms)
    assert latency.ratio_high - latency.ratio_low == pytest.approx(before.ratio_high - before.ratio_low)


def test_an_infinite_snr_stays_as_it_was_measured() -> None:
    outcome = a_measured(snr_db=math.inf).outcome
    assert isinstance(outcome, Measurement)
    assert standing_of(outcome, Believed(snr_db=30.0, ratios=(0.9,))).quality == outcome.quality


def test_of_what_was_not_timed_the_snr_alone_is_believed() -> None:
    outcome = a_measured(ratio=0.6, snr_db=40.0).outcome
    assert isinstance(outcome, Measurement)
    standing = standing_of(outcome, Believed(snr_db=37.0, ratios=()))
    assert (standing.quality.worst_db, standing.latency) == (37.0, outcome.latency)


def test_metrics_are_spelled_with_what_they_are() -> None:
    assert ALL.spelled() == ["snr", "top1", "mine=tasks:error:min", "latency", "size"]


@given(st.floats(allow_nan=False))
def test_losses_are_finite(snr_db: float) -> None:
    (loss, _) = DEFAULT_OBJECTIVES.losses(a_standing(snr_db))
    assert json.loads(json.dumps(loss, allow_nan=False)) == loss


def test_nothing_is_better_than_equal() -> None:
    losses = [DEFAULT_OBJECTIVES.losses(a_standing(snr_db)) for snr_db in (math.inf, 204.0, 199.0)]
    assert losses[0] == losses[1] < losses[2]


def test_a_metric_that_was_not_measured_has_no_loss() -> None:
    with pytest.raises(KeyError):
        ALL.losses(a_standing(top1=0.1))


def test_violations_say_by_how_much_and_bounds_are_kept_exactly() -> None:
    bounds = Bounds(min_snr_db=40, max_latency_ratio=0.5, max_size_bytes=1000, max_drops={"top1": 0.1})
    kept = a_standing(40, 0.5, 1000, top1=0.1)
    assert bounds.violations(kept) == {"snr_db": 0, "latency_ratio": 0, "size_bytes": 0, "drop[top1]": 0}
    assert bounds.keeps(kept)
    beyond = bounds.violations(a_standing(30, 0.75, 1001, top1=0.2))
    assert beyond == {"snr_db": 10, "latency_ratio": 0.25, "size_bytes": 1, "drop[top1]": 0.1}
    for worse in (a_standing(39.9), a_standing(ratio=0.51), a_standing(size_bytes=1001), a_standing(top1=0.11)):
        assert not bounds.keeps(worse)
    assert bounds.keeps(a_standing(math.inf))


def test_a_ratio_is_demanded_on_every_target() -> None:
    standing = replace(a_standing(), latency={"a": a_latency(0.4), "b": a_latency(0.7)})
    bounds = Bounds(max_latency_ratio=0.5)
    assert bounds.violations(standing) == {"latency_ratio": pytest.approx(0.7 - 0.5)}
    assert not bounds.keeps(standing)


def test_without_bounds_and_without_a_value_nothing_is_exceeded() -> None:
    assert NO_BOUNDS.violations(a_standing(-math.inf, 9)) == {}
    assert Bounds(max_drops={"top1": 0}).violations(a_standing()) == {}


def test_a_latency_that_was_not_measured_exceeds_nothing() -> None:
    outcome = a_measured(snr_db=40.0, ratio=None).outcome
    assert isinstance(outcome, Measurement)
    assert Bounds(min_snr_db=30, max_latency_ratio=0.5).violations(standing_of(outcome)) == {"snr_db": -10}
