from pathlib import Path
from typing import Any

import pytest

from experiments.accuracy.levels import main, render_levels
from experiments.believe.document import read_document

ENVIRONMENT = {"cpu": "a processor", "n_cores": 2, "system": "Linux", "versions": {"onnxruntime": "1"}}


def a_part(model: str, **savings: float | None) -> dict[str, Any]:
    runs = [
        {"level": level, "error": "" if saving is not None else "exit code 1", "saving": saving}
        for level, saving in savings.items()
    ]
    return {"settings": {"model": model, "time": "120s"}, "environment": ENVIRONMENT, "runs": runs}


def test_means_are_those_of_the_models_that_have_all_levels() -> None:
    parts = {
        "a": a_part("a", none=0.1, fast=0.2),
        "b": a_part("b", none=0.3, fast=0.5),
        "c": a_part("c", none=None, fast=0.9),
    }
    text = render_levels({"parts": parts})
    assert "| a | 120s | 0.100 | 0.200 |" in text
    assert "| c | 120s | failed | 0.900 |" in text
    assert "| mean of 2 | 120s | 0.200 | 0.350 |" in text
    assert text.endswith("a processor, 2 cores, Linux; onnxruntime 1.\n")


@pytest.mark.slow
def test_each_level_is_searched_and_measured(tmp_path: Path) -> None:
    levels = ["--levels", "none", "fast", "--time", "12s"]
    assert main([str(tmp_path), str(tmp_path / "out"), "example:digits", *levels]) == 0
    (part,) = read_document(tmp_path / "out" / "levels.json")["parts"].values()
    assert [run["level"] for run in part["runs"]] == ["none", "fast"]
    assert all(0 <= run["saving"] < 1 and len(run["members"]) >= (run["saving"] > 0) for run in part["runs"])


def test_a_model_that_is_missing_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), str(tmp_path / "out"), "nothing"]) == 2
    assert "nothing has no model.onnx" in capsys.readouterr().err
