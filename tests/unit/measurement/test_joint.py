import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.division import Division
from autoquant.domain.feed import Feed, shapes_of
from autoquant.domain.target import Target
from autoquant.errors import MetricError, ModelError
from autoquant.measurement.costs import LEAST_ROUNDS
from autoquant.measurement.files import FileBench, FileBenchSetup
from autoquant.measurement.latency import REFERENCE
from tests.benches import FixedScorer, TellsCores
from tests.models import floats, model_of, saved
from tests.unit.measurement.joints import FEEDS, N_FEEDS, TARGETS, measurement, setup_of


def test_files_are_measured_on_every_sample_and_target_in_several_processes(files: dict[str, Path]) -> None:
    final = measurement(files)
    found = final.run()
    assert found.keys() == {"same", "other", REFERENCE}
    for key in ("same", "other"):
        quality, latency = found[key].judged.quality, found[key].latency
        assert quality is not None
        assert quality.n_samples == N_FEEDS
        assert latency.keys() == found[REFERENCE].latency.keys() == {"cpu-1t", "cpu-2t"}
        for each in latency.values():
            assert each.n_sessions == 3
            assert each.n_rounds >= 15
            assert 0 < each.ratio_low < each.ratio < each.ratio_high
            assert each.p90_ms is not None
            assert each.p99_ms is not None
            assert each.median_ms * 0.5 < each.p90_ms <= each.p99_ms
    assert found["same"].judged.quality is not None
    assert found["other"].judged.quality is not None
    assert found["same"].judged.quality.worst_db == math.inf
    assert 0 < found["other"].judged.quality.worst_db < 60


def test_the_float_model_is_one_by_definition_and_opened_like_the_others(files: dict[str, Path]) -> None:
    baseline = measurement(files).run()[REFERENCE]
    assert baseline.judged.quality is None
    for latency in baseline.latency.values():
        assert (latency.ratio_low, latency.ratio, latency.ratio_high) == (1, 1, 1)
        assert latency.median_ms > 0
    assert all(footprint.opening_ms > 0 for footprint in baseline.footprint.values())


def test_without_time_the_most_important_files_are_still_run_on_every_sample(files: dict[str, Path]) -> None:
    more = dict.fromkeys(("third", "fourth", "fifth"), files["other"])
    found = measurement({**files, **more}, seconds=-1).run()
    assert list(found) == ["same", "other", "third", REFERENCE]
    quality = found["same"].judged.quality
    assert quality is not None
    assert quality.n_samples == N_FEEDS
    for latency in found["same"].latency.values():
        assert (latency.n_sessions, latency.n_rounds) == (1, LEAST_ROUNDS)


def test_whoever_no_longer_waits_gets_what_was_measured_so_far(files: dict[str, Path]) -> None:
    final = measurement(files)
    final.is_ended = lambda: True
    found = final.run()
    quality = found["other"].judged.quality
    assert quality is not None
    assert 1 <= quality.n_samples <= N_FEEDS
    assert found["other"].latency["cpu-1t"].n_sessions == 1


def test_every_round_is_kept(files: dict[str, Path]) -> None:
    final = measurement(files)
    found = final.run()
    counted = [r for number, target, r in final.rounds if target == "cpu-1t" and not r.is_repeated]
    assert len(counted) == found["other"].latency["cpu-1t"].n_rounds
    assert {number for number, _, _ in final.rounds} == {0, 1, 2}
    assert all(r.seconds.keys() == {"same", "other", REFERENCE} for r in counted)


def test_metrics_and_parts_are_of_the_first_process_and_a_file_without_a_number_is_dropped(
    files: dict[str, Path],
) -> None:
    final = measurement({**files, "third": files["same"]}, n_sessions=1)
    final.setup = replace(final.setup, make_scorer=FixedScorer)
    final.division = Division(n_search=6, n_held_out=1)
    found = final.run()
    assert found.keys() == {"same", "other", REFERENCE}
    assert final.lost == {"third": FixedScorer.REASON}
    for key in found:
        (metric,) = found[key].judged.metrics.values()
        assert metric.value.all.value == N_FEEDS
    other = found["other"].judged
    assert other.quality is not None
    assert other.snr_search is not None
    assert other.snr_held_out is not None
    assert (other.quality.n_samples, other.snr_search.n_samples, other.snr_held_out.n_samples) == (7, 6, 1)
    assert other.snr_search.low_db is not None
    assert other.snr_search.low_db <= other.snr_search.worst_db
    assert found[REFERENCE].judged.snr_search is None


def test_a_process_that_was_ended_early_does_not_count_like_a_whole_one(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    monkeypatch.setattr("autoquant.measurement.joint.CHUNK_S", 0.0)
    final, asked = measurement(files), []

    def is_ended() -> bool:
        """In the second process, once it has begun."""
        asked.extend(final.rounds[:1])
        return len(asked) > 1

    final.is_ended = is_ended
    found = final.run()
    assert found["same"].latency["cpu-1t"].n_sessions == 1
    assert {number for number, _, _ in final.rounds} == {0}


def test_a_file_that_was_dropped_is_compared_no_more(files: dict[str, Path]) -> None:
    bench = FileBench(FileBenchSetup(baseline=files["baseline"], feeds=FEEDS, targets=[Target(threads=2)], seed=0))
    bench.open(REFERENCE, files["baseline"])
    bench.open("same", files["same"])
    found = bench.compare("cpu-2t", range(3))
    assert found.meters["same"].quality().worst_db > 100
    assert found.meters["same"].quality().n_samples == 3
    bench.drop(["same"])
    found = bench.compare("cpu-2t", range(1))
    assert (found.meters, found.failed) == ({}, {})


def with_rounds(monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> Iterator[float]:
    """What the only file takes in one round after the other; those that were not run are left."""
    following = iter(seconds)
    monkeypatch.setattr(FileBench, "_round", lambda *_: {REFERENCE: [next(following)]})
    return following


def test_it_is_warm_as_soon_as_files_get_no_faster(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    bench = FileBench(replace(setup_of(files), targets=TARGETS[:1]))
    left = with_rounds(monkeypatch, [0.02, 0.01, 0.0097, 0.005])
    bench.warm_up(math.inf)
    assert list(left) == [0.005]


@pytest.mark.parametrize(("first_s", "n_rounds"), [(0.2, 0), (0.05, 3)])
def test_long_inferences_need_no_warming_up(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, first_s: float, n_rounds: int
) -> None:
    bench = FileBench(replace(setup_of(files), targets=TARGETS[:1]))
    bench._first_s[TARGETS[0].name].extend([first_s, first_s])
    left = with_rounds(monkeypatch, [0.06, 0.05, 0.05])
    bench.warm_up(math.inf)
    assert len(list(left)) == 3 - n_rounds


def test_one_file_of_several_that_is_faster_by_chance_delays_nothing(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    following = iter([(0.01, 0.01, 0.01), (0.01, 0.009, 0.0105), (0.01, 0.0105, 0.009)])
    keys = (REFERENCE, "same", "other")
    monkeypatch.setattr(
        FileBench, "_round", lambda *_: {key: [s] for key, s in zip(keys, next(following), strict=True)}
    )
    FileBench(replace(setup_of(files), targets=TARGETS[:1])).warm_up(math.inf)
    assert list(following) == [(0.01, 0.0105, 0.009)]


def test_all_targets_are_warmed_up(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"cpu-1t": iter([0.01] * 8), "cpu-2t": iter([0.02, 0.01, 0.01, 0.01])}
    monkeypatch.setattr(FileBench, "_round", lambda _, target, __: {REFERENCE: [next(seconds[target])]})
    FileBench(setup_of(files)).warm_up(math.inf)
    assert len(list(seconds["cpu-1t"])) == 5


def test_it_warms_up_no_longer_than_it_may_and_for_so_many_rounds_at_most(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = FileBench(replace(setup_of(files), targets=TARGETS[:1]))
    left = with_rounds(monkeypatch, [0.02, 0.01])
    bench.warm_up(-1.0)
    assert list(left) == [0.01]
    left = with_rounds(monkeypatch, [0.02 * 0.9**n for n in range(9)])
    bench.warm_up(math.inf)
    assert len(list(left)) == 1


def test_rounds_are_repeated_where_all_files_are_slow_and_not_where_one_is(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, slow = {REFERENCE: [1.0], "same": [1.0]}, {REFERENCE: [3.0], "same": [3.0]}
    one_slow, other_slow = usual | {REFERENCE: [1.5]}, usual | {"same": [1.5]}
    following = iter([*[usual] * 6, slow, usual, one_slow, other_slow])
    monkeypatch.setattr(FileBench, "_round", lambda *_: next(following))
    bench = FileBench(replace(setup_of(files), feeds=FEEDS[:1] * 9))
    bench._usual_s["cpu-1t", shapes_of(FEEDS[0])].append(1.0)
    found = bench.time("cpu-1t", range(9))
    assert [r.is_repeated for r in found] == [False] * 6 + [True] + [False] * 3


def test_longer_samples_are_no_slower_rounds_and_no_change_of_the_clock(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = [{"x": floats(1, 3, 8, 8 if k < 12 else 64)} for k in range(18)]

    def by_length(_: FileBench, __: str, feed: Feed) -> dict[str, list[float]]:
        return {key: [float(feed["x"].size)] for key in (REFERENCE, "same")}

    monkeypatch.setattr(FileBench, "_round", by_length)
    bench = FileBench(replace(setup_of(files), feeds=feeds))
    for feed in feeds:
        bench._usual_s["cpu-1t", shapes_of(feed)].append(float(feed["x"].size))
    found = bench.time("cpu-1t", range(18))
    assert not any(round_.is_repeated for round_ in found)
    final = measurement(files)
    final.rounds = [(0, "cpu-1t", round_) for round_ in found]
    assert final._drift() == []
    slower = [replace(r, seconds={REFERENCE: [(1 + k / 9) * r.seconds[REFERENCE][0]]}) for k, r in enumerate(found)]
    final.rounds = [(0, "cpu-1t", round_) for round_ in slower]
    assert "slower in the last third" in final._drift()[0]


def test_a_file_that_fails_where_it_is_timed_is_named(tmp_path: Path) -> None:
    baseline = model_of("(float[N,4] x) => (float[M] y)", "y = Reshape(x, s)", {"s": np.array([-1])})
    narrow = model_of("(float[N,4] x) => (float[M] y)", "y = Reshape(x, s)", {"s": np.array([8])})
    paths = {REFERENCE: saved(baseline, tmp_path / "a.onnx"), "narrow": saved(narrow, tmp_path / "b.onnx")}
    feeds = [{"x": floats(2, 4)}, {"x": floats(3, 4)}]
    bench = FileBench(FileBenchSetup(baseline=paths[REFERENCE], feeds=feeds, targets=TARGETS[:1], seed=0))
    for key, path in paths.items():
        bench.open(key, path)
    assert len(bench.time("cpu-1t", [0])) == 1
    with pytest.raises(ModelError, match=r"b\.onnx: onnxruntime cannot run it"):
        bench.time("cpu-1t", [1])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no affinity")
def test_processes_stay_on_the_cores_of_the_target(files: dict[str, Path]) -> None:
    core = min(os.sched_getaffinity(0))
    final = measurement(files)
    targets = [replace(target, affinity=(core,)) for target in TARGETS]
    final.setup = replace(final.setup, targets=targets, make_scorer=TellsCores)
    with pytest.raises(MetricError, match=re.escape(f"on {{{core}}}")):
        final.run()


def test_whoever_no_longer_waits_gets_a_few_samples_and_rounds_in_any_case(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.judging.CHUNK_S", 0.0)
    monkeypatch.setattr("autoquant.measurement.joint.CHUNK_S", 0.0)
    final = measurement(files)
    final.is_ended = lambda: True
    found = final.run()
    quality = found["other"].judged.quality
    assert quality is not None
    assert quality.n_samples == LEAST_ROUNDS
    assert {latency.n_rounds for latency in found["other"].latency.values()} == {LEAST_ROUNDS}
    said = f"outputs were compared on {LEAST_ROUNDS} of the {N_FEEDS} samples: the user wanted no more"
    assert final.notes.count(said) == 1
