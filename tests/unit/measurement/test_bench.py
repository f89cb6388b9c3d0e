import math
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench
from autoquant.measurement.opening import Opened
from autoquant.model import fragments
from tests.fakes import FakeSession, watch_threads
from tests.models import a_convnet, constants_of, saved
from tests.unit.measurement.benches import (
    FEEDS,
    N_FEEDS,
    NAME,
    Noise,
    always,
    in_seven,
    noisy,
    skeleton_of,
    teach,
    true_db,
)


def test_the_first_candidates_run_every_sample_whatever_is_thought_of_them(bench: Bench) -> None:
    log: list[tuple[str, Feed]] = []
    quality, latency, is_complete = bench.measure(noisy(bench, lambda _: 0.01, log), 6, lambda _: False)
    assert is_complete
    assert quality.n_samples == N_FEEDS
    assert {id(feed) for _, feed in log} == {id(feed) for feed in FEEDS}
    assert quality.worst_db == pytest.approx(true_db(bench, lambda _: 0.01), abs=1e-6)
    assert 6 <= latency[NAME].n_rounds <= 12
    assert latency[NAME].ratio > 0


def test_later_candidates_run_the_telling_samples_and_their_quality_is_estimated(bench: Bench) -> None:
    teach(bench, in_seven)
    log: list[tuple[str, Feed]] = []
    quality, _, is_complete = bench.measure(noisy(bench, lambda i: 3 * in_seven(i), log), 6, always)
    assert is_complete
    assert any(feed is FEEDS[7] for _, feed in log)
    assert quality.n_samples < N_FEEDS
    assert quality.worst_db == pytest.approx(true_db(bench, lambda i: 3 * in_seven(i)), abs=0.1)


def test_quality_is_to_be_had_without_timing_on_few_samples_or_on_all(bench: Bench) -> None:
    log: list[tuple[str, Feed]] = []
    opened = Opened(noisy(bench, in_seven, log), optimized=None)  # type: ignore[arg-type]
    assert bench.untimed_quality(opened, 4).n_samples == len(log) == 4
    assert bench.untimed_quality(opened, 2 * N_FEEDS).worst_db == pytest.approx(true_db(bench, in_seven), abs=1e-6)


def test_without_rounds_the_quality_of_a_few_telling_samples_is_all(bench: Bench) -> None:
    teach(bench, in_seven)
    noise: Noise = lambda i: 3 * in_seven(i)  # noqa: E731
    quality, latency, is_complete = bench.measure(noisy(bench, noise), 0, lambda _: False)
    assert is_complete
    assert latency == {}
    assert quality.n_samples == 4
    assert quality.worst_db == pytest.approx(true_db(bench, noise), abs=0.1)


def test_the_error_of_a_quality_is_that_of_the_candidate_alone(bench: Bench) -> None:
    teach(bench, in_seven)
    like, unlike = (bench.measure(noisy(bench, noise), 6, always)[0] for noise in (in_seven, lambda i: in_seven(i - 1)))
    assert like.error_db < 0.01
    assert unlike.error_db > 3


def test_the_float_model_itself_is_equal(bench: Bench) -> None:
    model = onnx.load(bench.model)
    arrays = {name: array for name, array in constants_of(model).items() if array.nbytes >= 1024}
    skeleton = fragments.head(model)
    for name, array in constants_of(model).items():
        skeleton += (fragments.external if name in arrays else fragments.initializer)(name, array)
    skeleton += b"".join(fragments.rewired(node, node.input, node.output) for node in model.graph.node)
    opened = bench.opener.open(skeleton, arrays)
    quality, latency, is_complete = bench.measure(opened.sessions, 4, always)
    assert quality.worst_db == math.inf
    assert is_complete
    assert opened.optimized.integer_nodes == frozenset()
    assert 0 < latency[NAME].ratio_low <= latency[NAME].ratio <= latency[NAME].ratio_high


def test_every_target_is_measured_and_the_worst_quality_counts(tmp_path: Path) -> None:
    targets = [Target(threads=1), Target(threads=2)]
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), targets, FEEDS)
    sessions: Mapping[str, FakeSession] = {
        "cpu-1t": noisy(bench, lambda _: 0.001)[NAME],
        "cpu-2t": noisy(bench, lambda _: 0.1)[NAME],
    }
    quality, latency, _ = bench.measure(sessions, 4, always)
    assert quality.worst_db == pytest.approx(true_db(bench, lambda _: 0.1), abs=1e-6)
    assert latency.keys() == {"cpu-1t", "cpu-2t"}
    assert bench.float_s.keys() == latency.keys()


def test_samples_repeat_where_more_rounds_are_asked_and_count_once(tmp_path: Path) -> None:
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS[:3])
    candidate = {NAME: FakeSession(lambda _: bench.reference[0])}
    quality, latency, is_complete = bench.measure(candidate, 50, always)
    assert latency[NAME].n_rounds >= 50
    assert quality.n_samples == 3
    assert is_complete


@pytest.mark.parametrize(("is_thorough", "n_run"), [(False, 64), (True, 70)])
def test_many_samples_are_all_run_where_that_is_asked_and_otherwise_the_others_are_taken_to_be_like_them(
    tmp_path: Path, is_thorough: bool, n_run: int
) -> None:
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], (FEEDS * 3)[:70])
    if is_thorough:
        bench.run_all_samples()
    quality, _, _ = bench.measure(noisy(bench, lambda _: 0.1), 6, always)
    assert quality.n_samples == n_run
    assert quality.worst_db == pytest.approx(true_db(bench, lambda _: 0.1), abs=1e-6)


def test_candidates_and_the_float_model_run_in_all_streams_of_their_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = watch_threads(monkeypatch)
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target(streams=2)], FEEDS[:1])
    for session in bench.opener.open(skeleton_of(a_convnet()), {}).sessions.values():
        session.run(None, FEEDS[0])
    _, float_model, candidate = opened
    for is_main in (float_model, candidate):
        assert is_main.count(True) == is_main.count(False) > 0
