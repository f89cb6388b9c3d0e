import math
import pickle
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoquant.api import comparison
from autoquant.api.comparison import _ports, _why_imprecise, _why_no_snr, compare
from autoquant.domain.measurement import Latency
from autoquant.errors import ModelError, OutputError, UsageError
from autoquant.measurement.files import FileBenchSetup
from autoquant.measurement.intervals import SessionInterval
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged, Measured
from autoquant.model.io import load_skeleton
from tests.models import a_convnet, feed_of, floats, model_of, saved


def measured(half: float, n_sessions: int) -> Measured:
    latency = Latency(
        median_ms=1.0,
        low_ms=1.0,
        high_ms=1.0,
        ratio=0.5,
        ratio_low=0.5,
        ratio_high=0.5,
        n_rounds=60,
        n_sessions=n_sessions,
    )
    interval = SessionInterval(0.5, 0.5 * (1 - half), 0.5 * (1 + half), 0.1, 0.9)
    return Measured(judged=Judged(), latency={"cpu": latency}, footprint={}, ratio={"cpu": interval})


@pytest.mark.parametrize(("n_sessions", "hint"), [(7, "give more time"), (40, "these are the most")])
def test_the_least_precise_of_the_models_is_named(n_sessions: int, hint: str) -> None:
    halves = {"1": 0.02, "2": 0.03, "3": 0.005}
    found = {REFERENCE: measured(0.5, n_sessions), **{key: measured(x, n_sessions) for key, x in halves.items()}}
    (sentence,) = _why_imprecise([Path("a"), Path("b"), Path("c"), Path("d")], found, 0.01)
    start = "the precision of 1% was missed: half the interval of c is 3.00% of its ratio"
    assert sentence.startswith(f"{start} after {n_sessions} processes; {hint}")


def test_a_precision_that_was_reached_is_not_mentioned() -> None:
    assert _why_imprecise([Path("a"), Path("b")], {"1": measured(0.0099, 5)}, 0.01) == []


@pytest.mark.parametrize(
    ("first", "second", "is_said"),
    [
        ("float", "float", False),
        ("float", "float16", False),
        ("int64", "int32", False),
        ("float", "uint8", True),
        ("uint8", "float", True),
        ("uint8", "int8", True),
    ],
)
def test_outputs_of_other_types_are_not_compared(first: str, second: str, is_said: bool, tmp_path: Path) -> None:
    ports = [_ports(saved(with_output(dtype), tmp_path / f"{dtype}.onnx")) for dtype in (first, second)]
    found = _why_no_snr(ports)
    assert bool(found) is is_said
    assert all(f"output 'y' of {tmp_path}" in sentence and second in sentence for sentence in found)


def with_output(dtype: str) -> onnx.ModelProto:
    number = {"float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "float16": 10}[dtype]
    return model_of(f"(float[4] x) => ({dtype}[4] y)", f"y = Cast<to={number}>(x)")


class Watched:
    """A model that can be referred to weakly, which protobuf's own cannot."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph


def test_weights_are_not_held_while_models_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[Watched]] = []

    def load(path: Path) -> Watched:
        model = Watched(load_skeleton(path))
        read.append(weakref.ref(model))
        return model

    def measure(*arguments: object, **options: object) -> None:
        assert [reference() for reference in read] == [None, None]
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "load_skeleton", load)
    monkeypatch.setattr(comparison, "JointMeasurement", measure)
    path = saved(a_convnet(), tmp_path / "model.onnx")
    with pytest.raises(KeyboardInterrupt):
        compare([path, path], [feed_of(a_convnet())])


def test_who_measures_knows_what_the_user_calls_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(setup: FileBenchSetup, *_: object, **__: object) -> None:
        assert list(setup.sample_names) == [f"evaluation data <list>, sample {index}" for index in range(2)]
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "JointMeasurement", measure)
    path = saved(a_convnet(), tmp_path / "model.onnx")
    with pytest.raises(KeyboardInterrupt):
        compare([path, path], [feed_of(a_convnet())] * 2)


def test_external_data_are_left_to_the_processes_that_measure(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(a_convnet(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    path.with_name("weights.bin").write_bytes(b"")
    assert _ports(path).outputs == ("y",)
    whole = saved(a_convnet(), tmp_path / "whole.onnx")
    with pytest.raises(ModelError, match=r"^[^:]*model\.onnx: onnxruntime cannot open it: .*; leave it out$"):
        compare([whole, path], [feed_of(a_convnet())])


def test_external_data_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(a_convnet(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    path.with_name("weights.bin").unlink()
    with pytest.raises(ModelError, match=r"model\.onnx: there is no .*weights\.bin, .*; put all of them beside"):
        compare([path, path], [feed_of(a_convnet())])


def test_samples_in_files_go_to_the_processes_as_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(setup: FileBenchSetup, *arguments: object, **options: object) -> None:
        assert len(setup.feeds) == 3
        assert len(pickle.dumps(setup)) < 10_000
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "JointMeasurement", measure)
    path = saved(model_of("(float[N,8] x) => (float[N,8] y)", "y = Relu(x)"), tmp_path / "model.onnx")
    np.save(tmp_path / "large.npy", floats(3, 200_000, 8))
    with pytest.raises(KeyboardInterrupt):
        compare([path, path], tmp_path / "large.npy")


def test_too_little_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr(comparison, "JointMeasurement", measure)
    path = saved(a_convnet(), tmp_path / "model.onnx")
    with pytest.raises(OutputError, match=r"model\.onnx: there is not enough memory; use fewer samples"):
        compare([path, path], [feed_of(a_convnet())])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": math.nan}, "the time is nan s, it must be positive"),
        ({"seconds": -1.0}, "the time is -1.0 s"),
        ({"seconds": "60s"}, "the time is of type 'str', give a number"),
        ({"precision": 0.0}, "the precision is 0.0, it must lie above 0"),
        ({"seed": -1}, "the seed is -1"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(arguments: Mapping[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(["a.onnx", "b.onnx"], [], **arguments)
