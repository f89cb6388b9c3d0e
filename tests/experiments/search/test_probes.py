import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from experiments.search.probes import main, measure_probes


def test_probes_are_those_that_were_not_timed(run: Path) -> None:
    found, trials = measure_probes(run), pd.read_csv(run / "trials.csv")
    assert found["n_probes"] == (trials["state"] == "untimed").sum() > 0
    assert 0 < found["probes_s"] <= found["search_s"]
    assert found["saved_s"] > 0


def test_a_recipe_that_was_not_timed_is_no_probe(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    journal = tmp_path / "run" / "study.journal"
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    _, recipe, *_ = (number for number, line in enumerate(lines) if '"user_attrs"' in line)
    lines[recipe], n_changed = re.subn('"state":"[a-z-]+"', '"state":"untimed"', lines[recipe])
    assert n_changed == 1
    journal.write_text("".join(lines), encoding="utf-8")
    assert measure_probes(tmp_path / "run") == measure_probes(run)


def test_a_line_for_each_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "probes.json"), str(run), str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[2] == lines[3]


def test_what_is_no_run_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "probes.json"), str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err
    assert not (tmp_path / "probes.json").exists()
