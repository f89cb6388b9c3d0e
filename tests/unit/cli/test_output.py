import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoquant.api.trials import SearchProgress
from autoquant.cli import app
from autoquant.cli.output import prints_aside, progress_line, say, say_if_heard


@pytest.mark.parametrize(
    ("arguments", "function"),
    [
        (["search", "m.onnx"], "autoquant.api.search.search"),
        (["resolve", "r", "--min-snr", "20", "--out", "o"], "autoquant.api.resolve.resolve"),
        (["bench", "m.onnx", "--data", "d:samples"], "autoquant.compare"),
    ],
)
def test_what_the_users_own_code_prints_is_no_part_of_the_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], function: str
) -> None:
    (tmp_path / "front.json").write_text("{}")

    class Result:
        folder = tmp_path

        def as_dict(self) -> dict[str, object]:
            return {}

    def talkative(*arguments: object, **options: object) -> Result:
        print("100 images were read")
        return Result()

    monkeypatch.setattr(function, talkative)
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(result.stdout) == {}
    assert result.stderr == "100 images were read\n"


def test_regions_as_json_are_nothing_but_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "talkative_data.py").write_text(
        "import numpy\n\nprint('loading')\n\ndef samples():\n    return [{'image': numpy.zeros((1, 1, 8, 8), 'f')}]\n"
    )
    monkeypatch.chdir(tmp_path)
    arguments = ["regions", "example:digits", "--calibration", "talkative_data:samples", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert json.loads(result.stdout)["regions"]
    assert result.stderr == "loading\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_only_beside_json_prints_go_to_standard_error(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with prints_aside(as_json):
        print("loading")
    assert capsys.readouterr() == (("", "loading\n") if as_json else ("loading\n", ""))


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    say("said", is_quiet=False)
    say("unsaid", is_quiet=True)
    assert capsys.readouterr() == ("said\n", "")


def test_without_a_terminal_or_standard_error_there_is_no_progress_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at = SearchProgress("search", 3.0, 2, {})
    with progress_line(is_quiet=False) as show:
        show(at)
    monkeypatch.setattr(sys, "stderr", None)
    with progress_line(is_quiet=False) as show:
        show(at)
    assert capsys.readouterr() == ("", "")


def test_programs_that_the_users_code_starts_print_aside_too(capfd: pytest.CaptureFixture[str]) -> None:
    with prints_aside(as_json=True):
        subprocess.run(["echo", "decoding"], check=True)
    subprocess.run(["echo", "{}"], check=True)
    assert capfd.readouterr() == ("{}\n", "decoding\n")


def test_where_nobody_listens_work_goes_on(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    say_if_heard("heard")
    assert capfd.readouterr().out == "heard\n"

    def broken(text: str) -> None:
        raise BrokenPipeError(text)

    kept = os.dup(1)
    try:
        with monkeypatch.context() as patched:
            patched.setattr("typer.echo", broken)
            say_if_heard("unheard")
        assert os.fstat(1).st_rdev == os.stat(os.devnull).st_rdev
    finally:
        os.dup2(kept, 1)
        os.close(kept)
