import subprocess
import sys
from pathlib import Path

import pytest

from autoquant.domain.feed import Feed
from autoquant.domain.target import Target
from autoquant.errors import ModelError
from autoquant.measurement.files import FileBench, FileBenchSetup
from autoquant.measurement.latency import REFERENCE
from autoquant.runtime.session import Session, open_session
from tests.fakes import watch_threads
from tests.models import floats, model_of, saved

FEEDS: list[Feed] = [{"x": floats(1, 3, 8, 8, seed=seed)} for seed in range(3)]


def opened(files: dict[str, Path], target: Target, numbers: frozenset[str] = frozenset()) -> FileBench:
    """The baseline and ``same`` on one target."""
    setup = FileBenchSetup(baseline=files["baseline"], feeds=FEEDS, targets=[target], seed=0, numbers=numbers)
    bench = FileBench(setup)
    bench.open(REFERENCE, files["baseline"])
    bench.open("same", files["same"])
    return bench


def test_outputs_are_compared_with_the_float_model_on_the_cpu_provider(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that computes something else does so with the float model too."""

    def open_there(path: Path, target: Target) -> Session:
        found: Session = open_session(path if target == Target() else files["other"], target)
        return found

    monkeypatch.setattr("autoquant.measurement.files.open_session", open_there)
    for target, is_equal in ((Target(), True), (Target(threads=2), False)):
        (meter,) = opened(files, target).compare(target.name, range(3)).meters.values()
        assert (meter.quality().worst_db > 100) is is_equal


def test_pixels_have_an_snr(tmp_path: Path) -> None:
    body = "a = Abs(x) b = Mul(a, c) y = Cast<to=2>(b)"
    for name, c in (("baseline", 60.0), ("same", 60.9)):
        model = model_of("(float[1,3,8,8] x) => (uint8[1,3,8,8] y)", body, {"c": c})
        saved(model, tmp_path / f"{name}.onnx")
    files = {name: tmp_path / f"{name}.onnx" for name in ("baseline", "same")}
    bench = opened(files, Target(), frozenset({"y"}))
    (meter,) = bench.compare(Target().name, range(3)).meters.values()
    assert 30 < meter.quality().per_output["y"] < 45


def test_outputs_are_compared_on_the_target_where_the_cpu_provider_cannot_open_the_float_model(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_there(path: Path, target: Target) -> Session:
        if target == Target():
            raise ModelError(f"{path}: it has no kernel")
        found: Session = open_session(path, target)
        return found

    monkeypatch.setattr("autoquant.measurement.files.open_session", open_there)
    bench = opened(files, Target(threads=2))
    assert bench.open_reference() == bench.open_reference() == f"{files['baseline']}: it has no kernel"
    alone = FileBench(bench.setup)  # as a process in which a single file is tried
    alone.open("same", files["same"])
    for each in (bench, alone):
        (meter,) = each.compare("cpu-2t", range(3)).meters.values()
        assert meter.quality().worst_db > 100


def test_files_run_in_all_streams_of_their_target(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = watch_threads(monkeypatch)
    target = Target(streams=2)
    bench = opened(files, target)
    for is_main in sessions:
        is_main.clear()  # the run that is part of opening
    bench.time(target.name, range(3))
    assert len(sessions) == 2
    for is_main in sessions:
        assert is_main.count(True) == is_main.count(False) > 0


def test_processes_that_measure_files_do_not_import_onnx() -> None:
    code = "import sys; import autoquant.measurement.files; print('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
