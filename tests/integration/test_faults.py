"""Providers that crash, hang or eat memory cost a trial, not the study."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import autoquant
from autoquant import Budget
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.run import Run
from autoquant.api.trials import SearchProgress
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Region
from autoquant.errors import OutputError
from tests.doubles import MisbehavingSetup

ALL_U8 = "u8s8-channel-minmax"


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("fault", ["crash", "hang", "eat"])
def test_the_study_goes_on(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    regions = [region.id for region in _regions()]
    faults = {frozenset((region, ALL_U8) for region in regions): fault}

    def evaluator(run: Run) -> IsolatedEvaluator:
        asked, data = run.configuration, run.checked.data
        setup = MisbehavingSetup(model=asked.model, samples=data.search, targets=asked.targets, seed=0, faults=faults)
        return IsolatedEvaluator(setup, memory_bytes=10**9)

    monkeypatch.setattr(Run, "_evaluator", evaluator)
    result = autoquant.search(
        "model.onnx",
        calibration="calib.npz",
        evaluation="eval.npz",
        budget=Budget(trials=10, trial_seconds=6 if fault == "hang" else 120),
        out="run",
    )
    failures = [e for e in result.record.evaluations if isinstance(e.outcome, Failure)]
    assert len(failures) == 1
    assert set(failures[0].trial.assignment.values()) == {ALL_U8}
    assert sum(isinstance(e.outcome, Measurement) for e in result.record.evaluations) == 9
    assert json.loads(Path("run/front.json").read_text())["members"][-1]["id"] == "float"


@pytest.mark.usefixtures("workplace")
def test_a_folder_that_is_removed_during_a_search_ends_it_with_one_sentence() -> None:
    def remove(progress: SearchProgress) -> None:
        if progress.n_evaluations == 2:
            shutil.rmtree("run", ignore_errors=True)

    with pytest.raises(OutputError, match=r"^run: cannot be written any more \(No such file or directory\); choose"):
        autoquant.search(
            "model.onnx",
            calibration="calib.npz",
            evaluation="eval.npz",
            budget=Budget(trials=10),
            out="run",
            on_progress=remove,
        )


@pytest.mark.usefixtures("workplace")
def test_a_search_without_profiles_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluator(run: Run) -> IsolatedEvaluator:
        asked, data = run.configuration, run.checked.data
        setup = MisbehavingSetup(
            model=asked.model, samples=data.search, targets=asked.targets, seed=0, profiling="crash"
        )
        return IsolatedEvaluator(setup)

    monkeypatch.setattr(Run, "_evaluator", evaluator)
    result = autoquant.search(
        "model.onnx", calibration="calib.npz", evaluation="eval.npz", budget=Budget(trials=4), out="run"
    )
    assert sum(isinstance(e.outcome, Measurement) for e in result.record.evaluations) == 4
    document = json.loads(Path("run/run.json").read_text())
    assert document["latency_prior"] is None
    (note,) = [text for text in document["notes"] if "expected from each region's share" in text]
    assert "SIGSEGV" in note


def _regions() -> tuple[Region, ...]:
    samples = autoquant.read_data("model.onnx", "calib.npz")
    return autoquant.find_regions(autoquant.prepare("model.onnx", samples))


def test_a_killed_search_loses_at_most_the_trial_in_flight(workplace: Path) -> None:
    command = [sys.executable, "-m", "autoquant", "search", "example:digits", "--out", "run", "--trials"]
    with subprocess.Popen(
        [*command, "1000"], cwd=workplace, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        log, end = workplace / "run/log.txt", time.perf_counter() + 120
        while not (log.exists() and "trial 3:" in log.read_text()) and time.perf_counter() < end:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    seen = (workplace / "run/log.txt").read_text().count(" trial ")
    finished = subprocess.run([*command, "3", "--resume"], cwd=workplace, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    trials = (workplace / "run/trials.csv").read_text().splitlines()[1:]
    assert len(trials) >= 3 + seen
    assert seen >= 3
