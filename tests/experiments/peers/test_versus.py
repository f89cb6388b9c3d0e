import json
from pathlib import Path

import pytest

from experiments.peers.make import main as make
from experiments.peers.manifest import RUN, Entry, append
from experiments.peers.versus import main, read_peers

RAN = {
    "tool": "nncf",
    "seconds": 2.5,
    "limit_s": 180.0,
    "is_ended": False,
    "error": "",
    "load": [0.0, 0.0],
    "versions": {"nncf": "3.4.0"},
}


def fill(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for variant, content in contents.items():
        (folder / f"{variant}.onnx").write_bytes(content)
        append(folder, Entry(tool="nncf", variant=variant, seconds=1.0, file=f"{variant}.onnx"))
    append(folder, Entry(tool="nncf", variant="mixed-slow", seconds=2.0, error="ValueError: no"))
    (folder / RUN).write_text(json.dumps(RAN), encoding="utf-8")


def test_models_with_equal_contents_count_once(tmp_path: Path) -> None:
    fill(tmp_path / "nncf", {"a": b"one", "b": b"two", "c": b"one"})
    peers = read_peers(tmp_path)
    assert list(peers) == ["nncf"]
    found = peers["nncf"]
    assert (found["n_files"], found["n_different"], found["seconds"]) == (3, 2, 2.5)
    assert found["files"] == {"a": tmp_path / "nncf" / "a.onnx", "b": tmp_path / "nncf" / "b.onnx"}
    assert found["failures"] == {"mixed-slow": "ValueError: no"}


def test_a_model_that_no_tool_had_is_one_sentence(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(zoo), str(tmp_path / "out"), "classifier"]) == 2
    assert "has nothing for classifier: make it with experiments.peers.make" in capsys.readouterr().err


@pytest.mark.slow
def test_all_that_was_made_is_measured_with_our_front(
    zoo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert make([str(zoo), str(out), "classifier", "--tool", "recipes", "--time", "120s"]) == 0
    fill(out / "classifier" / "nncf", {"broken": b"no model"})
    capsys.readouterr()
    assert main([str(zoo), str(out), "classifier", "--time", "8s"]) == 0
    part = json.loads((out / "versus.json").read_text(encoding="utf-8"))["parts"]["classifier"]
    assert part["peers"]["nncf"]["unmeasured"] == ["broken"]
    assert set(part["savings"]) == {"autoquant", "nncf", "recipes", "union"}
    assert part["savings"]["union"] == part["savings"]["recipes"] >= part["savings"]["nncf"] == 0
    assert (out / "versus.md").read_text(encoding="utf-8") == capsys.readouterr().out
