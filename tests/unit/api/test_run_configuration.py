import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoquant.api.configuration import Budget, Configuration, Demands
from autoquant.api.objectives import objectives_of
from autoquant.api.run_configuration import read_configuration
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.target import Target
from autoquant.errors import OutputError
from autoquant.examples import example
from autoquant.metrics.grammar import parse_metrics

METRICS = parse_metrics(["top1"])


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Configuration:
    """Of a search whose files are there."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.onnx", "calib.npz", "eval.npz", "labels.npz", "own.toml"):
        Path(name).touch()
    return Configuration(
        model=Path("model.onnx"),
        calibration="calib.npz",
        evaluation="eval.npz",
        labels=Path("labels.npz"),
        metrics=METRICS,
        objectives=objectives_of(["latency", "snr", "top1"], METRICS),
        targets=(Target(options={"a": "b"}), Target(threads=2)),
        budget=Budget(trial_seconds=7.0),
        demands=Demands(),
        out=Path(),
        space="own.toml",
        accuracy=Accuracy.FULL,
        n_regions=11,
        dims={"N": 3},
        seed=12,
    )


def written(asked: Configuration, **changes: object) -> Path:
    """The folder of a run with this configuration."""
    folder = Path("run")
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"configuration": asked.plain() | changes}))
    return folder


def test_what_was_asked_is_read_back(asked: Configuration) -> None:
    assert read_configuration(written(asked)) == asked


def test_demands_folder_and_budget_of_the_run_do_not_count(asked: Configuration) -> None:
    budget = replace(asked.budget, seconds=60.0, trials=5)
    with_demands = replace(asked, demands=Demands(30.0, 0.8), budget=budget, out=Path("run"), warm_start=Path("old"))
    assert read_configuration(written(with_demands)) == asked


def test_what_is_given_again_takes_the_place_of_what_has_moved(asked: Configuration) -> None:
    moved = {"model": "model.onnx", "calibration": "calib.npz", "labels": "labels.npz", "space": "own.toml"}
    folder = written(asked, **{name: f"gone/{path}" for name, path in moved.items()})
    assert read_configuration(folder, **moved) == asked
    found = read_configuration(folder, **(moved | {"model": "example:digits"}))
    assert found.model == example("digits").model


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        (
            {"model": "gone.onnx", "held_out": "gone.npz"},
            "what it names is not found from here: gone.onnx, gone.npz; give it with --model, --held-out or"
            " autoquant.resolve(..., model=..., held_out=...)",
        ),
        (
            {"held_out": "<dict>"},
            "its held_out data were Python objects <dict>, give them with --held-out or"
            " autoquant.resolve(..., held_out=...)",
        ),
        ({"calibration": None}, "it is damaged (calibration); give the folder of another run"),
        ({"targets": [{"place": "cpu"}]}, "it is damaged ("),
        ({"calibration": ["calib.npz"]}, "it is damaged ("),
        ({"n_regions": 0}, "the number of regions is 0"),
    ],
)
def test_a_run_that_cannot_be_gone_on_with_is_refused(
    asked: Configuration, changes: Mapping[str, Any], phrase: str
) -> None:
    with pytest.raises(OutputError) as refused:
        read_configuration(written(asked, **changes))
    assert str(refused.value).startswith("run/run.json: ")
    assert phrase in str(refused.value)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"run.json: it is missing or damaged; give the folder that a search"):
        read_configuration(tmp_path)
