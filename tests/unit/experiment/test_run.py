import json
import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoquant import Budget, Demands, search
from autoquant.api.result import SearchResult
from autoquant.api.sentences import MEASUREMENT_ENDED_BY_USER, ending_sentence
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.measurement import Failure
from autoquant.domain.target import Target
from autoquant.errors import OutputError, UsageError
from autoquant.experiment.run import run_job
from tests.records import a_measured
from tests.unit.experiment.jobs import BROKEN, FAULTY, GONE, TINY, Run, Searches, rows_of

EVERYTHING = """[[models]]
name = "tiny"
model = "tiny.onnx"
calibration = "data.npz"
evaluation = "seen.npz"
held_out = "unseen.npz"
labels = "labels.npz"
metrics = ["top1"]
max_drop = 0.01
objectives = ["latency", "top1", "size"]
max_size = 5000
targets = [{ threads = 1 }, { threads = 2, options = { key = "value" } }]
time = "30s"
trials = 7
space = "quick"
accuracy = "none"
regions = 5
dims = { N = 3 }
seed = 11
"""


def test_a_failing_model_does_not_stop_the_others(run: Run) -> None:
    lines: list[str] = []
    outcome = run(BROKEN, GONE, TINY, lines=lines)
    rows = rows_of(outcome)
    assert "not an ONNX model" in str(rows["broken"]["error"])
    assert "python -m experiments.zoo" in str(rows["gone"]["error"])
    assert (rows["tiny"]["error"], rows["tiny"]["n_evaluations"]) == (None, 2)
    assert [line.partition(":")[0] for line in lines] == ["broken", "gone", "tiny"]
    assert outcome.is_missed
    assert not run(TINY).is_missed


def test_a_path_that_cannot_be_looked_at_does_not_stop_the_others(run: Run) -> None:
    rows = rows_of(run(GONE.replace("$AUTOQUANT_ZOO", "x" * 300), TINY))
    assert rows["gone"]["error"] == f"there is no file {'x' * 300}/gone/model.onnx; give the path of an .onnx model"
    assert rows["tiny"]["error"] is None


def test_a_fault_that_is_no_error_of_ours_is_a_row_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("autoquant.experiment.run.search", search)
    outcome = run(TINY)
    file = Path("reports", "_runs", "small", outcome.summary_path.parent.name, "tiny-fault.txt")
    reason = "this is a fault of autoquant: ZeroDivisionError: division by zero"
    assert rows_of(outcome)["tiny"]["error"] == f"{reason}; its traceback is in {file}"
    first, *_, last = file.read_text().splitlines()
    assert (first, last) == ("Traceback (most recent call last):", "ZeroDivisionError: division by zero")


def test_a_fault_whose_traceback_cannot_be_written_is_a_row_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*arguments: object, **options: object) -> None:
        Path("reports/_runs").rmdir()
        Path("reports/_runs").touch()
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("autoquant.experiment.run.search", search)
    Path("reports/_runs").mkdir(parents=True)
    assert rows_of(run(TINY))["tiny"]["error"] == "this is a fault of autoquant: ZeroDivisionError: division by zero"


def test_a_search_is_asked_for_all_that_a_job_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[tuple[object, ...], dict[str, object]]] = []

    def search(*arguments: object, **options: object) -> None:
        asked.append((arguments, options))
        raise OutputError("that is enough")

    monkeypatch.setattr("autoquant.experiment.run.search", search)
    date = run(EVERYTHING).summary_path.parent.name
    assert asked == [
        (
            ("tiny.onnx",),
            {
                "calibration": "data.npz",
                "evaluation": "seen.npz",
                "held_out": "unseen.npz",
                "labels": "labels.npz",
                "metrics": ("top1",),
                "targets": (Target(threads=1), Target(threads=2, options={"key": "value"})),
                "budget": Budget(seconds=30, trials=7),
                "objectives": ("latency", "top1", "size"),
                "demands": Demands(max_size_bytes=5000, max_drop=0.01),
                "out": Path("reports/_runs/small", date, "tiny"),
                "space": "quick",
                "accuracy": Accuracy.NONE,
                "n_regions": 5,
                "dims": {"N": 3},
                "seed": 11,
            },
        )
    ]


@pytest.mark.parametrize("level", ["none", "full"])
def test_the_level_of_accuracy_is_that_of_the_job(run: Run, level: str) -> None:
    date = run(TINY, f'accuracy = "{level}"\n').summary_path.parent.name
    document = json.loads(Path("reports", "_runs", "small", date, "tiny", "run.json").read_text())
    assert document["configuration"]["accuracy"] == level


def test_a_run_has_its_files(run: Run) -> None:
    outcome = run(TINY)
    folder = outcome.summary_path.parent
    assert sorted(path.name for path in folder.iterdir()) == ["front-tiny.csv", "summary.json", "summary.md"]
    assert (Path("reports/_runs/small") / folder.name / "tiny" / "front.json").exists()


@pytest.mark.usefixtures("searches")
def test_runs_whose_reports_were_removed_keep_their_folders(run: Run) -> None:
    first = run(TINY).summary_path.parent
    shutil.rmtree(first)
    again = run(TINY)
    assert again.summary_path.parent.name == f"{first.name}-2"
    assert rows_of(again)["tiny"]["error"] is None


@pytest.mark.usefixtures("searches")
def test_an_earlier_run_whose_summary_cannot_be_read_is_told(run: Run) -> None:
    lines: list[str] = []
    first = run(TINY).summary_path.parent
    (first / "summary.json").write_text("{")
    run(TINY, lines=lines)
    said = [line for line in lines if "nothing is compared with this run" in line]
    assert [line.partition(":")[0] for line in said] == [str(first / "summary.json")]


def test_a_model_that_fails_is_told_once_whatever_its_targets(run: Run) -> None:
    lines: list[str] = []
    outcome = run(BROKEN, "targets = [{ threads = 1 }, { threads = 4 }]\n", lines=lines)
    assert len(lines) == 1
    assert outcome.summary_path.read_text().count("not an ONNX model") == 1


def test_a_smoke_run_fails_where_a_model_does(run: Run) -> None:
    assert run(BROKEN, smoke=True).is_missed


@pytest.mark.parametrize("smoke", [False, True])
def test_a_model_of_which_no_candidate_was_measured_fails(
    run: Run, monkeypatch: pytest.MonkeyPatch, smoke: bool
) -> None:
    def failing(*arguments: Any, **options: Any) -> SearchResult:
        found = search(*arguments, **options)
        evaluations = tuple(
            replace(e, outcome=Failure(stage="open", reason="refused")) if e.is_quantized else e
            for e in found.record.evaluations
        )
        return SearchResult(found.folder, replace(found.record, evaluations=evaluations))

    monkeypatch.setattr("autoquant.experiment.run.search", failing)
    outcome = run(TINY, smoke=smoke)
    assert outcome.is_missed
    (row,) = rows_of(outcome).values()
    assert "no quantized candidate was measured: " in str(row["error"])
    assert "failed for this reason: refused" in str(row["error"])
    assert row["best_ratio"] == {"30": None, "40": None, "50": None}


@pytest.mark.usefixtures("searches")
def test_the_summary_is_there_after_each_model(run: Run) -> None:
    seen: list[list[str]] = []

    class Lines(list[str]):
        def append(self, line: str) -> None:
            (path,) = Path("reports/small").glob("*/summary.json")
            rows = json.loads(path.read_text())["rows"]
            seen.append([row["model"] for row in rows if row["error"] != "it was not searched yet"])
            assert [row["model"] for row in rows] == ["tiny", "broken"]
            super().append(line)

    run(TINY, BROKEN, lines=Lines())
    assert seen == [["tiny"], ["tiny", "broken"]]


def test_ctrl_c_ends_the_job_with_a_summary(run: Run) -> None:
    Path("faulty_data_for_test.py").write_text(
        "import signal\ndef samples():\n    signal.raise_signal(signal.SIGINT)\n    return []\n"
    )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    rows = rows_of(run(FAULTY, TINY))
    assert rows["faulty"]["error"] == "the user ended the search"
    assert "was not searched" in str(rows["tiny"]["error"])


@pytest.mark.parametrize(
    "note",
    [
        MEASUREMENT_ENDED_BY_USER,
        ending_sentence("interrupted", [a_measured(1, snr_db=-math.inf)], 0.0),
    ],
    ids=["in a last measurement", "where no candidate can be compared"],
)
def test_ctrl_c_ends_the_job_too(note: str, run: Run, searches: Searches) -> None:
    searches.notes = (note,)
    rows = rows_of(run(TINY, FAULTY))
    assert rows["tiny"]["error"] is None
    assert "was not searched" in str(rows["faulty"]["error"])


def test_a_job_that_is_not_there_leaves_no_reports(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run_job(tmp_path / "gone.toml", smoke=False, reports=tmp_path / "reports", on_line=print)
    assert not (tmp_path / "reports").exists()


def test_reports_that_cannot_be_written_are_refused(run: Run) -> None:
    Path("reports").write_text("a file")
    with pytest.raises(OutputError, match=r"cannot be written \(.*\); choose another folder"):
        run(TINY)
