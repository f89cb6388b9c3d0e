import json
from pathlib import Path

import pytest

from experiments.search.believed import main, measure_believed, render_believed, session_ratios


def test_every_finalist_has_three_ratios(run: Path) -> None:
    found = measure_believed(run)
    members = json.loads((run / "front.json").read_text(encoding="utf-8"))["members"]
    assert found["model"] == "digits"
    assert len(found["trial"]) == len(found["believed"]) == len(found["file"]) == len(session_ratios(run))
    assert {member["id"] for member in members} <= {*session_ratios(run), "float"}


def test_ratios_of_files_are_medians_in_each_process(tmp_path: Path) -> None:
    rounds = [(0, 0, 5.0), (0, 1, 6.0), (0, 2, 9.0), (1, 0, 4.0)]
    lines = [f"{s},cpu-1t,{r},t0001,{ms},False\n{s},cpu-1t,{r},float,10.0,False\n" for s, r, ms in rounds]
    (tmp_path / "latency.csv").write_text("session,target,round,id,ms,is_repeated\n" + "".join(lines))
    assert session_ratios(tmp_path) == {"t0001": pytest.approx([0.6, 0.4])}


def test_what_all_finalists_have_in_common_is_no_error() -> None:
    one = {"model": "m", "trial": [0.5, 0.6, 0.8], "believed": [0.45, 0.55, 0.65], "file": [0.4, 0.5, 0.6]}
    rows = render_believed({"parts": {"believed": {"runs": [one]}}}).splitlines()
    assert rows[2:] == ["| m | 3 | 0.0333 | 0.0000 |", "| all | 3 | 0.0333 | 0.0000 |"]


def test_a_line_for_each_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "believed.json"), str(run), str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[2] == lines[3]


def test_what_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "believed.json"), str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "believed.json").exists()
