import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from optuna.samplers import RandomSampler

from autoquant.study.study import Study
from experiments.search import one_search
from experiments.search.versus import (
    growth_of,
    held_by_files,
    lead_by_estimates,
    lead_by_files,
    main,
    reached_after,
    read_trials,
    render_versus,
)
from tests.unit.study.studies import SPACE, evaluated, failed

ENVIRONMENT = {"cpu": "A CPU", "n_cores": 2, "system": "Linux", "versions": {"optuna": "5.0.0"}}


def a_run(sampler: str, seed: int, *growth: tuple[float, float], of_files: float = 20.0) -> dict[str, Any]:
    found = {"n_trials": 40, "growth": growth, "members": [], "saving": 0.3, "hypervolume": of_files}
    return {"sampler": sampler, "seed": seed, "error": ""} | found


def a_document(*runs: dict[str, Any]) -> dict[str, Any]:
    settings = {"seconds": 60.0, "samplers": ["structure", "tpe"]}
    return {"parts": {"digits": {"settings": settings, "environment": ENVIRONMENT, "runs": runs}}}


def test_growth_is_where_the_hypervolume_grew() -> None:
    points = [(1.0, (30.0, 0.5)), (2.0, (20.0, 0.6)), (3.0, (50.0, 0.5))]
    assert growth_of(points) == [(1.0, 15.0), (3.0, 25.0)]


@pytest.mark.parametrize(("area", "expected"), [(10.0, 1.0), (15.0, 1.0), (20.0, 3.0), (30.0, None)])
def test_a_hypervolume_is_reached_after_some_seconds_or_never(area: float, expected: float | None) -> None:
    assert reached_after([(1.0, 15.0), (3.0, 25.0)], area) == expected


def test_a_line_says_when_ours_was_where_the_other_ended() -> None:
    ours, theirs = a_run("structure", 0, (6.0, 10.0), (12.0, 25.0)), a_run("tpe", 0, (30.0, 8.0), (50.0, 20.0))
    lines = render_versus(a_document(ours, theirs)).splitlines()
    spread = "0.300 (0.300 to 0.300) | 20.0 (20.0 to 20.0)"
    assert lines[2] == f"| digits | structure | 60 | 1 | 40 | {spread} | 10.0 | 25.0 | 25.0 | 25.0 | 80% |  |  |"
    assert lines[3].endswith("| 0.0 | 0.0 | 8.0 | 20.0 | 100% | 20% | 20% |")
    assert lines[-1] == "A CPU, 2 cores, Linux; optuna 5.0.0."


def test_an_estimate_that_files_do_not_hold_is_no_lead() -> None:
    ours = a_run("structure", 0, (6.0, 20.0), (40.0, 25.0), of_files=12.5)
    theirs = a_run("tpe", 0, (50.0, 10.0), of_files=12.0)
    assert lead_by_estimates(ours, theirs) == 6.0
    assert lead_by_files(ours, theirs) == 40.0
    assert held_by_files(ours) == 0.5


@pytest.mark.parametrize(("of_files", "expected"), [(12.5, 40.0), (12.6, float("inf"))])
def test_ours_is_never_there_exactly_where_its_files_are_behind(of_files: float, expected: float) -> None:
    ours = a_run("structure", 0, (6.0, 20.0), (40.0, 25.0), of_files=12.5)
    assert lead_by_files(ours, a_run("tpe", 0, (50.0, 10.0), of_files=of_files)) == expected


def test_a_search_that_found_nothing_leads_nobody() -> None:
    nothing, theirs = a_run("structure", 0, of_files=0.0), a_run("tpe", 0, (50.0, 10.0))
    assert held_by_files(nothing) is None
    assert lead_by_estimates(nothing, theirs) == lead_by_files(nothing, theirs) == float("inf")


def test_shares_are_those_of_the_time_that_each_sampler_had() -> None:
    document = a_document(a_run("structure", 0, (6.0, 20.0)), a_run("tpe", 0, (30.0, 8.0)))
    document["parts"]["digits"]["settings"]["ours_seconds"] = 12.0
    lines = render_versus(document).splitlines()
    assert lines[2].startswith("| digits | structure | 12 |")
    assert "| 0.0 | 0.0 | 20.0 | 20.0 | 100% |" in lines[2]
    assert lines[3].startswith("| digits | tpe | 60 |")
    assert lines[3].endswith("| 10% | 10% |")


def test_what_ours_never_reaches_is_said() -> None:
    document = a_document(a_run("structure", 0, (6.0, 10.0)), a_run("tpe", 0, (30.0, 12.0)))
    assert "| never |" in render_versus(document)


def test_failed_searches_are_left_out_of_the_table() -> None:
    failed = {"sampler": "tpe", "seed": 0, "error": "exit code 2: it cannot be read"}
    assert "| digits | tpe | 60 | 0 |" in render_versus(a_document(a_run("structure", 0, (6.0, 10.0)), failed))


def test_a_model_that_is_missing_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), str(tmp_path / "out"), "nowhere"]) == 2
    assert "nowhere has no model.onnx" in capsys.readouterr().err


@pytest.mark.slow
def test_samplers_search_and_their_files_are_measured_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--time", "20s", "--seeds", "1", "--samplers", "structure", "greedy"]
    assert main([str(tmp_path), str(tmp_path / "out"), "example:digits", *options]) == 0
    part = json.loads((tmp_path / "out" / "versus.json").read_text(encoding="utf-8"))["parts"]["digits"]
    assert {run["sampler"] for run in part["runs"]} == {"structure", "greedy"}
    assert all(run["saving"] >= 0 and run["n_trials"] >= 1 for run in part["runs"])  # a busy machine has few
    assert all(0 < seconds < 120 for run in part["runs"] for seconds, _ in run["growth"])
    assert (tmp_path / "out" / "versus.md").read_text(encoding="utf-8") == capsys.readouterr().out


def test_the_growth_of_a_search_is_read_from_its_journal(tmp_path: Path) -> None:
    start = datetime.now()
    study = Study(tmp_path / "study.journal", SPACE, RandomSampler(seed=0))
    for snr_db, is_complete in ((30.0, True), (60.0, False), (20.0, True), (50.0, True)):
        study.tell(evaluated(study.ask(), snr_db=snr_db, is_complete=is_complete))
    study.tell(failed(study.ask()))
    found = read_trials(tmp_path / "study.journal", start)
    assert found["n_trials"] == 5
    assert [area for _, area in found["growth"]] == [15.0, 25.0]
    assert all(0 <= seconds < 60 for seconds, _ in found["growth"])


def test_one_search_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / name) for name in ("model.onnx", "calib.npz", "eval.npz", "out")]
    assert one_search.main([*files, "greedy", "--time", "1"]) == 2
    assert "model.onnx" in capsys.readouterr().err
