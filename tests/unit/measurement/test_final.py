import math
import time
from pathlib import Path

import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.measurement.bench import Bench
from autoquant.measurement.final import FinalMeasurement
from tests.models import a_convnet, floats, saved

N_FEEDS = 7
FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(N_FEEDS)]
TARGETS = [Target(threads=1), Target(threads=2)]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    other = a_convnet()
    (bias,) = (t for t in other.graph.initializer if t.name == "by")
    bias.raw_data = (floats(5) + 0.1).tobytes()
    return {
        "float": saved(a_convnet(), tmp_path / "float.onnx"),
        "same": saved(a_convnet(), tmp_path / "same.onnx"),
        "other": saved(other, tmp_path / "other.onnx"),
    }


def measurement(files: dict[str, Path], *, seconds: float, n_sessions: int = 3) -> FinalMeasurement:
    bench = Bench(files["float"], TARGETS, FEEDS)
    candidates = {key: path for key, path in files.items() if key != "float"}
    return FinalMeasurement(bench, candidates, n_sessions, time.perf_counter() + seconds)


def test_files_are_measured_on_every_sample_and_target(files: dict[str, Path]) -> None:
    found, pinned = measurement(files, seconds=60).run()
    assert found.keys() == {"same", "other"}
    for quality, latency in found.values():
        assert quality.n_samples == N_FEEDS
        assert latency.keys() == pinned.keys() == {"cpu-1t", "cpu-2t"}
        assert all(x.n_rounds >= 15 and 0 < x.ratio_low <= x.ratio_high for x in latency.values())
    assert found["same"][0].worst_db == math.inf
    assert 0 < found["other"][0].worst_db < 60


def test_the_float_model_is_one_by_definition(files: dict[str, Path]) -> None:
    _, pinned = measurement(files, seconds=60).run()
    for latency in pinned.values():
        assert (latency.ratio_low, latency.ratio, latency.ratio_high) == (1, 1, 1)
        assert latency.median_ms > 0


def test_without_time_every_sample_is_still_run_once_and_two_files_are_kept(files: dict[str, Path]) -> None:
    many = {**files, "third": files["other"], "fourth": files["other"]}
    found, _ = measurement(many, seconds=-1).run()
    assert list(found) == ["same", "other"]
    for quality, latency in found.values():
        assert quality.n_samples == N_FEEDS
        assert all(x.n_rounds >= N_FEEDS for x in latency.values())


@pytest.mark.parametrize("n_sessions", [1, 20])
def test_there_are_never_more_sessions_than_samples(files: dict[str, Path], n_sessions: int) -> None:
    found, _ = measurement(files, seconds=60, n_sessions=n_sessions).run()
    assert found["same"][0].n_samples == N_FEEDS


def test_a_file_that_cannot_be_opened_is_a_model_error(files: dict[str, Path]) -> None:
    files["same"].write_bytes(b"")
    with pytest.raises(ModelError, match=r"same\.onnx"):
        measurement(files, seconds=60).run()
