import numpy as np
import pytest

from autoquant.domain.division import Division
from autoquant.domain.measurement import Footprint
from autoquant.domain.quality import QualityMeter
from autoquant.measurement.collected import Collected
from autoquant.measurement.files import Round
from autoquant.measurement.intervals import STOPPED_LEVEL, SessionInterval, intervals_by_target
from autoquant.measurement.latency import REFERENCE
from tests.records import a_metric

TARGETS = ("cpu-1t", "cpu-2t")
SECONDS = {
    ("file", "cpu-1t"): [5.0, 5.5, 5.2],
    (REFERENCE, "cpu-1t"): [10.0, 10.4, 9.9],
    ("file", "cpu-2t"): [4.0, 4.1, 4.6],
    (REFERENCE, "cpu-2t"): [6.0, 5.9, 6.3],
}
"""By file and target, of the only round of each session."""


def timed() -> Collected:
    collected = Collected(TARGETS, seed=0, division=None, has_quality=False)
    for number in range(3):
        for target in TARGETS:
            each = {key: [SECONDS[key, target][number]] for key in ("file", REFERENCE)}
            collected.count(["file"], number, target, Round(each, is_repeated=False))
    return collected


def test_latencies_say_where_the_next_session_lies_and_ratios_are_as_wide_as_stopping_early_asks_for() -> None:
    collected = timed()
    collected.open(dict.fromkeys(SECONDS, Footprint(opening_ms=1.0, memory_mb=None)))
    found = collected.measured(["file"])
    ratios = {
        (key, target): [a / b for a, b in zip(medians, SECONDS[REFERENCE, target], strict=True)]
        for (key, target), medians in SECONDS.items()
    }
    own = intervals_by_target(SECONDS)
    to_float = {pair: medians for pair, medians in ratios.items() if pair[0] != REFERENCE}
    relative = intervals_by_target(to_float, level=STOPPED_LEVEL)
    relative |= {(REFERENCE, target): SessionInterval(1, 1, 1, 1, 1) for target in TARGETS}
    for key, target in SECONDS:
        latency, seconds, ratio = found[key].latency[target], own[key, target], relative[key, target]
        assert found[key].ratio[target] == ratio
        assert (latency.ratio, latency.ratio_low, latency.ratio_high) == (ratio.value, ratio.next_low, ratio.next_high)
        assert latency.median_ms == 1e3 * seconds.value
        assert (latency.low_ms, latency.high_ms) == (1e3 * seconds.next_low, 1e3 * seconds.next_high)


def test_sessions_that_agree_are_known_as_well_as_their_rounds_say() -> None:
    collected = Collected(["cpu-1t"], seed=0, division=None, has_quality=False)
    for number in range(3):
        for seconds in (4.0, 5.0, 6.0):
            each = {"file": [seconds], REFERENCE: [10.0]}
            collected.count(["file"], number, "cpu-1t", Round(each, is_repeated=False))
    pair = ("file", "cpu-1t")
    collected.open(dict.fromkeys([pair, (REFERENCE, "cpu-1t")], Footprint(opening_ms=1.0, memory_mb=None)))
    latency = collected.measured(["file"])["file"].latency["cpu-1t"]
    assert collected.timings[pair].ratio_by_session() == [0.5, 0.5, 0.5]
    assert latency.ratio_low < 0.4 < 0.6 < latency.ratio_high
    assert latency.low_ms < 4000 < 6000 < latency.high_ms
    assert collected.measured(["file"])["file"].faster_than == {REFERENCE}


def a_meter(snr_db: float) -> QualityMeter:
    meter = QualityMeter(["y"])
    for _ in range(2):
        meter.add([np.ones(1)], [np.ones(1) - 10 ** (-snr_db / 20)])
    return meter


@pytest.mark.parametrize("decibels", [(40.0, 20.0), (20.0, 40.0)])
@pytest.mark.parametrize("drops", [(0.01, 0.2), (0.2, 0.01)])
def test_a_file_is_judged_by_the_target_of_its_lowest_snr_and_by_the_largest_drop_of_each_metric(
    decibels: tuple[float, float], drops: tuple[float, float]
) -> None:
    collected = Collected(TARGETS, seed=0, division=Division(n_search=1, n_held_out=1), has_quality=True)
    for target, snr_db, drop in zip(TARGETS, decibels, drops, strict=True):
        collected.compare(target, {"file": a_meter(snr_db)})
        collected.score(target, "file", {"top1": a_metric(0.9, drop)})
    judged = collected.judged("file")
    for found in (judged.quality, judged.snr_search, judged.snr_held_out):
        assert found is not None
        assert found.worst_db == pytest.approx(20)
    assert judged.metrics == {"top1": a_metric(0.9, 0.2)}


def test_what_outputs_say_is_worked_out_again_where_there_are_further_ones() -> None:
    collected = Collected(TARGETS[:1], seed=0, division=None, has_quality=True)
    for n_samples in (2, 4):
        collected.compare(TARGETS[0], {"file": a_meter(20.0)})
        quality = collected.judged("file").quality
        assert quality is not None
        assert quality.n_samples == n_samples
        assert collected.judged("file").quality is quality
    collected.score(TARGETS[0], "file", {"top1": a_metric(0.9, 0.1)})
    assert collected.judged("file").metrics == {"top1": a_metric(0.9, 0.1)}
    collected.forget_outputs()
    collected.compare(TARGETS[0], {"file": a_meter(30.0)})
    again = collected.judged("file")
    assert again.quality is not None
    assert again.quality.worst_db == pytest.approx(30)
    assert not again.metrics


def test_ratios_so_far_are_one_a_session() -> None:
    found = timed().session_ratios(["file"])["file"]
    assert list(found) == list(TARGETS)
    for target, ratios in found.items():
        assert ratios == pytest.approx(np.divide(SECONDS["file", target], SECONDS[REFERENCE, target]))
    assert timed().session_ratios([]) == {}
