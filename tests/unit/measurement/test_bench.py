import itertools
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.quality import snr_db
from autoquant.domain.target import Target
from autoquant.errors import DataError, ProfileError
from autoquant.measurement.bench import Bench, Progress
from autoquant.measurement.latency import Outputs, run_round
from autoquant.measurement.opening import Opened
from autoquant.model import fragments
from tests.compiling import compile_graphs
from tests.fakes import FakeClock, FakeSession, watch_threads
from tests.models import a_convnet, constants_of, floats, model_of, saved

N_FEEDS = 24
NAME = Target().name
FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(N_FEEDS)]

Noise = Callable[[int], float]


def always(progress: Progress) -> bool:
    return True


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    found = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS)
    found.float_s[NAME] = 1e-3  # however busy the machine is
    return found


def noisy(bench: Bench, noise: Noise, log: list[tuple[str, Feed]] | None = None) -> dict[str, FakeSession]:
    """A candidate whose outputs are the reference, each element ``noise(sample)`` too large."""
    reference = {
        id(feed): (i, outputs) for i, (feed, outputs) in enumerate(zip(bench.feeds, bench.reference, strict=True))
    }

    def compute(feed: Feed) -> Outputs:
        i, outputs = reference[id(feed)]
        return [np.asarray(out, np.float64) + noise(i) for out in outputs]

    return {NAME: FakeSession(compute, log=[] if log is None else log)}


def true_db(bench: Bench, noise: Noise) -> float:
    """Of the first output."""
    signal = sum(float(np.square(out, dtype=np.float64).sum()) for (out, *_) in bench.reference)
    return snr_db(signal, sum(out.size * noise(i) ** 2 for i, (out, *_) in enumerate(bench.reference)))


def teach(bench: Bench, noise: Noise) -> None:
    for _ in range(4):
        bench.measure(noisy(bench, noise), 6, always)


def in_seven(i: int) -> float:
    return 0.3 if i == 7 else 0.001


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


def test_a_candidate_of_no_interest_is_stopped_early(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[Progress] = []

    def never(progress: Progress) -> bool:
        asked.append(progress)
        return False

    quality, latency, is_complete = bench.measure(noisy(bench, lambda _: 9.0), 9, never)
    assert not is_complete
    assert [(progress.n_rounds, progress.ratios) for progress in asked] == [(0, {})]
    assert quality == asked[0].quality
    assert (latency, quality.n_samples) == ({}, 4)


def test_a_candidate_may_be_stopped_after_a_third_of_the_rounds_too(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[Progress] = []

    def untimed(progress: Progress) -> bool:
        asked.append(progress)
        return not progress.ratios

    quality, latency, is_complete = bench.measure(noisy(bench, lambda _: 9.0), 9, untimed)
    assert not is_complete
    assert [progress.n_rounds for progress in asked] == [0, 3]
    assert asked[1].ratios[NAME] == latency[NAME].ratio
    assert asked[1].snr_error_db < 1e-6
    assert quality == asked[1].quality
    assert (latency[NAME].n_rounds, quality.n_samples) == (3, 7)


def test_slow_models_run_one_sample_untimed_and_its_error_is_told(bench: Bench) -> None:
    for seed in range(4):
        powers = 10 ** np.random.default_rng(seed).uniform(-3, 1, N_FEEDS)
        bench.measure(noisy(bench, lambda i, powers=powers: float(powers[i])), 6, always)  # type: ignore[misc]
    bench.float_s[NAME] = 0.1
    asked: list[Progress] = []

    def ask(progress: Progress) -> bool:
        asked.append(progress)
        return True

    bench.measure(noisy(bench, in_seven), 6, ask)
    assert [progress.quality.n_samples for progress in asked] == [1, 3, 7]
    assert asked[0].snr_error_db > 2 * asked[2].snr_error_db > 0


def test_without_rounds_the_quality_of_a_few_telling_samples_is_all(bench: Bench) -> None:
    teach(bench, in_seven)
    noise: Noise = lambda i: 3 * in_seven(i)  # noqa: E731
    quality, latency, is_complete = bench.measure(noisy(bench, noise), 0, lambda _: False)
    assert is_complete
    assert latency == {}
    assert quality.n_samples == 4
    assert quality.worst_db == pytest.approx(true_db(bench, noise), abs=0.1)


def test_interest_is_asked_again_behind_the_rounds(bench: Bench) -> None:
    teach(bench, in_seven)
    asked: list[int] = []

    def ask(progress: Progress) -> bool:
        asked.append(progress.n_rounds)
        return True

    bench.measure(noisy(bench, in_seven), 6, ask)
    assert asked == [0, 2, 6]


def test_what_is_of_no_interest_behind_the_rounds_is_complete_and_has_no_more_of_them(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.measurement.bench._scatters", lambda _: True)
    teach(bench, in_seven)
    found = []
    for goes_on in (always, lambda progress: progress.n_rounds < 6):
        quality, latency, is_complete = bench.measure(noisy(bench, in_seven), 6, goes_on)
        assert is_complete
        found.append((latency[NAME].n_rounds, quality.n_samples))
    assert found == [(12, 12), (6, 4 + 6)]


def test_of_outputs_that_are_counted_the_telling_samples_are_found_too(tmp_path: Path) -> None:
    model = model_of("(float[1,3,8,8] x) => (int64[1,1,8,8] y)", "y = ArgMax<axis=1>(x)")
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], FEEDS)
    bench.float_s[NAME] = 1e-3

    def candidate(n_unlike: Callable[[int], int]) -> dict[str, FakeSession]:
        numbers = {id(feed): i for i, feed in enumerate(bench.feeds)}

        def compute(feed: Feed) -> Outputs:
            i = numbers[id(feed)]
            (out,) = bench.reference[i]
            return [out + (np.arange(out.size) < n_unlike(i)).reshape(out.shape)]

        return {NAME: FakeSession(compute)}

    for _ in range(4):
        assert bench.measure(candidate(lambda i: 20 if i == 7 else 1), 6, always)[0].n_samples == N_FEEDS
    quality, _, _ = bench.measure(candidate(lambda i: 40 if i == 7 else 2), 6, always)
    assert quality.n_samples == 12
    n_unlike, n_elements = 40 + 2 * (N_FEEDS - 1), 64 * N_FEEDS
    assert quality.agreement == {"y": pytest.approx(1 - n_unlike / n_elements)}
    assert quality.worst_db == pytest.approx(10 * math.log10(n_elements / n_unlike))


def test_outputs_that_are_zero_on_all_samples_are_named_and_judge_nothing(tmp_path: Path) -> None:
    model = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z)", "y = Relu(x) z = Sub(x, x)")
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], FEEDS)
    assert bench.signal.silent == ("z",)
    teach(bench, lambda i: 0.3 if i == 7 else 0.0)
    quality, _, _ = bench.measure(noisy(bench, in_seven), 0, always)
    assert list(quality.per_output) == ["y"]
    assert quality.n_samples == 4
    assert quality.worst_db == pytest.approx(true_db(bench, in_seven), abs=0.1)


def test_outputs_that_are_zero_but_on_held_out_samples_are_judged(tmp_path: Path) -> None:
    body = "y = Relu(x) d = Sub(x, c) z = Relu(d)"
    model = model_of("(float[1,3,8,8] x) => (float[1,3,8,8] y, float[1,3,8,8] z)", body, {"c": 50.0})
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], FEEDS)
    held_out: list[Feed] = [{"x": 100 * feed["x"]} for feed in FEEDS]
    assert bench.signal.silent == ("z",)
    power = sum(float(np.square(z, dtype=np.float64).sum()) for _, z in bench.held_out_outputs(held_out))
    assert not bench.signal.silent
    quality, _, _ = bench.measure(noisy(bench, lambda _: 0.5), 0, always)
    assert quality.per_output["z"] == pytest.approx(snr_db(power / 2, N_FEEDS * 192 * 0.5**2))


def test_a_sample_without_finite_outputs_is_called_by_its_name(tmp_path: Path) -> None:
    path, names = saved(a_convnet(), tmp_path / "model.onnx"), ["a.npz, sample 2", "a.npz, sample 7"]
    feeds: list[Feed] = [FEEDS[0], {"x": np.full((1, 3, 8, 8), np.nan, np.float32)}]
    with pytest.raises(DataError, match=r"^a\.npz, sample 7: the float model's output"):
        Bench(path, [Target()], feeds, sample_names=names)
    bench = Bench(path, [Target()], FEEDS[:1], sample_names=["b.npz, sample 0"])
    with pytest.raises(DataError, match=r"^a\.npz, sample 7: the float model's output"):
        list(bench.held_out_outputs(feeds, names))
    with pytest.raises(DataError, match=r"^sample 1: the float model's output"):
        list(bench.held_out_outputs(feeds))


def test_counted_outputs_judge_beside_one_that_is_zero_on_all_samples(tmp_path: Path) -> None:
    model = model_of(
        "(float[1,3,8,8] x) => (float[1,3,8,8] z, int64[1,1,8,8] n)", "z = Sub(x, x) n = ArgMax<axis=1>(x)"
    )
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], FEEDS)
    assert bench.signal.silent == ("z",)
    session = FakeSession(lambda feed: [0 * feed["x"], np.full((1, 1, 8, 8), 9)])
    quality, _, _ = bench.measure({NAME: session}, 4, always)
    assert (quality.per_output, quality.worst_db) == ({}, 0)


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


def test_the_error_of_a_quality_is_that_of_the_candidate_alone(bench: Bench) -> None:
    teach(bench, in_seven)
    like, unlike = (bench.measure(noisy(bench, noise), 6, always)[0] for noise in (in_seven, lambda i: in_seven(i - 1)))
    assert like.error_db < 0.01
    assert unlike.error_db > 3


@pytest.mark.parametrize(("seconds", "n_run"), [(0.0, 2), (8.0, 10), (20.0, 16), (50.0, 22), (math.inf, 24)])
def test_there_is_less_time_for_more_samples_than_usual(
    seconds: float, n_run: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count()
    monkeypatch.setattr("autoquant.measurement.bench.time.perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(Bench, "time_float", lambda _: None)
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS, seconds=seconds)
    assert len(bench.feeds) == len(bench.reference) == n_run


@pytest.mark.parametrize(("seconds", "n_timed"), [(0.01, 3), (1.0, 1)])
def test_a_slow_float_model_is_timed_once(
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


def test_what_opening_the_float_model_takes_is_known(bench: Bench) -> None:
    bench.time_opening()
    assert bench.float_opening_s > 0


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


def test_targets_whose_ratios_do_not_scatter_have_no_more_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = itertools.cycle([False, True])
    monkeypatch.setattr("autoquant.measurement.bench._scatters", lambda _: next(answers))
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target(threads=1), Target(threads=2)], FEEDS[:2])
    session = FakeSession(lambda _: bench.reference[0])
    _, latency, _ = bench.measure({"cpu-1t": session, "cpu-2t": session}, 4, always)
    assert {name: found.n_rounds for name, found in latency.items()} == {"cpu-1t": 4, "cpu-2t": 8}


def test_outputs_of_another_shape_are_all_noise(bench: Bench) -> None:
    session = FakeSession(lambda _: [np.zeros((1, 4), np.float32)])
    quality, _, _ = bench.measure({NAME: session}, 4, always)
    assert quality.worst_db == -math.inf


def test_integer_outputs_are_compared_by_agreement(tmp_path: Path) -> None:
    model = model_of("(float[1,8] x) => (int64[1,8] s, float[1,8] y)", "y = Relu(x) r = Sign(x) s = Cast<to=7>(r)")
    feeds = [{"x": floats(1, 8, seed=seed)} for seed in range(4)]
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], feeds)
    session = FakeSession(lambda feed: [np.ones((1, 8), np.int64), np.maximum(feed["x"], 0)])
    quality, _, _ = bench.measure({NAME: session}, 2, always)
    assert quality.per_output == {"y": math.inf}
    assert quality.agreement == {"s": pytest.approx(np.mean([feed["x"] > 0 for feed in feeds]))}


def test_samples_repeat_where_more_rounds_are_asked_and_count_once(tmp_path: Path) -> None:
    bench = Bench(saved(a_convnet(), tmp_path / "model.onnx"), [Target()], FEEDS[:3])
    quality, latency, is_complete = bench.measure(
        noisy(bench, lambda _: 0.1)
        if len(bench.reference) == N_FEEDS
        else {NAME: FakeSession(lambda _: bench.reference[0])},
        50,
        always,
    )
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


def test_a_candidate_that_takes_twice_as_long_as_the_first_one_has_a_ratio_of_two(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr("autoquant.measurement.bench.run_round", partial(run_round, clock=clock))
    first, second = (
        Opened({NAME: FakeSession(clock=clock, seconds=seconds)}, optimized=None)  # type: ignore[arg-type]
        for seconds in (1.0, 2.0)
    )
    timings = bench.compare(first, second, 5)[NAME]
    assert (timings.ratio, len(timings.session)) == (2, 5)


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


def test_profiles_are_of_the_users_model_and_of_the_candidates(bench: Bench) -> None:
    float_, integer = bench.profile([(skeleton_of(a_convnet()), {}), (skeleton_of(a_convnet()), {})], 0.0, 60.0)[1:]
    assert float_.kernel_us.keys() == integer.kernel_us.keys()
    assert len(bench.profile([], 0.0, 60.0)) == 1


def test_profiles_that_there_is_no_time_for_are_not_begun(bench: Bench) -> None:
    bench.opener.seconds = 2.0
    with pytest.raises(ProfileError, match=r"they would take 4\.\d s"):
        bench.profile([(skeleton_of(a_convnet()), {})], 0.0, 3.0)


def skeleton_of(model: onnx.ModelProto) -> bytes:
    return model.SerializeToString()


def test_where_graphs_are_compiled_there_are_no_profiles(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graphs(monkeypatch)
    with pytest.raises(ProfileError, match="compiles graphs"):
        bench.profile([], 0.0, 60.0)


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
    monkeypatch.setattr("autoquant.measurement.bench.run_round", partial(run_round, clock=clock))
    model = model_of("(float[1,N] x) => (float[1,N] y)", "y = Relu(x)")
    feeds: list[Feed] = [{"x": floats(1, length)} for length in range(1, 13)]
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], feeds)
    bench.float_s[NAME] = 1e-3
    monkeypatch.setattr(bench, "_pinned", {NAME: slow_at_first(clock)})
    bench._known_shapes.clear()
    for _ in range(2):
        _, latency, _ = bench.measure({NAME: slow_at_first(clock)}, 6, always)
        assert (latency[NAME].median_ms, latency[NAME].ratio) == (1e3, 1)
