import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import onnx
import pytest

from autoquant import Budget, Demands, search
from autoquant.api.result import SearchResult
from autoquant.api.sentences import ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.measurement import Failure
from autoquant.domain.target import Target
from autoquant.errors import OutputError, UsageError
from autoquant.experiment.run import JobOutcome, run_job
from tests.models import floats, model_of
from tests.records import a_front, a_latency, a_member, a_record

HEAD = 'schema = 1\nname = "small"\n[defaults]\ntrials = 2\n'
TINY = '[[models]]\nname = "tiny"\nmodel = "tiny.onnx"\ncalibration = "data.npz"\n'
OTHER = TINY.replace("tiny", "other")
BROKEN = '[[models]]\nname = "broken"\nmodel = "broken.onnx"\ncalibration = "data.npz"\n'
FAULTY = '[[models]]\nname = "faulty"\nmodel = "tiny.onnx"\ncalibration = "faulty_data_for_test:samples"\n'
GONE = '[[models]]\nname = "gone"\nmodel = "$AUTOQUANT_ZOO/gone/model.onnx"\ncalibration = "data.npz"\n'
DEMAND = 'demands = { "40" = 0.001 }\n'
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

Run = Callable[..., JobOutcome]


class OneDay(datetime):
    """All runs of a test have one date, around midnight too."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return cls(2026, 11, 23, 12, tzinfo=tz)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a job of the given text in a folder with a small model and its data."""
    model = model_of("(float[N,4] x) => (float[N,3] y)", "h = MatMul(x, w) y = Relu(h)", {"w": floats(4, 3)})
    onnx.save(model, tmp_path / "tiny.onnx")
    (tmp_path / "broken.onnx").write_text("hello")
    np.savez(tmp_path / "data.npz", x=floats(8, 4))
    monkeypatch.setattr("autoquant.experiment.run.datetime", OneDay)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOQUANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("AUTOQUANT_ZOO", str(tmp_path / "zoo"))

    def run(*parts: str, smoke: bool = False, lines: list[str] | None = None) -> JobOutcome:
        Path("job.toml").write_text("".join((HEAD, *parts)))
        told = [] if lines is None else lines
        return run_job(Path("job.toml"), smoke=smoke, reports=Path("reports"), on_line=told.append)

    return run


def rows_of(outcome: JobOutcome) -> dict[str, dict[str, object]]:
    document = json.loads(outcome.summary_path.with_name("summary.json").read_text())
    return {row["model"]: row for row in document["rows"]}


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


def test_runs_of_one_day_have_folders_of_their_own_and_compare(run: Run) -> None:
    first, second, third = run(TINY), run(TINY), run(TINY)
    names = [outcome.summary_path.parent.name for outcome in (first, second, third)]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    assert f"the change against {names[1]}" in third.summary_path.read_text()
    assert rows_of(third)["tiny"]["previous"] == rows_of(second)["tiny"]["best_ratio"]
    assert rows_of(first)["tiny"]["previous"] is None


def test_runs_whose_reports_were_removed_keep_their_folders(run: Run) -> None:
    first = run(TINY).summary_path.parent
    shutil.rmtree(first)
    again = run(TINY)
    assert again.summary_path.parent.name == f"{first.name}-2"
    assert rows_of(again)["tiny"]["error"] is None


def test_runs_that_were_removed_are_not_needed_to_compare(run: Run) -> None:
    first = run(TINY)
    shutil.rmtree("reports/_runs")
    assert rows_of(run(TINY))["tiny"]["previous"] == rows_of(first)["tiny"]["best_ratio"]


def test_a_run_of_another_environment_is_not_compared_with(run: Run) -> None:
    file = run(TINY).summary_path.with_name("summary.json")
    document = json.loads(file.read_text())
    document["environment"]["cpu"] = "Imaginary 9000"
    file.write_text(json.dumps(document))
    outcome = run(TINY)
    assert rows_of(outcome)["tiny"]["previous"] is None
    assert "was measured in another environment (cpu Imaginary 9000, now" in outcome.summary_path.read_text()


def test_the_last_run_of_this_environment_is_compared_with(run: Run) -> None:
    first = run(TINY).summary_path.parent.name
    file = run(TINY).summary_path.with_name("summary.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"environment": {"cpu": "Imaginary 9000"}}))
    assert rows_of(run(TINY))["tiny"]["previous_date"] == first


@pytest.mark.parametrize("model", [TINY, BROKEN, GONE])
def test_a_missed_demand_is_told(run: Run, model: str) -> None:
    outcome = run(model, DEMAND)
    assert outcome.is_missed
    assert "0.001 was demanded" in outcome.summary_path.read_text()


def test_demands_are_judged_on_each_target(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = (Target(threads=1), Target(threads=4))
    latency = {"cpu-1t": a_latency(0.5), "cpu-4t": a_latency(0.9)}
    front = a_front(replace(a_member(targets=targets), latency=latency), targets=targets)

    def found(*arguments: Any, **options: Any) -> SearchResult:
        options["out"].mkdir(parents=True)
        (options["out"] / "front.csv").touch()
        return SearchResult(options["out"], a_record(front))

    monkeypatch.setattr("autoquant.experiment.run.search", found)
    lines: list[str] = []
    outcome = run(TINY, "targets = [{ threads = 1 }, { threads = 4 }]\n", 'demands = { "40" = 0.8 }\n', lines=lines)
    rows = json.loads(outcome.summary_path.with_name("summary.json").read_text())["rows"]
    sentence = "At 40 dB the ratio on cpu-4t is 0.900, 0.800 was demanded."
    assert outcome.is_missed
    assert [(row["target"], row["best_ratio"]["40"]) for row in rows] == [("cpu-1t", 0.5), ("cpu-4t", 0.9)]
    assert [row["missed"] for row in rows] == [[], [sentence]]
    assert [" on cpu-1t; " in lines[0], lines[1].endswith(sentence), len(lines)] == [True, True, 2]


def test_a_model_that_fails_is_told_once_whatever_its_targets(run: Run) -> None:
    lines: list[str] = []
    outcome = run(BROKEN, "targets = [{ threads = 1 }, { threads = 4 }]\n", lines=lines)
    assert len(lines) == 1
    assert outcome.summary_path.read_text().count("not an ONNX model") == 1


def test_another_target_is_not_compared_with(run: Run) -> None:
    run(TINY)
    assert rows_of(run(TINY, "threads = 2\n"))["tiny"]["previous"] is None


def test_a_demand_that_is_kept_is_not_told(run: Run) -> None:
    """The float model keeps every SNR at a ratio of 1."""
    outcome = run(TINY, 'demands = { "40" = 1.0 }\n')
    assert not outcome.is_missed
    assert "was demanded" not in outcome.summary_path.read_text()


def test_each_demand_of_a_model_is_judged_by_itself(run: Run) -> None:
    (row,) = rows_of(run(TINY, 'demands = { "30" = 0.001, "40" = 1.0 }\n')).values()
    (missed,) = cast("list[str]", row["missed"])
    assert missed.startswith("At 30 dB")


def test_a_smoke_run_judges_no_demand_and_is_compared_with_nothing_else(run: Run) -> None:
    outcome = run(TINY, DEMAND, GONE, smoke=True)
    assert outcome.summary_path.parent.name.endswith("-smoke")
    assert not outcome.is_missed
    assert rows_of(run(TINY))["tiny"]["previous"] is None


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


def test_a_night_without_a_result_is_skipped_by_the_next_one(run: Run) -> None:
    first = rows_of(run(TINY))["tiny"]
    model = Path("tiny.onnx").read_bytes()
    Path("tiny.onnx").write_text("hello")
    assert rows_of(run(TINY))["tiny"]["previous"] == first["best_ratio"]
    Path("tiny.onnx").write_bytes(model)
    assert rows_of(run(TINY))["tiny"]["previous"] == first["best_ratio"]


def test_each_model_is_compared_with_its_own_last_result(run: Run) -> None:
    shutil.copyfile("tiny.onnx", "other.onnx")
    first = run(TINY, OTHER)
    Path("other.onnx").write_text("hello")
    second = run(TINY, OTHER)
    shutil.copyfile("tiny.onnx", "other.onnx")
    third = run(TINY, OTHER)
    monday, tuesday = (outcome.summary_path.parent.name for outcome in (first, second))
    dates = {model: row["previous_date"] for model, row in rows_of(third).items()}
    assert dates == {"tiny": tuesday, "other": monday}
    assert rows_of(third)["other"]["previous"] == rows_of(first)["other"]["best_ratio"]
    against = f"the change against {tuesday}, of other against {monday}."
    assert against in third.summary_path.read_text()


@pytest.mark.parametrize("note", [ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER])
def test_a_search_that_was_cut_short_is_no_result_to_compare_with(
    run: Run, monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    def ended(*arguments: Any, **options: Any) -> SearchResult:
        found = search(*arguments, **options)
        return SearchResult(found.folder, replace(found.record, notes=(note,)))

    first = run(TINY).summary_path.parent.name
    with monkeypatch.context() as patch:
        patch.setattr("autoquant.experiment.run.search", ended)
        assert rows_of(run(TINY))["tiny"]["is_ended"]
    row = rows_of(run(TINY))["tiny"]
    assert (row["previous_date"], row["is_ended"]) == (first, False)


def test_a_job_file_that_changed_is_told(run: Run) -> None:
    first = run(TINY).summary_path.parent.name
    assert f"; the job file has changed since {first}." in run(TINY, "seed = 1\n").summary_path.read_text()
    assert "has changed" not in run(TINY, "seed = 1\n").summary_path.read_text()


def test_a_summary_that_is_no_text_is_passed_over(run: Run) -> None:
    run(TINY).summary_path.with_name("summary.json").write_bytes(b"\xff")
    assert rows_of(run(TINY))["tiny"]["previous"] is None


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


def test_ctrl_c_in_a_last_measurement_ends_the_job_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*arguments: Any, **options: Any) -> SearchResult:
        found = search(*arguments, **options)
        return SearchResult(found.folder, replace(found.record, notes=(MEASUREMENT_ENDED_BY_USER,)))

    monkeypatch.setattr("autoquant.experiment.run.search", ended)
    rows = rows_of(run(TINY, FAULTY))
    assert rows["tiny"]["error"] is None
    assert "was not searched" in str(rows["faulty"]["error"])


def test_a_job_that_is_not_there_leaves_no_reports(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        run_job(tmp_path / "gone.toml", smoke=False, reports=tmp_path / "reports", on_line=print)
    assert not (tmp_path / "reports").exists()


def test_reports_that_cannot_be_written_are_refused(run: Run) -> None:
    Path("reports").write_text("a file")
    with pytest.raises(OutputError, match=r"cannot be written \(.*\); choose another --reports"):
        run(TINY)
