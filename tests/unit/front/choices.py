"""What is chosen of evaluations and measurements that are made up."""

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from autoquant.domain.front import FLOAT_ID
from autoquant.domain.measurement import Evaluation, Latency, Measurement
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives, Standing
from autoquant.front.selection import choose_finalists, choose_members
from autoquant.metrics.grammar import parse_metrics
from tests.records import a_measured

Pair = tuple[float, float]
FLOAT_BYTES = 10_000_000
snrs = st.floats(-20, 140) | st.integers(2, 8).map(lambda tens: 10.0 * tens) | st.sampled_from([math.inf, -math.inf])
ratios = st.floats(0.2, 1.4) | st.integers(3, 12).map(lambda tenths: tenths / 10)
pairs = st.lists(st.tuples(snrs, ratios), max_size=40)
TOP1 = parse_metrics(["top1"])


def evaluations_of(given_pairs: Sequence[Pair]) -> list[Evaluation]:
    return [a_measured(i, snr_db=snr, ratio=ratio) for i, (snr, ratio) in enumerate(given_pairs)]


def finalists(evaluations: Sequence[Evaluation], limit: int, **bounds: Any) -> list[Evaluation]:
    return choose_finalists(evaluations, limit, float_bytes=FLOAT_BYTES, bounds=Bounds(**bounds))


def numbers(evaluations: Sequence[Evaluation]) -> list[int]:
    return [evaluation.trial.number for evaluation in evaluations]


def measured(snr_db: float, *latencies: Latency, size_bytes: int = 3_000_000, **drops: float) -> Standing:
    outcome = a_measured(snr_db=snr_db).outcome
    assert isinstance(outcome, Measurement)
    by_target = {f"target{i}": latency for i, latency in enumerate(latencies)}
    return Standing(quality=outcome.quality, latency=by_target, size_bytes=size_bytes, drops=drops)


def members(found: dict[str, Standing], objectives: Objectives = DEFAULT_OBJECTIVES, **bounds: Any) -> list[str]:
    def is_shown_faster(name: str, other: str) -> bool:
        own = found[name].latency
        lows = (
            [1.0] * len(own) if other == FLOAT_ID else [latency.ratio_low for latency in found[other].latency.values()]
        )
        return any(latency.ratio_high < low for latency, low in zip(own.values(), lows, strict=True))

    return choose_members(
        found, is_shown_faster, float_bytes=FLOAT_BYTES, objectives=objectives, bounds=Bounds(**bounds)
    )
