"""``--accuracy``: what changes the numbers of models and not their kernels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from autoquant import Budget, search
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.domain.region import TensorName
from autoquant.errors import ProfileError, UsageError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.model.graph import Graph
from tests.integration.conftest import Command


def run_json(folder: str = "run") -> Any:
    return json.loads(Path(folder, "run.json").read_text())


def searched(level: str | None, out: str) -> list[Any]:
    """Members but float of a short search of the example."""
    search("example:digits", space="quick", n_regions=3, budget=Budget(trials=3), accuracy=level, out=out)
    return [m for m in json.loads(Path(out, "front.json").read_text())["members"] if m["id"] != "float"]


@pytest.mark.usefixtures("all_finalists")
def test_full_refines_finalists_and_says_whether_that_helped(workplace: Path) -> None:
    members = searched("full", "run")
    assert any(member["id"].endswith("-refined") for member in members)
    assert any(note.startswith("refinement: better on the held-out samples in ") for note in run_json()["notes"])
    for member in members:
        is_refined = member["id"].endswith("-refined")
        done = [name for name in member["algorithms"] if name not in ("equalised", "bias mean")]
        roundings = ("gptq", "adaround", "adaquant")
        assert done in ([[f"rounding {name}", "bias observed"] for name in roundings] if is_refined else [[]])
        said = {p.key: p.value for p in onnx.load(workplace / "run" / member["path"]).metadata_props}
        assert json.loads(said["autoquant.accuracy"]) == member["algorithms"]
        assert ("autoquant.measured_in_search" in said) is not is_refined
    ids = {member["id"].removesuffix("-refined") for member in members}
    assert len(ids) == len(members)


@pytest.mark.usefixtures("all_finalists")
def test_a_refinement_that_fails_costs_no_finalist(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(Worker):
        def call(self, *_: object, **__: object) -> None:
            raise WorkerLostError("its process was ended by SIGSEGV")

    monkeypatch.setattr("autoquant.api.refinement.Worker", Lost)
    members = searched("full", "run")
    assert members
    assert not any(member["id"].endswith("-refined") for member in members)
    assert any(note.endswith("stay as they are: its process was ended by SIGSEGV") for note in run_json()["notes"])


@pytest.mark.usefixtures("all_finalists")
@pytest.mark.parametrize("n_fine", [0, 1])
def test_a_recipe_that_ends_the_process_costs_the_comparison_alone(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, n_fine: int
) -> None:
    fine = iter([[30.0, 20.0]] * n_fine)

    def lose(self: IsolatedEvaluator, seconds: float, n_most: int) -> list[float]:
        found = next(fine, None)
        if found is None:
            self.close()
            raise ProfileError("running uniform recipes ended the process that measures: signal 11")
        return found

    monkeypatch.setattr(IsolatedEvaluator, "uniform_db", lose)
    assert searched("fast", "run")
    assert run_json()["form"] == "plain"
    reason = "running uniform recipes ended the process that measures: signal 11"
    assert f"forms of the model are not compared any further: {reason}" in run_json()["notes"]


ALIKE, BETTER, HARDLY = [30.0, 20.0], [32.0, 20.5], [31.0, 20.5]


@pytest.mark.usefixtures("all_finalists")
@pytest.mark.parametrize(
    ("answers", "form", "bias"),
    [
        ([ALIKE, BETTER, ALIKE, HARDLY], "equalised", "none"),
        ([ALIKE, HARDLY, BETTER, ALIKE], "plain", "mean"),
        ([ALIKE, HARDLY, ALIKE, BETTER], "equalised", "mean"),
        ([ALIKE, HARDLY, ALIKE, [-np.inf, 20.9]], "plain", "none"),
    ],
)
def test_the_form_is_used_in_which_recipes_gain_most_and_a_decibel_at_least(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, answers: list[list[float]], form: str, bias: str
) -> None:
    """Balancing changes channels of this model by factors of two at most, which is not tried otherwise."""
    left = iter(answers)
    monkeypatch.setattr("autoquant.api.preparing._LEAST_EXPONENT", 1)
    monkeypatch.setattr(IsolatedEvaluator, "uniform_db", lambda *_: next(left))
    members = searched("fast", "run")
    assert run_json()["form"] == form
    assert {row["bias"] for row in run_json()["schemes"].values()} == {bias}
    wanted = [*(["equalised"] if form == "equalised" else []), *(["bias mean"] if bias == "mean" else [])]
    quantized = [member for member in members if member["assignment"]]
    assert quantized
    assert all(member["algorithms"] == wanted for member in quantized)


@pytest.mark.usefixtures("all_finalists")
def test_none_changes_no_numbers(workplace: Path) -> None:
    members = searched("none", "run")
    assert members
    assert [member["algorithms"] for member in members] == [[]] * len(members)
    assert {row["bias"] for row in run_json()["schemes"].values()} == {"none"}
    assert run_json()["form"] == "plain"
    assert not any(note.startswith("equalisation") for note in run_json()["notes"])


def test_the_space_decides_where_nothing_is_asked(workplace: Path) -> None:
    searched(None, "run")
    assert run_json()["configuration"]["accuracy"] == "fast"
    assert any("uniform recipes on 8 samples, gains on average: " in note for note in run_json()["notes"])


@pytest.mark.usefixtures("run")
def test_a_resumed_run_keeps_the_form_of_its_model(search: Command) -> None:
    first, prepared = run_json(), onnx.load("run/prepared.onnx")
    assert any(note.startswith("equalisation: ") for note in first["notes"])
    assert search("--resume", trials="1").exit_code == 0
    assert run_json()["form"] == first["form"]
    assert onnx.load("run/prepared.onnx") == prepared


@pytest.mark.usefixtures("run")
def test_another_form_of_before_is_taken_again(search: Command) -> None:
    """Whichever form would be chosen now, equal assignments have to stay equal models."""
    document = run_json()
    other = {"plain": "equalised", "equalised": "plain"}[document["form"]]
    before = Graph(onnx.load("run/prepared.onnx"))
    Path("run/run.json").write_text(json.dumps({**document, "form": other}))
    assert search("--resume", trials="1").exit_code == 0
    assert run_json()["form"] == other
    after = Graph(onnx.load("run/prepared.onnx"))
    assert [node.name for node in after.nodes] == [node.name for node in before.nodes]
    assert any((after.constant(name) != before.constant(name)).any() for name in map(TensorName, ("wa", "wb", "wy")))


def test_an_unknown_level_is_refused(workplace: Path, search: Command) -> None:
    result = search(accuracy="best")
    assert result.exit_code == 2
    assert "the accuracy level is 'best', choose from: none, fast, full" in result.stderr
    with pytest.raises(UsageError, match="the accuracy level is 'best'"):
        searched("best", "other")
