"""The whole command on a small model and on the example: what it writes, prints and promises."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import optuna
import pandas as pd
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

import autoquant
from autoquant import Budget, Target
from autoquant.domain.feed import Feed
from autoquant.examples import example
from autoquant.measurement.costs import WANTED_SESSIONS
from autoquant.model.io import sha256_of
from autoquant.report.front_json import front_from_json
from tests.integration.conftest import Command
from tests.models import beyond_onnx, floats, model_of
from tests.searches import end_after


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> autoquant.SearchResult:
    """A short search of the example."""
    folder = tmp_path_factory.mktemp("digits")
    with pytest.MonkeyPatch.context() as patched:
        end_after(patched, n_processes=WANTED_SESSIONS)
        return autoquant.search("example:digits", budget=Budget(trials=12), out=folder / "run", cache=folder / "cache")


def members_of(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((folder / "front.json").read_text())["members"]
    return found


def test_files_are_what_the_front_says(digits: autoquant.SearchResult) -> None:
    members = members_of(digits.folder)
    assert len(members) > 1
    for member in members:
        path = digits.folder / str(member["path"])
        assert member["sha256"] == sha256_of(path)
        assert member["size_bytes"] == path.stat().st_size
    assert {path.stem for path in digits.folder.glob("models/*.onnx")} == {str(member["id"]) for member in members}


def test_what_was_expected_of_latencies_is_kept(digits: autoquant.SearchResult) -> None:
    document = json.loads((digits.folder / "run.json").read_text())
    prior = document["latency_prior"]
    assert len(prior["change"]) == len(prior["spread"]) == len(document["regions"])
    assert len(prior["border"]) == len(prior["border_spread"])
    stages = [
        "read",
        "preprocess",
        "calibrate",
        "open",
        "fill",
        "profile",
        "equalise",
        "compare forms",
        "errors",
        "search",
    ]
    assert list(document["seconds"])[: len(stages)] == stages
    assert document["own_errors"].keys() == {region["id"] for region in document["regions"]}


def test_files_open_in_plain_onnxruntime_and_agree_with_the_stated_snr(digits: autoquant.SearchResult) -> None:
    with np.load(example("digits").evaluation) as content:
        arrays = {name: content[name] for name in content.files if not name.startswith("label")}
    outputs = {}
    for member in members_of(digits.folder):
        session = ort.InferenceSession(str(digits.folder / str(member["path"])), providers=["CPUExecutionProvider"])
        n_samples = len(next(iter(arrays.values())))
        feeds = [{name: array[i : i + 1] for name, array in arrays.items()} for i in range(n_samples)]
        outputs[str(member["id"])] = np.concatenate([session.run(None, feed)[0] for feed in feeds])
    reference = outputs["float"]
    for row in digits.front.to_dict("records"):
        noise = np.square(reference - outputs[row["id"]]).sum()
        if noise:
            snr_db = 10 * np.log10(np.square(reference).sum() / noise)
            assert snr_db == pytest.approx(row["snr_db"], abs=0.1)


def test_quantized_files_carry_their_provenance_with_every_node_that_is_not_of_onnx(
    digits: autoquant.SearchResult,
) -> None:
    quantized = [member for member in members_of(digits.folder) if member["assignment"]]
    assert quantized
    for member in quantized:
        model = onnx.load(digits.folder / str(member["path"]))
        properties = {p.key: p.value for p in model.metadata_props}
        others = beyond_onnx(model)
        assert set(others.values()) <= {"MatMulNBits"}
        assert sorted(others) == sorted(json.loads(properties.get("autoquant.nodes_to_quantize_blockwise", "[]")))
        assert properties["autoquant.version"]
        assert properties["autoquant.calibration"]
        assert set(member["assignment"].items()) <= set(json.loads(properties["autoquant.assignment"]).items())  # type: ignore[attr-defined]
        assert "snr_db" in properties["autoquant.measured_in_search"]
        overrides = digits.folder / "models" / f"{member['id']}.overrides.json"
        is_static = bool(json.loads(properties["autoquant.nodes_to_quantize"]))
        assert bool(json.loads(overrides.read_text())) is is_static
        assert is_static or others or json.loads(properties["autoquant.nodes_to_quantize_dynamic"])


def test_the_front_is_one(digits: autoquant.SearchResult) -> None:
    text = (digits.folder / "front.json").read_text()
    front = front_from_json(text)
    assert front.targets == (Target("cpu"),)
    assert front.members[-1].id == "float"
    assert front.members[-1].quality is None
    ratios = [member.latency["cpu-1t"].ratio for member in front.members[:-1]]
    snrs = [member.quality.worst_db for member in front.members[:-1] if member.quality]
    assert ratios == sorted(ratios)
    assert snrs == sorted(snrs)
    assert all(member.latency["cpu-1t"].ratio < 1 for member in front.members[:-1])
    document = json.loads(text)
    assert list(document) == ["schema_version", "model", "targets", "objectives", "members"]
    keys = ["id", "path", "sha256", "size_bytes", "snr_db", "latency", "assignment", "note"]
    assert all(list(member)[:8] == keys for member in document["members"])
    assert document["members"][-1]["snr_db"] == {"worst": None, "per_output": {}}
    assert document["model"]["sha256"] == sha256_of(example("digits").model)


def test_the_run_file_says_how_it_was_made(digits: autoquant.SearchResult) -> None:
    run = json.loads((digits.folder / "run.json").read_text())
    assert run["configuration"]["trials"] == 12
    assert run["environment"]["versions"]["onnxruntime"] == ort.__version__
    assert {"read", "preprocess", "calibrate", "search", "finish"} <= run["seconds"].keys()
    assert run["n_evaluations"] == len(digits.record.evaluations) <= 12
    assert (digits.folder / "log.txt").read_text()


def test_plain_optuna_reads_the_trials_that_the_table_shows(digits: autoquant.SearchResult) -> None:
    storage = JournalStorage(JournalFileBackend(str(digits.folder / "study.journal")))
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    table = pd.read_csv(digits.folder / "trials.csv")
    assert [trial.number for trial in trials] == list(table["number"])
    for trial, row in zip(trials, table.to_dict("records"), strict=True):
        assert trial.params == {str(key)[7:-1]: value for key, value in row.items() if str(key).startswith("scheme[")}
        if trial.state is TrialState.COMPLETE:
            assert trial.values[0] == pytest.approx(min(row["snr_db"], 200.0))
            assert trial.values[1] == pytest.approx(row["ratio"])
            assert row["ratio_high"] - row["ratio_low"] > 2 * 1.96 * trial.user_attrs["ratio_error"][0]


def test_the_public_api_gives_tables_and_files(digits: autoquant.SearchResult) -> None:
    assert list(digits.front["id"])[-1] == "float"
    choice = digits.best(min_snr_db=20)
    assert choice.path.exists()
    assert digits.best(min_snr_db=500).member.id == "float"
    assert digits.best(max_latency_ratio=0.99).path.exists()
    with pytest.raises(autoquant.AutoquantError, match="either"):
        digits.best()
    with pytest.raises(autoquant.AutoquantError, match="'gpu'"):
        digits.best(min_snr_db=20, target="gpu")


def test_json_prints_the_front_and_nothing_else(search: Command) -> None:
    result = search("--json", trials="3")
    assert result.stdout == Path("run/front.json").read_text()
    assert result.stderr == ""


def test_quiet_prints_nothing(search: Command) -> None:
    result = search("--quiet", trials="3")
    assert (result.exit_code, result.output) == (0, "")


def test_a_budget_that_is_too_short_gives_the_float_model(workplace: Path) -> None:
    arguments = ["model.onnx", "--calibration", "calib.npz", "--time", "0.1s", "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "autoquant", "search", *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert members_of(Path("run"))[-1]["id"] == "float"


def test_the_default_budget_is_announced(search: Command) -> None:
    assert search(dim="N=3").stdout.startswith("budget: 120 s")


def test_a_model_with_nothing_to_quantize_ends_well(search: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.api.steps.preparation.is_saturating", lambda _: True)
    onnx.save(model_of("(float[N,8] x) => (float[N,8] y)", "a = Exp(x) y = Neg(a)"), "plain.onnx")
    result = search(model="plain.onnx")
    assert result.exit_code == 0, result.output
    assert "no operator that could be quantized" in result.stdout
    assert "saturate" not in result.stdout
    members = members_of(Path("run"))
    assert [member["id"] for member in members] in (["float"], ["t0000", "float"])  # the preprocessed one may be faster
    assert not any(member["assignment"] for member in members)


def test_pixels_are_judged_by_how_far_off_they_are(search: Command) -> None:
    body = "a = MatMul(x, w) b = Sigmoid(a) c = Mul(b, k) d = Round(c) y = Cast<to=2>(d)"
    model = model_of("(float[N,8] x) => (uint8[N,4] y)", body, {"w": floats(8, 4), "k": 255.0})
    onnx.save(model, "pixels.onnx")
    result = search(model="pixels.onnx", trials="3")
    assert result.exit_code == 0, result.output
    trials = pd.read_csv("run/trials.csv")
    assert (trials["snr_db"] > 25).all()
    assert np.isfinite(trials["snr_db"]).any()


def test_a_model_with_external_data_in_a_folder_with_spaces_is_delivered_whole(search: Command) -> None:
    folder = Path("my models")
    folder.mkdir()
    model = onnx.load("model.onnx")
    onnx.save(model, folder / "the model.onnx", save_as_external_data=True, location="weights 1.bin", size_threshold=0)
    result = search(model=str(folder / "the model.onnx"), trials="3")
    assert result.exit_code == 0, result.output
    (folder / "weights 1.bin").unlink()
    session = ort.InferenceSession("run/models/float.onnx", providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": floats(1, 8)})[0].shape == (1, 4)


def test_paths_may_be_relative_to_a_parent(search: Command) -> None:
    Path("inner").mkdir()
    result = search(model="inner/../model.onnx", out="inner/../out", trials="2")
    assert result.exit_code == 0
    assert Path("out/front.json").exists()


def test_data_may_come_from_a_callable(search: Command) -> None:
    Path("feeds_for_test.py").write_text(
        "import numpy as np\n"
        "def samples():\n"
        "    rng = np.random.default_rng(5)\n"
        "    return ({'x': rng.standard_normal((2, 8)).astype(np.float32)} for _ in range(4))\n"
    )
    result = search(calibration="feeds_for_test:samples", trials="2")
    assert result.exit_code == 0, result.output


def test_evaluation_may_have_other_shapes_than_calibration(search: Command) -> None:
    onnx.save(
        model_of("(float[1,T,8] x) => (float[1,T,4] y)", "y = MatMul(x, w)", {"w": floats(8, 4)}), "sequence.onnx"
    )
    np.savez("short.npz", x=floats(6, 5, 8))
    np.savez("long.npz", x=floats(6, 9, 8, seed=1))
    result = search(model="sequence.onnx", calibration="short.npz", evaluation="long.npz", trials="3")
    assert result.exit_code == 0, result.output
    assert "failed" not in result.stdout


def test_integer_outputs_are_compared_by_agreement(search: Command) -> None:
    body = "h = MatMul(x, w) y = ArgMax<axis=1>(h)"
    onnx.save(model_of("(float[N,8] x) => (int64[N,1] y)", body, {"w": floats(8, 4)}), "classes.onnx")
    assert search(model="classes.onnx", trials="3").exit_code == 0


class Reader:
    """What onnxruntime calls a CalibrationDataReader."""

    def __init__(self) -> None:
        self.feeds: Iterator[Feed] = iter([{"x": floats(1, 8, seed=seed)} for seed in range(5)])

    def get_next(self) -> Feed | None:
        return next(self.feeds, None)


@pytest.mark.usefixtures("workplace")
def test_data_may_come_from_a_calibration_data_reader() -> None:
    result = autoquant.search("model.onnx", calibration=Reader(), budget=Budget(trials=2), out="run")
    assert any("no evaluation data: 3 of the 5 samples calibrate" in note for note in result.record.notes)


@pytest.mark.usefixtures("workplace")
def test_two_targets_are_both_measured() -> None:
    targets = [Target("cpu", threads=1), Target("cpu", threads=2)]
    result = autoquant.search(
        "model.onnx",
        calibration="calib.npz",
        evaluation="eval.npz",
        targets=targets,
        budget=Budget(trials=3),
        out="run",
    )
    assert {"ratio[cpu-1t]", "ratio[cpu-2t]"} <= set(result.front.columns)


@pytest.mark.usefixtures("workplace")
def test_batches_in_streams_are_a_target_of_their_own(search: Command) -> None:
    core = str(min(os.sched_getaffinity(0)))
    result = search("--batch", "4", "--streams", "2", "--affinity", core, "--trials", "3")
    assert result.exit_code == 0, result.stderr
    document = json.loads(Path("run/front.json").read_text())
    (target,) = document["targets"]
    assert (target["name"], target["batch"], target["streams"]) == ("cpu-1t-b4-s2", 4, 2)
    assert target["affinity"] == [int(core)]
    assert document["members"][-1]["latency"]["cpu-1t-b4-s2"]["median_ms"] > 0


@pytest.mark.usefixtures("workplace")
def test_a_search_needs_no_standard_error() -> None:
    program = '"$0" -m autoquant search model.onnx --calibration calib.npz --trials 1 --space quick --out run 2>&-'
    subprocess.run(["/bin/sh", "-c", program, sys.executable], check=True)
    assert Path("run", "front.json").exists()
