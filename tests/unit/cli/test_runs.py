from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoquant.cli import app


def test_a_job_whose_model_is_not_there_fails_but_not_its_smoke_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models = '[[models]]\nname = "m"\nmodel = "gone.onnx"\ncalibration = "gone.npz"\n'
    (tmp_path / "job.toml").write_text(f'schema = 1\nname = "j"\n{models}')
    assert CliRunner().invoke(app, ["experiment", "run", "job.toml", "--smoke"]).exit_code == 0
    result = CliRunner().invoke(app, ["experiment", "run", "job.toml"])
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].endswith("summary.md")


def test_a_job_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["experiment", "run", str(tmp_path / "gone.toml")])
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: ")
