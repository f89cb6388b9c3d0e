import itertools
import math
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench
from autoquant.measurement.latency import Outputs
from autoquant.measurement.opening import Opened
from tests.fakes import FakeClock, FakeSession
from tests.models import a_convnet, floats, model_of, saved
from tests.unit.measurement.benches import FEEDS, NAME, always, noisy


@pytest.mark.parametrize(("float_s", "n_run"), [(0.01, 64), (0.05, 24), (0.2, 16)])
def test_the_first_candidates_run_no_more_samples_than_there_is_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, float_s: float, n_run: int
) -> None:
    def time_float(self: Bench) -> None:
        self.float_s[NAME] = float_s

    monkeypatch.setattr(Bench, "time_float", time_float)
    feeds = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(70)]
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], feeds, seconds=15.0)
    assert len(bench.feeds) == 70
    assert bench.measure(noisy(bench, lambda _: 0.01), 6, always)[0].n_samples == n_run


@pytest.mark.parametrize(("seconds", "n_run"), [(0.0, 2), (8.0, 10), (20.0, 16), (50.0, 22), (math.inf, 24)])
def test_there_is_less_time_for_more_samples_than_usual(
    seconds: float, n_run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count()
    monkeypatch.setattr("autoquant.measurement.bench.time.perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(Bench, "time_float", lambda _: None)
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS, seconds=seconds)
    assert len(bench.feeds) == len(bench.reference) == n_run


@pytest.mark.parametrize(("seconds", "n_timed"), [(0.01, 9), (0.08, 3), (1.0, 1)])
def test_a_slow_float_model_is_timed_less_often(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, seconds: float, n_timed: int
) -> None:
    clock = FakeClock()
    slow = FakeSession(lambda _: [], clock=clock, seconds=seconds)
    monkeypatch.setattr(bench, "_pinned", {NAME: slow})
    monkeypatch.setattr("autoquant.measurement.bench.warm_up", lambda *_: None)
    monkeypatch.setattr("autoquant.measurement.bench.time.perf_counter", clock)
    bench.time_float()
    assert bench.float_s == {NAME: pytest.approx(seconds)}
    assert clock.now == pytest.approx(n_timed * seconds)


def test_other_work_that_lengthens_single_inferences_makes_the_float_model_no_slower(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, n_run = FakeClock(), itertools.count()

    def compute(_: Feed) -> Outputs:
        clock.now += 0.002 if next(n_run) % 3 == 1 else 0.02
        return []

    monkeypatch.setattr(bench, "_pinned", {NAME: FakeSession(compute)})
    monkeypatch.setattr("autoquant.measurement.bench.warm_up", lambda *_: None)
    monkeypatch.setattr("autoquant.measurement.bench.time.perf_counter", clock)
    bench.time_float()
    assert bench.float_s == {NAME: pytest.approx(0.002)}


@pytest.mark.parametrize(("unit_s", "expected_s"), [(1e-3, 67e-3), (1.0, 100.0)])
def test_the_float_model_is_timed_on_samples_of_unlike_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unit_s: float, expected_s: float
) -> None:
    clock = FakeClock()
    model = model_of("(float[1,N] x) => (float[1,N] y)", "y = Relu(x)")
    feeds: list[Feed] = [{"x": floats(1, length)} for length in [1] * 3 + [100] * 9]
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], feeds)

    def compute(feed: Feed) -> Outputs:
        clock.now += unit_s * feed["x"].size
        return []

    monkeypatch.setattr(bench, "_pinned", {NAME: FakeSession(compute)})
    monkeypatch.setattr("autoquant.measurement.bench.time.perf_counter", clock)
    bench.time_float()
    assert bench.float_s == {NAME: pytest.approx(expected_s)}


def test_what_opening_the_float_model_takes_is_known(bench: Bench) -> None:
    bench.time_opening()
    assert bench.float_opening_s > 0


def test_targets_whose_ratios_do_not_scatter_have_no_more_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.cycle([False, True])
    monkeypatch.setattr("autoquant.measurement.bench._scatters", lambda _: next(answers))
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target(threads=1), Target(threads=2)], FEEDS[:2])
    session = FakeSession(lambda _: bench.reference[0])
    _, latency, _ = bench.measure({"cpu-1t": session, "cpu-2t": session}, 4, always)
    assert {name: found.n_rounds for name, found in latency.items()} == {"cpu-1t": 4, "cpu-2t": 8}


def test_a_candidate_that_takes_twice_as_long_as_the_first_one_has_a_ratio_of_two(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setitem(bench._clocks, NAME, clock)
    first, second = (
        Opened({NAME: FakeSession(clock=clock, seconds=seconds)}, optimized=None)  # type: ignore[arg-type]
        for seconds in (1.0, 2.0)
    )
    timings = bench.compare(first, second, 5)[NAME]
    assert (timings.ratio, len(timings.session)) == (2, 5)


def slow_at_first(clock: FakeClock) -> FakeSession:
    """Outputs of ``Relu``; what has a length that it has not seen takes ten times as long."""
    seen: set[int] = set()

    def compute(feed: Feed) -> Outputs:
        length = feed["x"].size
        clock.now += 1.0 if length in seen else 10.0
        seen.add(length)
        return [np.maximum(feed["x"], 0)]

    return FakeSession(compute, clock=clock)


def test_the_first_inference_at_a_shape_is_timed_neither_of_a_candidate_nor_of_float(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("autoquant.measurement.bench.clock_of", lambda _: clock)
    model = model_of("(float[1,N] x) => (float[1,N] y)", "y = Relu(x)")
    feeds: list[Feed] = [{"x": floats(1, length)} for length in range(1, 13)]
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], feeds)
    bench.float_s[NAME] = 1e-3
    monkeypatch.setattr(bench, "_pinned", {NAME: slow_at_first(clock)})
    bench._known_shapes.clear()
    for _ in range(2):
        _, latency, _ = bench.measure({NAME: slow_at_first(clock)}, 6, always)
        assert (latency[NAME].median_ms, latency[NAME].ratio) == (1e3, 1)
