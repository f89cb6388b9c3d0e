"""Metrics and the three parts of the data, through the whole command."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pandas as pd
import pytest

import autoquant
from autoquant import Budget, Demands
from autoquant.examples import example
from autoquant.report.front_json import front_from_json
from tests.integration.conftest import Command, assert_refused
from tests.models import floats

OWN = """
import numpy as np


def error(outputs, feeds, labels):
    return float(np.mean([np.abs(o["y"] - f).mean() for o, f in zip(outputs, labels["float:y"], strict=True)]))


def no_number(outputs, feeds, labels):
    return float("nan")


def raises(outputs, feeds, labels):
    raise RuntimeError("no luck")


def raises_for_candidates(outputs, feeds, labels):
    (name,) = outputs[0]
    if any((o[name] != f).any() for o, f in zip(outputs, labels[f"float:{name}"], strict=True)):
        raise RuntimeError("not the float model")
    return 1.0
"""


@pytest.fixture
def own_metrics(workplace: Path) -> Path:
    (workplace / "own_metrics.py").write_text(OWN)
    return workplace


def members_of(folder: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((Path(folder) / "front.json").read_text())["members"]
    return found


@pytest.mark.usefixtures("workplace", "all_finalists")
def test_a_search_with_accuracy_and_a_largest_drop_delivers_members_that_keep_it() -> None:
    result = autoquant.search(
        "example:digits",
        metrics=["accuracy", "agree=top1"],
        demands=Demands(max_drop={"accuracy": 0.02}),
        budget=Budget(trials=12),
        out="run",
    )
    members = members_of("run")
    assert len(members) > 1
    for member in members:
        found = member["metrics"]["accuracy"]
        assert found["drop"]["all"]["value"] <= 0.02
        assert [found[part]["n_samples"] for part in ("all", "search", "held_out")] == [128, 64, 64]
        assert found["held_out"]["low"] <= found["held_out"]["value"] <= found["held_out"]["high"]
        if member["id"] != "float":
            parts = member["snr_db_search"], member["snr_db_held_out"]
            assert min(p["worst"] for p in parts) <= member["snr_db"]["worst"] <= max(p["worst"] for p in parts)
            assert all(p["low"] <= p["worst"] <= p["high"] for p in parts)
    assert front_from_json(Path("run/front.json").read_text()).members[0].metrics.keys() == {"accuracy", "agree"}
    assert result.best(max_drop=0.02).path.exists()
    assert result.best(max_drop=0.02).member.latency["cpu-1t"].ratio < 1
    trials = pd.read_csv("run/trials.csv")
    assert trials["drop[accuracy]"].notna().all()
    assert "metric[agree,held_out]" in pd.read_csv("run/front.csv").columns
    assert "agree" in Path("run/report.html").read_text()
    assert any("the search goes by 64 of the 128 evaluation samples" in note for note in result.record.notes)


def test_the_stated_accuracy_is_that_of_the_files(workplace: Path) -> None:
    autoquant.search("example:digits", metrics=["accuracy"], budget=Budget(trials=4), out="run")
    with np.load(example("digits").evaluation) as content:
        images, labels = content["image"], content["label"]
    for member in members_of("run"):
        session = ort.InferenceSession(str(Path("run") / member["path"]), providers=["CPUExecutionProvider"])
        found = [session.run(None, {"image": images[i : i + 1]})[0].argmax() for i in range(len(images))]
        assert member["metrics"]["accuracy"]["all"]["value"] == pytest.approx(np.mean(np.array(found) == labels))


@pytest.mark.usefixtures("own_metrics")
def test_a_function_of_ones_own_and_labels_of_a_file(search: Command) -> None:
    np.savez("labels.npz", label=np.arange(10) % 4)
    result = search("--metric", "own_metrics:error:min", "--metric", "accuracy", "--labels", "labels.npz", trials="6")
    assert result.exit_code == 0, result.output
    assert "nothing is held out" in result.stdout
    assert "error" in result.stdout
    *others, own = members_of("run")
    assert own["metrics"]["error"]["all"]["value"] == 0
    assert own["metrics"]["error"]["held_out"] is None
    errors = [member["metrics"]["error"]["drop"]["search"]["value"] for member in others if member["assignment"]]
    assert all(0 < error < 1 for error in errors)


@pytest.mark.usefixtures("own_metrics")
def test_held_out_data_of_their_own(search: Command) -> None:
    np.savez("held.npz", x=floats(7, 8, seed=3))
    result = search("--held-out", "held.npz", "--metric", "cosine", "--max-drop", "50%", trials="6")
    assert result.exit_code == 0, result.output
    members = members_of("run")
    for member in members[:-1]:
        assert member["snr_db_held_out"]["n_samples"] == 7
        assert member["snr_db_search"]["n_samples"] == 10
        assert member["snr_db"]["worst"] == pytest.approx(member["snr_db_search"]["worst"])
    assert members[-1]["metrics"]["cosine"]["all"]["n_samples"] == 17
    other = search("--resume", trials="2")
    assert other.exit_code == 2
    assert "another held-out data" in other.stderr


@pytest.mark.usefixtures("own_metrics")
def test_a_metric_that_fails_on_candidates_alone_costs_them_and_not_the_search(search: Command) -> None:
    metric = "own_metrics:raises_for_candidates"
    result = search("--metric", metric, "--max-drop", "1%", trials="3")
    assert result.exit_code == 0, result.output
    assert "metric: metric 'raises_for_candidates'" in pd.read_csv("run/trials.csv")["reason"].dropna().iloc[-1]
    autoquant.search("example:digits", metrics=[metric], budget=Budget(trials=3), out="other")
    assert not any(member["assignment"] for member in members_of("other"))
    left_out = re.findall(r"(t\d+)\.onnx is not delivered: metric", Path("other/log.txt").read_text())
    assert {"t0001", "t0002"} <= set(left_out), "the two recipes; the preprocessed model may be left out too"


@pytest.mark.usefixtures("own_metrics")
@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["--metric", "cosin"], "did you mean 'cosine'"),
        (["--metric", "top1", "--metric", "top1"], "the name 'top1' is taken"),
        (["--metric", "top1@z"], "the model has no output 'z', choose from y"),
        (["--metric", "accuracy"], "the data hold no labels"),
        (["--metric", "accuracy", "--labels", "gone.npz"], "gone.npz: there is no such file"),
        (["--metric", "accuracy", "--labels", "short.npy"], "3 of them for 10 samples"),
        (["--metric", "own_metrics:eror"], "did you mean 'error'"),
        (["--metric", "no_module_of_this_name:error"], "cannot be imported"),
        (["--metric", "own_metrics:no_number"], "returned nan"),
        (["--metric", "own_metrics:raises"], "no luck"),
        (["--max-drop", "1%"], "no metric, add one"),
        (["--metric", "top1", "--max-drop", "top2=1%"], "for 'top2', but the metrics are: top1"),
        (["--metric", "top1", "--max-drop", "alot"], "give a share such as"),
        (["--held-out", "gone.npz"], "gone.npz"),
        (["--held-out", "eval.npz"], "10 of the 10 held-out samples are evaluation samples too"),
    ],
)
def test_what_is_wrong_with_metrics_is_said_before_anything_is_searched(
    search: Command, arguments: list[str], phrase: str
) -> None:
    np.save("short.npy", np.arange(3))
    assert_refused(search(*arguments), phrase)
