"""Searches and measurements in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from experiments import results
from experiments.remeasure import FLOAT, Row
from experiments.results import N_PROCESSES, ROOT, measure_model, remeasure_alone
from tests.experiments.test_remeasure import save_samples, save_scaler

ASKING = """
import sys
from pathlib import Path

import autoquant
from experiments.results import remeasure_alone

if __name__ != "__main__":
    sys.exit("a process that measures imports the module that asked for it")
print(*remeasure_alone(Path(sys.argv[1]), Path(sys.argv[2]), {}, threads=1, rounds=3))
"""


def test_files_are_measured_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_scaler(tmp_path / "float.onnx", 2.0)
    save_scaler(tmp_path / "coarse.onnx", 2.2)
    save_samples(tmp_path / "samples.npz")
    monkeypatch.chdir(tmp_path)
    found = remeasure_alone(
        Path("float.onnx"), Path("samples.npz"), {"coarse": Path("coarse.onnx")}, threads=1, rounds=3
    )
    assert list(found) == [FLOAT, "coarse"]
    assert found["coarse"].snr_db == pytest.approx(20, abs=1e-3)
    assert [len(row.process_ratios) for row in found.values()] == [N_PROCESSES] * 2


def test_processes_that_measure_have_nothing_of_the_one_that_asks(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(ASKING, encoding="utf-8")
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    run = subprocess.run(
        [sys.executable, str(tmp_path / "asking.py"), str(model), str(samples)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout.strip()) == (0, FLOAT), run.stderr


def test_a_file_that_does_not_run_is_said_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    found = remeasure_alone(model, samples, {"broken": tmp_path / "broken.onnx"}, threads=1, rounds=3)
    assert list(found) == [FLOAT]
    assert "broken doesn't run" in capsys.readouterr().err


def test_what_cannot_be_asked_for_is_bad_input(tmp_path: Path) -> None:
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    with pytest.raises(ValueError, match=r"the process that measures .*float.onnx ended with .*: .*can't be named"):
        remeasure_alone(model, samples, {FLOAT: model}, threads=1)


def test_a_process_that_dies_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    samples = save_samples(tmp_path / "samples.npz")
    with pytest.raises(RuntimeError, match=r"the process that measures .*broken.onnx ended with exit code 1: .*broken"):
        remeasure_alone(tmp_path / "broken.onnx", samples, {}, threads=1)


def test_nothing_is_calibrated_before_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[Path] = []

    def run_python(
        command: Sequence[str], log: Path, *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> str:
        if "search" not in command:
            return ""
        assert environment is not None
        caches.append(Path(environment["AUTOQUANT_CACHE"]))
        assert not caches[-1].exists()
        caches[-1].mkdir()
        return "it failed"

    row = Row(name=FLOAT, snr_db=1.0, median_ms=1.0, ratio=1.0, ratio_low=1.0, ratio_high=1.0, process_ratios=(1.0,))
    monkeypatch.setattr(results, "run_python", run_python)
    monkeypatch.setattr(results, "remeasure_alone", lambda *_, **__: {FLOAT: row})
    zoo, out = tmp_path / "model", tmp_path / "out"
    zoo.mkdir()
    for name in ("model.onnx", "calib.npz"):
        (zoo / name).touch()
    (out / "cache").mkdir(parents=True)  # of a search that was killed
    for _ in range(2):
        measure_model(zoo, out, time_limit="1s", threads=1, n_regions=4)
    assert len(caches) == 2
    assert not any(cache.exists() for cache in caches)
