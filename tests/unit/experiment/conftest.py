from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.experiment.run import JobOutcome, run_job
from tests.models import floats, model_of
from tests.searches import end_after
from tests.unit.experiment.jobs import HEAD, OneDay, Run, Searches


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a job of the given text in a folder with a small model and its data."""
    model = model_of("(float[N,4] x) => (float[N,3] y)", "h = MatMul(x, w) y = Relu(h)", {"w": floats(4, 3)})
    onnx.save(model, tmp_path / "tiny.onnx")
    (tmp_path / "broken.onnx").write_text("hello")
    np.savez(tmp_path / "data.npz", x=floats(8, 4))
    end_after(monkeypatch, n_processes=1)
    monkeypatch.setattr("autoquant.experiment.run.datetime", OneDay)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOQUANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AUTOQUANT_ZOO", str(tmp_path / "zoo"))

    def run(*parts: str, smoke: bool = False, lines: list[str] | None = None) -> JobOutcome:
        Path("job.toml").write_text("".join((HEAD, *parts)))
        told = [] if lines is None else lines
        return run_job(Path("job.toml"), smoke=smoke, reports=Path("reports"), on_line=told.append)

    return run


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """What a job searches with."""
    found = Searches()
    monkeypatch.setattr("autoquant.experiment.run.search", found)
    return found
