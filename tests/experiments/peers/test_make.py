import json
import sys
from pathlib import Path

import pytest

from experiments.believe.subjects import subject_of
from experiments.peers.make import main, run_tool
from experiments.peers.manifest import RUN, read_entries


@pytest.mark.slow
def test_a_tool_leaves_models_a_manifest_and_how_it_went(zoo: Path, tmp_path: Path) -> None:
    assert main([str(zoo), str(tmp_path / "out"), "classifier", "--tool", "recipes", "--time", "120s"]) == 0
    folder = tmp_path / "out" / "classifier" / "recipes"
    entries = read_entries(folder)
    assert {entry.file for entry in entries if entry.file} == {file.name for file in folder.glob("*.onnx")}
    run = json.loads((folder / RUN).read_text(encoding="utf-8"))
    assert (run["error"], run["is_ended"], run["limit_s"]) == ("", False, 120.0)
    assert "onnxruntime" in run["versions"]
    assert not (folder / "work").exists()


def test_a_tool_is_ended_when_its_time_is_over(zoo: Path, tmp_path: Path) -> None:
    subject, out = subject_of(str(zoo / "classifier")), tmp_path / "out"
    run = run_tool(subject, out, tool="recipes", python=sys.executable, seconds=0.05)
    assert (run["is_ended"], run["error"]) == (True, "")
    assert list(out.glob("*.onnx")) == []


def test_an_interpreter_without_the_tool_is_an_error_of_the_run(zoo: Path, tmp_path: Path) -> None:
    subject = subject_of(str(zoo / "classifier"))
    run = run_tool(subject, tmp_path / "out", tool="no-tool", python=sys.executable, seconds=60.0)
    assert "No module named 'experiments.peers.tools.no_tool'" in run["error"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--tool", "nncf"], "nowhere has no model.onnx"),
        (["classifier", "--tool", "nncf", "--time", "soon"], "isn't a duration"),
        (["classifier", "--tool", "nncf", "--python", "/no/python"], "/no/python is no interpreter"),
    ],
)
def test_bad_input_is_one_sentence(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main([str(zoo), str(tmp_path / "out"), *arguments]) == 2
    assert said in capsys.readouterr().err
