import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoquant.cli import app

HEAVY = ("onnxruntime", "onnx", "optuna", "numpy", "pandas", "plotly")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['autoquant', '--help']\n"
        "from autoquant.__main__ import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print('loaded:', [name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Usage" in done.stdout
    assert done.stdout.rstrip().endswith("loaded: []")


def test_without_arguments_the_help_is_shown() -> None:
    result = CliRunner().invoke(app, [])
    assert "search" in result.output
    assert "regions" in result.output


def test_an_unknown_command_is_refused() -> None:
    assert CliRunner().invoke(app, ["serch"]).exit_code == 2


def test_regions_are_printed() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--regions", "4"])
    assert result.exit_code == 0, result.output
    *rows, last = result.stdout.splitlines()
    assert 1 <= len(rows) <= 4
    assert last.startswith(f"{len(rows)} regions, ")


def test_regions_are_printed_as_json() -> None:
    result = CliRunner().invoke(app, ["regions", "example:digits", "--json"])
    rows = json.loads(result.stdout)
    assert all(set(row) == {"id", "work", "op_types", "nodes"} for row in rows)
    assert sum(row["work"] for row in rows) == pytest.approx(1)


def test_a_job_that_misses_a_demand_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = 'schema = 1\nname = "j"\n[[models]]\nname = "m"\nmodel = "gone.onnx"\n'
    (tmp_path / "job.toml").write_text(job)
    assert CliRunner().invoke(app, ["experiment", "run", "job.toml"]).exit_code == 0
    (tmp_path / "job.toml").write_text(job + 'demands = { "40" = 0.5 }\n')
    result = CliRunner().invoke(app, ["experiment", "run", "job.toml"])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("summary.md")


def test_a_job_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["experiment", "run", str(tmp_path / "gone.toml")])
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: ")
