from pathlib import Path

import numpy as np
import onnx
import pytest

from experiments.peers.manifest import read_entries
from experiments.peers.tools.task import FLOAT_DB, Score, Task, TimeIsOverError, each_within
from tests.experiments.test_remeasure import SCALER, save_samples, save_scaler


@pytest.fixture
def task(tmp_path: Path) -> Task:
    out, work = tmp_path / "out", tmp_path / "work"
    for folder in (out, work):
        folder.mkdir()
    model, samples = save_scaler(tmp_path / "float.onnx", 2.0), save_samples(tmp_path / "samples.npz")
    return Task(
        tool="own", model=model, calibration=samples, evaluation=samples, out=out, work=work, seconds=60.0, start=0.0
    )


def scaler(factor: float) -> onnx.ModelProto:
    return onnx.parser.parse_model(SCALER.format(factor=factor))


def test_a_saved_model_is_told_with_its_seconds(task: Task) -> None:
    task.save("coarse", scaler(2.2))
    (entry,) = read_entries(task.out)
    assert (entry.tool, entry.variant, entry.file, entry.error) == ("own", "coarse", "coarse.onnx", "")
    assert entry.seconds > 0
    assert onnx.load(task.out / entry.file) == scaler(2.2)


def test_the_score_is_the_snr_and_finite(task: Task) -> None:
    score = Score(task, task.model)
    assert score(scaler(2.2)) == pytest.approx(20, abs=1e-3)
    assert score(scaler(2.0)) == FLOAT_DB
    assert score(scaler(np.inf)) == -FLOAT_DB


def test_samples_are_scored_together_and_each(task: Task) -> None:
    together, each = Score(task, task.model).of_samples(scaler(2.2), [1, 4])
    assert together == pytest.approx(20, abs=1e-3)
    assert each == [pytest.approx(20, abs=1e-3)] * 2


def test_a_prepared_model_is_at_an_opset_that_tools_know(task: Task) -> None:
    prepared, feeds = task.prepared()
    assert onnx.load(prepared).opset_import[0].version == 17
    assert [feed["x"].shape for feed in feeds] == [(1, 4)] * 6


def test_a_variant_that_fails_or_is_late_does_not_stop_the_next(task: Task) -> None:
    called: list[float] = []

    def fails(_: float) -> None:
        raise ValueError("no such operator\nat all")

    def is_late(_: float) -> None:
        raise TimeIsOverError

    each_within(task, {"fails": fails, "late": is_late, "works": called.append})
    assert [(entry.variant, entry.error) for entry in read_entries(task.out)] == [
        ("fails", "ValueError: no such operator")
    ]
    assert len(called) == 1


def test_the_time_that_is_left_is_shared(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: 20.0)
    until: list[float] = []
    each_within(task, dict.fromkeys(("a", "b", "c", "d"), until.append))
    assert until == pytest.approx([30.0, 20 + 40 / 3, 40.0, 60.0])
