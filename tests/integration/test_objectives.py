"""Objectives and demands of the user's choice, through the whole command."""

import json
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import autoquant
from autoquant import Budget, Demands
from autoquant.examples import example
from tests.integration.conftest import Command, assert_refused

MAX_BYTES = round(0.8 * example("digits").model.stat().st_size)


def document_of(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "front.json").read_text())
    return found


def study_of(folder: str) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(Path(folder) / "study.journal")))
    return optuna.load_study(study_name="autoquant", storage=storage)


def is_beaten(member: dict[str, Any], other: dict[str, Any]) -> bool:
    mine, others = (
        (m["latency"]["cpu-1t"]["ratio"], m["size_bytes"], m["metrics"]["accuracy"]["drop"]["all"]["value"])
        for m in (member, other)
    )
    return others != mine and all(b <= a for a, b in zip(mine, others, strict=True))


@pytest.mark.usefixtures("workplace")
def test_a_front_of_latency_size_and_accuracy_within_a_size() -> None:
    result = autoquant.search(
        "example:digits",
        metrics=["accuracy"],
        objectives=["latency", "size", "accuracy"],
        demands=Demands(max_size_bytes=MAX_BYTES),
        budget=Budget(trials=14),
        out="run",
    )
    document = document_of("run")
    assert document["objectives"] == {"accuracy": "maximize", "latency": "minimize", "size": "minimize"}
    members = document["members"][:-1]
    assert members
    assert not any(is_beaten(member, other) for member in members for other in members)
    trials = pd.read_csv("run/trials.csv").set_index("number")
    for member in members:
        assert member["size_bytes"] <= MAX_BYTES
        assert member["snr_db"]["worst"] > 0
        assert trials["size_bytes"][int(member["id"][1:])] == pytest.approx(member["size_bytes"], rel=0.2)
    assert result.record.front.objectives == document["objectives"]
    assert "Objectives: higher accuracy, lower latency, lower size." in Path("run/report.html").read_text()

    study = study_of("run")
    assert study.metric_names == ["drop[accuracy]", "ratio_0", "size_bytes"]
    complete = [trial for trial in study.trials if trial.values]
    assert {trial.constraints["size_bytes"] <= 0 for trial in complete} == {False, True}
    assert all(trial.constraints["size_bytes"] == trial.values[2] - MAX_BYTES for trial in complete)
    assert all(trial.constraints["size_bytes"] <= 0 for trial in study.best_trials)


@pytest.mark.usefixtures("workplace")
def test_the_command_takes_objectives_and_demands(search: Command) -> None:
    result = search("--metric", "cosine", minimize="latency,size", maximize="snr,cosine", max_size="1MB", trials="6")
    assert result.exit_code == 0, result.output
    assert "Objectives: higher snr, higher cosine, lower latency, lower size." in result.stdout
    assert list(document_of("run")["objectives"]) == ["snr", "cosine", "latency", "size"]
    assert [direction.name for direction in study_of("run").directions] == ["MAXIMIZE", *["MINIMIZE"] * 3]
    other = search("--resume", "--metric", "cosine", trials="2")
    assert other.exit_code == 2
    assert "its run has another set of objectives (['snr', 'cosine', 'latency', 'size'], now" in other.stderr
    again = search(
        "--resume", "--metric", "cosine", minimize="size,latency", maximize="cosine,snr", max_size="2kB", trials="2"
    )
    assert again.exit_code == 0, again.output
    assert all(member["size_bytes"] <= 2000 for member in document_of("run")["members"][:-1])


@pytest.mark.usefixtures("workplace")
def test_a_metric_of_another_kind_under_the_same_name_is_another_objective(search: Command) -> None:
    assert search("--metric", "m=top1", maximize="m", trials="3").exit_code == 0
    other = search("--resume", "--metric", "m=cosine", maximize="m", trials="1")
    assert other.exit_code == 2
    assert "another set of objectives (['m=top1', 'latency'], now ['m=cosine', 'latency'])" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["--minimize", "size"], "latency must be among them"),
        (["--minimize", "latency,snr"], "give it with --maximize"),
        (["--maximize", "latency"], "give it with --minimize"),
        (["--maximize", "top1"], "'top1' is unknown, choose from latency, size, snr, or add it to the metrics"),
        (["--metric", "top1", "--minimize", "latency,top1"], "give it with --maximize"),
        (["--max-size", "small"], "--max-size small: write a positive number with a unit"),
    ],
)
def test_what_is_wrong_with_objectives_is_said_before_anything_is_searched(
    search: Command, arguments: list[str], phrase: str
) -> None:
    assert_refused(search(*arguments), phrase)
