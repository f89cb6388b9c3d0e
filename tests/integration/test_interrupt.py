"""Ctrl-C: what was measured becomes a front, and nothing is left half-written."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import autoquant
from autoquant import Budget
from autoquant.api.sentences import ENDED_BY_USER
from autoquant.api.trials import SearchProgress
from tests.faults import IsInterrupted
from tests.integration.conftest import Command


class CtrlC:
    """Presses Ctrl-C so many times when a phase has so many evaluations."""

    def __init__(
        self, phase: str, n_evaluations: int = 0, n_times: int = 1, number: signal.Signals = signal.SIGINT
    ) -> None:
        self.phase, self.n_evaluations, self.n_times, self.number = phase, n_evaluations, n_times, number
        self.n_pressed = 0

    def __call__(self, progress: SearchProgress) -> None:
        if progress.phase == self.phase and progress.n_evaluations >= self.n_evaluations and not self.n_pressed:
            while self.n_pressed < self.n_times:
                self.n_pressed += 1
                signal.raise_signal(self.number)


def search(on_progress: CtrlC, *, n_trials: int = 50, resume: bool = False) -> autoquant.SearchResult:
    return autoquant.search(
        "model.onnx",
        calibration="calib.npz",
        evaluation="eval.npz",
        budget=Budget(trials=n_trials),
        out="run",
        resume=resume,
        on_progress=on_progress,
    )


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_delivers_what_it_measured(number: signal.Signals) -> None:
    result = search(CtrlC("search", 3, number=number))
    assert ENDED_BY_USER in result.record.notes
    assert 3 <= len(result.record.evaluations) < 10
    front = json.loads(Path("run/front.json").read_text())
    assert front["members"][-1]["id"] == "float"
    assert ENDED_BY_USER in json.loads(Path("run/run.json").read_text())["notes"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.usefixtures("workplace")
def test_an_interrupted_search_goes_on_with_resume() -> None:
    first = search(CtrlC("search", 3))
    result = search(CtrlC("never"), n_trials=3, resume=True)
    assert len(result.record.evaluations) == len(first.record.evaluations) + 3
    assert result.record.evaluations[: len(first.record.evaluations)] == first.record.evaluations
    assert ENDED_BY_USER not in result.record.notes


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("phase", ["preprocess", "calibrate", "equalise", "profile"])
def test_an_interrupt_before_anything_is_measured_leaves_nothing(phase: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(CtrlC(phase))
    assert not Path("run").exists()


@pytest.mark.usefixtures("workplace")
def test_an_interrupt_in_the_last_measurement_delivers_what_it_has_so_far() -> None:
    result = search(CtrlC("finish"), n_trials=6)
    assert "the user ended the last measurement" in result.record.notes
    front = json.loads(Path("run/front.json").read_text())
    assert front["members"][-1]["id"] == "float"
    assert all(m["latency"]["cpu-1t"]["n_sessions"] == 1 for m in front["members"])


@pytest.mark.usefixtures("workplace", "all_finalists")
def test_an_interrupt_ends_a_refinement_and_delivers_the_plain_finalists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.api.refinement.RefinerSetup", IsInterrupted)
    result = autoquant.search(
        "example:digits",
        space="quick",
        n_regions=3,
        budget=Budget(trials=3),
        accuracy="full",
        out="run",
    )
    ended = "refinement ended, the other finalists stay as they are: the user wanted no more of it"
    assert ended in result.record.notes
    *members, last = json.loads(Path("run/front.json").read_text())["members"]
    assert members
    assert last["id"] == "float"
    assert not any(member["id"].endswith("-refined") for member in members)


@pytest.mark.usefixtures("workplace")
def test_who_presses_three_times_waits_for_nothing_and_keeps_the_study() -> None:
    with pytest.raises(KeyboardInterrupt):
        search(CtrlC("finish", n_times=3), n_trials=6)
    assert not Path("run/front.json").exists()
    assert not list(Path("run/models").iterdir())
    assert len(search(CtrlC("search"), resume=True).record.evaluations) >= 6


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_an_interrupt_while_data_are_read_is_one_sentence(command: Command, workplace: Path, number: str) -> None:
    (workplace / f"own_data_{number}.py").write_text(
        f"import signal\ndef samples():\n    signal.raise_signal(signal.{number})\n    return []\n"
    )
    result = command("search", "model.onnx", "--calibration", f"own_data_{number}:samples", "--out", "run")
    assert result.exit_code == 130
    assert result.stderr.startswith("autoquant: interrupted before the first trial, so that nothing is kept")
    assert not Path("run").exists()


@pytest.mark.usefixtures("workplace")
def test_sigterm_while_the_folder_is_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.api.steps.trim_cache", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(KeyboardInterrupt):
        search(CtrlC("never"))
    assert not Path("run").exists()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_ctrl_c_at_a_terminal_ends_the_command_well(workplace: Path) -> None:
    arguments = ["example:digits", "--trials", "1000", "--out", "run"]
    terminal, other_end = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "autoquant", "search", *arguments],
        stdout=subprocess.PIPE,
        stderr=other_end,
        cwd=workplace,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(other_end)
        shown = b""
        while not re.search(rb"[1-9]\d*(\x1b\[\d+m)* evaluations", shown):
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGINT)
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 0
    assert ENDED_BY_USER in printed
    assert json.loads((workplace / "run/front.json").read_text())["members"][-1]["id"] == "float"
