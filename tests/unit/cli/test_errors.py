import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from autoquant.cli import app
from autoquant.cli.errors import tell_errors
from autoquant.errors import DiskFullError

TRIALS = "; the trials so far are kept, go on with --resume"
NOTHING = " before the first trial, so that nothing is kept; begin the search again"


@pytest.fixture
def a_run_with_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder ``old``."""
    monkeypatch.chdir(tmp_path)
    Path("old").mkdir()
    Path("old/study.journal").touch()


def test_what_ends_well_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with tell_errors(Path("run")):
        pass
    assert capsys.readouterr() == ("", "")


def test_too_little_memory_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, tell_errors(Path("run")):
        raise MemoryError
    assert ended.value.exit_code == 2
    assert capsys.readouterr() == ("", "autoquant: there is not enough memory; use a larger machine\n")


@pytest.mark.parametrize("error", [KeyError, ImportError])
def test_an_error_of_the_code_is_not_hidden(error: type[Exception]) -> None:
    with pytest.raises(error), tell_errors():
        raise error


def test_an_import_that_is_interrupted_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, tell_errors():
        raise ImportError("initialization failed") from KeyboardInterrupt()
    assert ended.value.exit_code == 130
    assert capsys.readouterr() == ("", "autoquant: interrupted\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "example:digits"],
        ["regions", "example:digits"],
        ["bench", "example:digits", "example:digits", "--data", "d.npz"],
    ],
)
def test_without_a_place_for_temporary_files_one_sentence_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("d.npz", image=np.random.default_rng(0).random((4, 1, 8, 8), np.float32))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert re.fullmatch(r"autoquant: temporary files cannot be written .* set TMPDIR to .*\n", result.stderr)


@pytest.mark.usefixtures("a_run_with_trials")
@pytest.mark.parametrize(
    ("arguments", "function", "advice"),
    [
        (["search", "m.onnx", "--out", "new"], "autoquant.api.search.search", NOTHING),
        (["search", "m.onnx", "--out", "old"], "autoquant.api.search.search", TRIALS),
        (["bench", "m.onnx", "--data", "d.npz"], "autoquant.compare", ""),
        (["inspect", "m.onnx"], "autoquant.inspect_model", ""),
        (["regions", "m.onnx"], "autoquant.api.steps.prepare_without_data", ""),
    ],
)
def test_only_a_search_that_is_interrupted_says_whether_it_can_go_on(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str, advice: str
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupted)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (130, f"autoquant: interrupted{advice}\n")


@pytest.mark.usefixtures("a_run_with_trials")
@pytest.mark.parametrize(
    ("arguments", "function", "advice"),
    [
        (["search", "m.onnx", "--out", "new"], "autoquant.api.search.search", ""),
        (["search", "m.onnx", "--out", "old"], "autoquant.api.search.search", TRIALS),
        (["resolve", "r", "--min-snr", "20", "--out", "o"], "autoquant.api.resolve.resolve", ""),
        (["experiment", "run", "job.toml"], "autoquant.experiment.run.run_job", ""),
    ],
)
def test_only_a_search_that_fills_the_disk_is_said_to_go_on(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str, advice: str
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise DiskFullError("run: the disk is full")

    monkeypatch.setattr(function, full)
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (2, f"autoquant: run: the disk is full{advice}\n")
