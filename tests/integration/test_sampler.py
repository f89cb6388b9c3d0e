"""Another sampler than ours."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from optuna.samplers import BaseSampler, RandomSampler

from autoquant import Budget, Demands
from autoquant import search as search_in_python
from autoquant.api.trials import Trials
from autoquant.errors import SamplerError
from autoquant.study.samplers import make_sampler
from autoquant.study.standing import Interest
from tests.integration.conftest import Command


def run_document(folder: str = "run") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize("name", ["tpe", "tpe-univariate", "nsga2", "random"])
def test_a_sampler_by_name_delivers_a_front_and_is_recorded(search: Command, name: str) -> None:
    result = search(trials="14", sampler=name, space="quick")
    assert result.exit_code == 0, result.output
    assert run_document()["configuration"]["sampler"] == name
    assert Path("run/front.json").exists()
    assert f"<td>{name}</td>" in Path("run/report.html").read_text(encoding="utf-8")


def test_an_unknown_sampler_is_one_sentence(search: Command) -> None:
    result = search(sampler="cmaes")
    assert result.exit_code == 2
    assert result.stderr.startswith("autoquant: the sampler is 'cmaes', choose from: structure, ")
    assert not Path("run").exists()


@pytest.mark.usefixtures("run")
def test_a_resumed_run_may_take_another_sampler_and_says_so(search: Command) -> None:
    assert search("--resume", trials="1", sampler="random").exit_code == 0
    document = run_document()
    assert document["configuration"]["sampler"] == "random"
    assert "the runs of this study asked these samplers, in this order: structure, random" in document["notes"]
    assert search("--resume", trials="1", sampler="random").exit_code == 0
    assert run_document()["samplers"] == ["structure", "random"]
    assert search("--resume", trials="1").exit_code == 0
    assert (
        "the runs of this study asked these samplers, in this order: structure, random, structure"
        in run_document()["notes"]
    )


class Failing(RandomSampler):
    """After the first trial, which is float."""

    def after_trial(self, *_: object) -> None:
        raise RuntimeError("out of order")


@pytest.mark.usefixtures("workplace")
def test_a_sampler_that_fails_after_a_trial_leaves_what_can_be_resumed_and_says_so() -> None:
    what = {"calibration": "calib.npz", "evaluation": "eval.npz", "out": "run", "budget": Budget(trials=2)}
    with pytest.raises(
        SamplerError, match=r"\(RuntimeError: out of order\); what was measured is kept, and the search"
    ):
        search_in_python("model.onnx", sampler=Failing(), **what)  # type: ignore[arg-type]
    assert len(search_in_python("model.onnx", sampler="random", resume=True, **what).trials) > 1  # type: ignore[arg-type]


@pytest.mark.usefixtures("workplace")
def test_a_sampler_of_optuna_is_taken_in_python() -> None:
    search_in_python(
        "model.onnx",
        calibration="calib.npz",
        evaluation="eval.npz",
        out="run",
        budget=Budget(trials=12),
        sampler=RandomSampler(seed=1),
    )
    assert run_document()["configuration"]["sampler"] == "<RandomSampler>"


@pytest.mark.usefixtures("workplace")
def test_demands_profiles_and_beliefs_reach_the_sampler_and_the_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    opened: list[Trials] = []

    def make(*arguments: Any, **named: Any) -> BaseSampler | None:
        asked.extend((*arguments[2:], named["prior"]))
        return make_sampler(*arguments, **named)

    def open_trials(**named: Any) -> Trials:
        opened.append(Trials(**named))
        return opened[-1]

    monkeypatch.setattr("autoquant.api.run.make_sampler", make)
    monkeypatch.setattr("autoquant.api.run._MUCH_FASTER", 1e3)
    monkeypatch.setattr("autoquant.api.run.Trials", open_trials)
    monkeypatch.setattr("autoquant.api.sentences.outlook_sentences", lambda *_: ["so much is left"])
    result = search_in_python(
        "model.onnx",
        calibration="calib.npz",
        evaluation="eval.npz",
        out="run",
        budget=Budget(trials=14),
        space="quick",
        demands=Demands(min_snr_db=12.0, max_latency_ratio=1.0, max_size_bytes=10**9),
        objectives=("latency", "size", "snr"),
    )
    interest, prior = asked
    assert interest == Interest(min_snr_db=12.0, max_ratio=1.0, max_size_bytes=10**9, has_size=True)
    assert prior is not None
    (trials,) = opened
    assert trials.has_prior
    assert trials.is_float_faster
    outlook = trials.outlook()
    assert outlook is not None
    assert outlook.saving >= 0
    (first, *_) = trials.study.evaluations
    assert len(trials.least_ratios(first.trial.assignment)) == 1
    assert "so much is left" in result.record.notes


def test_what_regions_and_borders_cost_is_told_by_who_has_a_model_of_it(search: Command) -> None:
    result = search(trials="14", space="quick")
    assert result.exit_code == 0, result.output
    table, regions = pd.read_csv("run/ledger.csv"), [region["id"] for region in run_document()["regions"]]
    assert set(table["region"]) <= set(regions)
    assert "border" in set(table["kind"]) <= {"all", "linear", "border"}
    assert (table["us_low"] < table["us_high"]).all()
    assert "<h2>Ledger</h2>" in Path("run/report.html").read_text(encoding="utf-8")
    assert "within the 90 % interval that was predicted" in Path("run/log.txt").read_text(encoding="utf-8")

    assert search("--resume", trials="2", sampler="random", space="quick").exit_code == 0
    assert not Path("run/ledger.csv").exists()
    assert "<h2>Ledger</h2>" not in Path("run/report.html").read_text(encoding="utf-8")
