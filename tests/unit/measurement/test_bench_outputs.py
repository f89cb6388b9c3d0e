import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.quality import snr_db
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.measurement.bench import Bench
from autoquant.measurement.latency import Outputs
from tests.fakes import FakeSession
from tests.models import a_convnet, floats, model_of, saved
from tests.unit.measurement.benches import FEEDS, N_FEEDS, NAME, always, in_seven, noisy, teach, true_db


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


def one_off(_: int) -> float:
    return 1.0


def test_pixels_are_judged_by_how_far_off_they_are(tmp_path: Path) -> None:
    model = model_of(
        "(float[1,3,8,8] x) => (uint8[1,3,8,8] y)", "a = Mul(x, c) b = Add(a, c) y = Cast<to=2>(b)", {"c": 60.0}
    )
    feeds: list[Feed] = [{"x": np.clip(feed["x"], -0.9, 2.9)} for feed in FEEDS]
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], feeds, numbers=frozenset({"y", "z"}))
    bench.float_s[NAME] = 1e-3
    (first, *_) = [outputs for (outputs,) in bench.reference]
    assert first.dtype == np.uint8
    quality, _, _ = bench.measure(noisy(bench, one_off), 6, always)
    assert quality.per_output == {"y": pytest.approx(true_db(bench, one_off))}
    assert quality.worst_db > 30
    assert quality.agreement == {}


def test_pixels_that_are_all_black_are_counted(tmp_path: Path) -> None:
    model = model_of("(float[1,3,8,8] x) => (uint8[1,3,8,8] y)", "a = Sub(x, x) y = Cast<to=2>(a)")
    bench = Bench(saved(model, tmp_path / "model.onnx"), [Target()], FEEDS, numbers=frozenset({"y"}))
    quality, _, _ = bench.measure(noisy(bench, lambda i: float(i == 7)), 0, always)
    assert not quality.per_output
    assert quality.agreement == {"y": pytest.approx(1 - 1 / N_FEEDS)}


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
