import json
import os
from pathlib import Path

import pytest

from autoquant.domain.metric import MetricResult, MetricValue
from autoquant.examples import example
from experiments.tasks import detection, digits, ocr, orientation, sentences
from experiments.tasks.table import Row, Task, evaluate_files, main, render

TASKS = {"ocr": ocr.TASK, "orientation": orientation.TASK, "sentences": sentences.TASK, "detection": detection.TASK}
LEAST = {"ppocr4_rec": 0.95, "ppocr2_cls": 0.9, "doc_orientation": 0.95}


def test_the_table_shows_values_drops_and_intervals() -> None:
    exact = MetricValue(value=1, low=1, high=1, n_samples=4)
    result = MetricResult(
        candidate=MetricValue(value=0.75, low=0.5, high=1, n_samples=4),
        reference=exact,
        drop=MetricValue(value=0.25, n_samples=4),
    )
    floats = MetricResult(candidate=exact, reference=exact, drop=MetricValue(value=0, low=0, high=0, n_samples=4))
    rows = [Row(name="float", ratio=1.0, results={"top1": floats}), Row(name="a", ratio=None, results={"top1": result})]
    assert render(rows).splitlines() == [
        "| model | ratio | top1 | drop, % |",
        "| --- | --- | --- | --- |",
        "| float | 1.00 | 1.0000 [1.0000, 1.0000] |  |",
        "| a |  | 0.7500 [0.5000, 1.0000] | 25.00 |",
    ]


def test_the_digits_of_the_example_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(digits.TASK, [str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("## digits\n\n| model | ratio | accuracy |")
    files = {"again": (example("digits").model, 0.5)}
    rows = evaluate_files(example("digits").model, example("digits").evaluation, digits.TASK.models["digits"], files)
    assert rows[0].results["accuracy"].candidate.value > 0.95
    assert all(result.drop.high == 0 for result in rows[1].results.values())


def test_a_run_of_another_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "front.json").write_text(json.dumps({"model": {"sha256": "0"}, "members": []}))
    assert main(digits.TASK, [str(tmp_path), str(tmp_path)]) == 2
    assert "holds no front.json of" in capsys.readouterr().out


def test_a_task_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(Task(models={"digits": ("accuracy@nothing",)}), [str(tmp_path)]) == 2
    assert "digits: metric 'accuracy@nothing': the model has no output 'nothing'" in capsys.readouterr().out


@pytest.mark.zoo
@pytest.mark.parametrize("task", TASKS)
def test_float_models_do_their_task(task: str) -> None:
    zoo = Path(os.environ["AUTOQUANT_ZOO"])
    for name, metrics in TASKS[task].models.items():
        row = evaluate_files(zoo / name / "model.onnx", zoo / name / "eval.npz", metrics, {})[0]
        first = next(iter(row.results.values()))
        assert first.candidate.value >= LEAST.get(name, 1 - 1e-9)
        assert (first.drop.low, first.drop.high) == (0, 0)
