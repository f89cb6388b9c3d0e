import json
import shutil
from pathlib import Path

import pytest

from autoquant.api.sentences import ENDED_BY_USER, MEASUREMENT_ENDED_BY_USER
from tests.unit.experiment.jobs import OTHER, TINY, Run, Searches, rows_of

pytestmark = pytest.mark.usefixtures("searches")


def test_runs_of_one_day_have_folders_of_their_own_and_compare(run: Run) -> None:
    first, second, third = run(TINY), run(TINY), run(TINY)
    names = [outcome.summary_path.parent.name for outcome in (first, second, third)]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]
    assert f"the change against {names[1]}" in third.summary_path.read_text()
    assert rows_of(third)["tiny"]["previous"] == rows_of(second)["tiny"]["best_ratio"]
    assert rows_of(second)["tiny"]["best_ratio"] != rows_of(first)["tiny"]["best_ratio"]
    assert rows_of(first)["tiny"]["previous"] is None


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


def test_another_target_is_not_compared_with(run: Run) -> None:
    run(TINY)
    assert rows_of(run(TINY, "threads = 2\n"))["tiny"]["previous"] is None


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
def test_a_search_that_was_cut_short_is_no_result_to_compare_with(run: Run, searches: Searches, note: str) -> None:
    first = run(TINY).summary_path.parent.name
    searches.notes = (note,)
    assert rows_of(run(TINY))["tiny"]["is_ended"]
    searches.notes = ()
    row = rows_of(run(TINY))["tiny"]
    assert (row["previous_date"], row["is_ended"]) == (first, False)


def test_a_job_file_that_changed_is_told(run: Run) -> None:
    first = run(TINY).summary_path.parent.name
    assert f"; the job file has changed since {first}." in run(TINY, "seed = 1\n").summary_path.read_text()
    assert "has changed" not in run(TINY, "seed = 1\n").summary_path.read_text()


def test_a_summary_that_is_no_text_is_passed_over(run: Run) -> None:
    run(TINY).summary_path.with_name("summary.json").write_bytes(b"\xff")
    assert rows_of(run(TINY))["tiny"]["previous"] is None
