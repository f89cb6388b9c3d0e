"""``autoquant resolve``: another demand on a finished run."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest

import autoquant
from autoquant import AutoquantError
from autoquant.api.trials import SearchProgress, Trials
from autoquant.domain.measurement import Evaluation, Failure
from autoquant.domain.region import Assignment, RegionId
from autoquant.examples import example
from autoquant.study.demand import Predicted, fastest_predicted
from autoquant.study.layout import Layout
from autoquant.study.study import Study
from tests.integration.conftest import Command, contents, deliver_all_finalists, run_command
from tests.models import floats, model_of

SPACES = Path(__file__).parents[2] / "search_spaces"


def document(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "run.json").read_text(encoding="utf-8"))
    return found


def change_configuration(**changed: Any) -> None:
    """Of the run ``digits``, as if it had been searched so."""
    found = document("digits")
    assert changed.keys() <= found["configuration"].keys()
    found["configuration"] |= changed
    Path("digits/run.json").write_text(json.dumps(found), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the finished run ``digits``, and of ``other``, which keeps 20 dB, and what was printed, in ``printed``."""
    made = tmp_path_factory.mktemp("resolved")
    shutil.copytree(searched.parent, made, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AUTOQUANT_CACHE", str(made / "cache"))
        patched.chdir(made)
        deliver_all_finalists(patched)
        result = run_command("resolve", "digits", "--min-snr", "20", "--out", "other")
    assert result.exit_code == 0, result.output
    (made / "printed").write_text(result.stdout, encoding="utf-8")
    return made


@pytest.fixture
def resolved(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The current folder is like that one: what was printed."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("AUTOQUANT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path("printed").read_text(encoding="utf-8")


def test_one_more_trial_is_measured_and_said_what_was_predicted(resolved: str, searched: Path) -> None:
    before = {path.relative_to(searched): path.read_bytes() for path in searched.rglob("*") if path.is_file()}
    assert {path.relative_to("digits"): content for path, content in contents("digits").items()} == before
    first, both = pd.read_csv("digits/trials.csv"), pd.read_csv("other/trials.csv")
    assert len(both) == len(first) + 1
    ends = ["ratio_low", "ratio_high"]  # about processes, of which each folder has seen its own
    pd.testing.assert_frame_equal(both.iloc[:-1].drop(columns=ends), first.drop(columns=ends), check_dtype=False)
    timed = both[both["ratio"].notna()]
    assert ((timed["ratio_low"] < timed["ratio"]) & (timed["ratio"] < timed["ratio_high"])).all()
    assert "predicted from 14 trials of digits: " in resolved
    found = document("other")
    assert found["configuration"]["min_snr_db"] == 20
    assert found["resolved"]["trial"] == 14
    assert found["resolved"]["snr_db"] >= 20 + found["resolved"]["snr_error_db"] - 1e-3
    assert found["resolved"]["is_proven"]
    members = json.loads(Path("other/front.json").read_text())["members"]
    assert [member["id"] for member in members] == ["t0014", "float"]
    assert "measured: " in resolved
    assert "missed" not in resolved
    assert {path.name for path in Path("other/models").glob("*.onnx")} == {Path(m["path"]).name for m in members}


@pytest.mark.usefixtures("resolved")
def test_the_new_folder_is_a_run_that_goes_on() -> None:
    asked = ("--space", "quick", "--regions", "4", "--trials", "2", "--resume", "--out", "other")
    assert run_command("search", "example:digits", *asked).exit_code == 0
    assert len(pd.read_csv("other/trials.csv")) == 17


def test_a_folder_that_is_not_empty_is_refused_with_what_the_command_has(
    command: Command, digits: dict[Path, bytes]
) -> None:
    result = command("resolve", "digits", "--min-snr", "20", "--out", "digits")
    assert result.exit_code == 2
    assert result.stderr == "autoquant: digits: this folder is not empty; choose another folder\n"
    assert contents("digits") == digits


@pytest.mark.usefixtures("digits")
def test_limits_of_a_trial_are_those_of_the_run_and_the_front_is_printed_as_json(command: Command) -> None:
    limits = {"trial_seconds": 45.0, "trial_memory_mb": 4000}
    change_configuration(**limits)
    result = command("resolve", "digits", "--min-snr", "20", "--out", "other", "--json")
    assert result.exit_code == 0, result.output
    assert limits.items() <= document("other")["configuration"].items()
    assert json.loads(result.stdout) == json.loads(Path("other/front.json").read_text())


def mistaken_by(db: float, *, n: int) -> Callable[..., Predicted]:
    """Predictions, the first ``n`` of which promise too much."""
    asked: list[float] = []

    def predict(study: Study, layout: Layout, *, min_snr_db: float, **rest: Any) -> Predicted:
        asked.append(min_snr_db)
        return fastest_predicted(study, layout, min_snr_db=min_snr_db - db * (len(asked) <= n), **rest)

    return predict


@pytest.mark.usefixtures("all_finalists")
def test_a_demand_that_is_missed_is_said(
    command: Command, digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", mistaken_by(200, n=9))
    result = command("resolve", "digits", "--min-snr", "60", "--out", "other")
    assert result.exit_code == 0, result.output
    assert re.search(r"the demand is missed: .* dB, not 60; demand a bit more", result.stdout)
    assert len(pd.read_csv("other/trials.csv")) == 14 + 4
    tried = document("other")["resolved"]
    assert sorted([tried["trial"], *tried["missed_trials"]]) == [14, 15, 16, 17]
    assert len(re.findall(r"t00\d\d missed the demand of 60 dB: .* were predicted, its trial gave", result.stdout)) == 3


def test_after_a_miss_the_next_prediction_is_learned_from_it_and_measured(
    command: Command, digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the uniform recipe is predicted to be better than it was measured."""
    schemes = pd.read_csv("digits/trials.csv").filter(like="scheme[").iloc[1]
    uniform = {RegionId(str(key)[7:-1]): str(name) for key, name in schemes.items()}
    demand = round(pd.read_csv("digits/trials.csv").snr_db[1]) + 1
    n_asked: list[int] = []

    def predict(study: Study, layout: Layout, **rest: Any) -> Predicted:
        found = fastest_predicted(study, layout, **rest)
        n_asked.append(found.n_trials)
        return replace(found, assignment=uniform) if len(n_asked) == 1 else found

    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", predict)
    result = command("resolve", "digits", "--min-snr", f"{demand}", "--out", "other")
    assert result.exit_code == 0, result.output
    trials, found = pd.read_csv("other/trials.csv"), document("other")["resolved"]
    assert found["missed_trials"] == list(range(14, len(trials) - 1)) != []
    assert trials.snr_db[14] < demand <= trials.snr_db.iloc[-1]
    assert found["trial"] == len(trials) - 1
    assert f"t0014 missed the demand of {demand} dB: " in result.stdout
    assert f"predicted from {len(trials) - 1} trials of digits and this run: " in result.stdout
    members = json.loads(Path("other/front.json").read_text())["members"]
    assert members[-1]["id"] == "float"
    assert all(member["snr_db"]["worst"] == pytest.approx(trials.snr_db.iloc[-1], abs=0.01) for member in members[:-1])


def test_a_prediction_that_fails_is_followed_by_another(
    command: Command, digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[Assignment] = []
    measure = Trials.measure

    def failing(trials: Trials, assignment: Assignment) -> Evaluation | None:
        if measured:
            return measure(trials, assignment)
        measured.append(assignment)
        trial = trials.study.ask_for(assignment)
        trials.study.tell(Evaluation(trial=trial, outcome=Failure(stage="run", reason="of a bad day")))
        return trials.study.evaluations[-1]

    monkeypatch.setattr(Trials, "measure", failing)
    result = command("resolve", "digits", "--min-snr", "20", "--out", "other")
    assert result.exit_code == 0, result.output
    assert "t0014 missed the demand of 20 dB: " in result.stdout
    assert "it failed at run (of a bad day)" in result.stdout
    assert document("other")["resolved"]["assignment"] != dict(measured[0])


@pytest.mark.parametrize("n_measured", [1, 2])
def test_ctrl_c_keeps_what_was_measured(
    digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch, n_measured: int
) -> None:
    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", mistaken_by(200, n=9))
    n_told: list[int] = []

    def on_progress(progress: SearchProgress) -> None:
        if progress.phase == "search":
            n_told.append(progress.n_evaluations)
            if len(n_told) == n_measured:
                signal.raise_signal(signal.SIGINT)

    result = autoquant.resolve("digits", min_snr_db=60, out="other", cache="elsewhere", on_progress=on_progress)
    assert "no other prediction was measured: the user ended the search" in result.record.notes
    assert len(pd.read_csv("other/trials.csv")) == 14 + n_measured
    assert json.loads(Path("other/front.json").read_text())["members"][-1]["id"] == "float"


def test_ctrl_c_before_anything_was_measured_leaves_nothing(
    digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(study: Study, layout: Layout, **rest: Any) -> Predicted:
        signal.raise_signal(signal.SIGINT)
        return fastest_predicted(study, layout, **rest)

    monkeypatch.setattr("autoquant.api.resolve.fastest_predicted", predict)
    with pytest.raises(KeyboardInterrupt):
        autoquant.resolve("digits", min_snr_db=20, out="other")
    assert not Path("other").exists()


def test_what_is_not_shown_to_be_faster_is_not_delivered_and_that_is_said(
    command: Command, digits: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.api.delivery.choose_members", lambda *_, **__: [])
    result = command("resolve", "digits", "--min-snr", "20", "--out", "other")
    assert result.exit_code == 0, result.output
    said = "there is no model for 20 dB: the one that was built is not shown to be faster than float; its trial gave "
    assert said in " ".join(result.stdout.split())
    assert "measured: " not in result.stdout
    (member,) = json.loads(Path("other/front.json").read_text())["members"]
    assert member["id"] == "float"
    assert [path.name for path in Path("other/models").glob("*.onnx")] == [Path(member["path"]).name]


def test_another_model_data_or_environment_is_refused(command: Command, run: dict[Path, bytes]) -> None:
    def refused() -> str:
        result = command("resolve", "run", "--min-snr", "20", "--out", "other")
        assert result.exit_code == 2
        assert not Path("other").exists()
        return result.stderr

    model, samples = Path("model.onnx").read_bytes(), Path("eval.npz").read_bytes()
    changed = onnx.load("model.onnx")
    changed.doc_string = "another"
    onnx.save(changed, "model.onnx")
    assert "run: its run has another model (" in refused()
    Path("model.onnx").write_bytes(model)
    np.savez("eval.npz", x=floats(10, 8, seed=9))
    assert "run: its run has another evaluation data (" in refused()
    Path("eval.npz").write_bytes(samples)
    document_now = document("run")
    document_now["environment"]["cpu"] = "Imaginary 9000"
    Path("run/run.json").write_text(json.dumps(document_now))
    assert "measured in another environment (cpu Imaginary 9000" in refused()
    Path("run/run.json").write_text("{")
    assert "run.json: it is missing or damaged" in refused()
    assert "gone/run.json: it is missing" in command("resolve", "gone", "--min-snr", "20", "--out", "other").stderr


def test_a_run_without_a_study_or_a_measured_trial_is_refused(command: Command, run: dict[Path, bytes]) -> None:
    lines = Path("run/study.journal").read_text().splitlines(keepends=True)
    Path("run/study.journal").write_text(lines[0])
    result = command("resolve", "run", "--min-snr", "20", "--out", "other")
    assert result.exit_code == 2
    assert "no trial of its study was measured" in result.stderr
    Path("run/study.journal").unlink()
    assert "run: there is no run" in command("resolve", "run", "--min-snr", "20", "--out", "other").stderr
    assert not Path("other").exists()


def test_a_run_without_regions_is_refused(command: Command, search: Command) -> None:
    onnx.save(model_of("(float[N,8] x) => (float[N,8] y)", "a = Sin(x) y = Cos(a)", {}), "float.onnx")
    assert search(model="float.onnx", trials="3").exit_code == 0
    result = command("resolve", "run", "--min-snr", "20", "--out", "other")
    assert result.exit_code == 2
    assert "run: its model holds no operator that could be quantized" in result.stderr
    assert not Path("other").exists()


@pytest.mark.usefixtures("resolved")
def test_samples_that_it_selects_on_are_not_said_to_be_held_out() -> None:
    (before, *_), (after, *_) = (json.loads(Path(p, "front.json").read_text())["members"] for p in ("digits", "other"))
    assert before["snr_db_held_out"]["n_samples"] > 0
    assert after["snr_db_held_out"] is None
    both = [before[f"snr_db_{part}"]["n_samples"] for part in ("search", "held_out")]
    assert after["snr_db_search"]["n_samples"] == sum(both)


@pytest.mark.usefixtures("digits")
def test_a_space_that_has_moved_is_given_again(command: Command) -> None:
    change_configuration(space="own.toml")
    shutil.copy(SPACES / "quick.toml", "moved.toml")
    again = ("resolve", "digits", "--min-snr", "20", "--out", "other")
    refused = command(*again)
    assert refused.exit_code == 2
    assert "own.toml" in refused.stderr
    found = command(*again, "--space", "moved.toml", "--quiet")
    assert found.exit_code == 0, found.stderr
    assert found.stdout == ""
    other = command(*again[:-1], "third", "--space", "default")
    assert "digits: its run has another space (own.toml, now default)" in other.stderr


@pytest.mark.usefixtures("run")
def test_from_another_folder_what_is_not_found_is_named_with_the_options_for_it(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("below").mkdir()
    monkeypatch.chdir("below")
    asked = ["resolve", "../run", "--min-snr", "10", "--out", "other"]
    refused = command(*asked, "--calibration", "../calib.npz")
    assert refused.exit_code == 2
    assert refused.stderr == (
        "autoquant: ../run/run.json: what it names is not found from here: model.onnx, eval.npz; give it with"
        " --model, --evaluation or autoquant.resolve(..., model=..., evaluation=...)\n"
    )
    again = ("--calibration", "../calib.npz", "--evaluation", "../eval.npz", "--model", "../model.onnx")
    assert "not found" not in command(*asked, *again).stderr


@pytest.mark.usefixtures("digits")
def test_data_that_were_python_objects_are_given_again() -> None:
    calibration = dict(np.load(example("digits").calibration))
    change_configuration(calibration="<dict>")
    with pytest.raises(AutoquantError, match=r"were Python objects <dict>, give them with --calibration or autoquant"):
        autoquant.resolve("digits", min_snr_db=20, out="other")
    result = autoquant.resolve("digits", min_snr_db=20, out="other", calibration=calibration)
    assert result.record.front.members[-1].id == "float"


def test_what_has_moved_is_given_again(command: Command, run: dict[Path, bytes]) -> None:
    asked = ["resolve", "run", "--min-snr", "10", "--out", "other"]
    for name in ("model.onnx", "calib.npz", "eval.npz"):
        Path(name).rename(f"moved-{name}")
    assert command(*asked).exit_code == 2
    moved = ["--model", "moved-model.onnx", "--calibration", "moved-calib.npz", "--evaluation", "moved-eval.npz"]
    result = command(*asked, *moved)
    assert "moved" not in result.stderr
    assert (result.exit_code == 0) == Path("other/front.json").exists()
    assert result.exit_code == 0 or "nothing faster than float" in result.stderr
    np.savez("others.npz", x=floats(10, 8, seed=9))
    others = command(*asked[:-1], "third", *moved[:-1], "others.npz")
    assert "run: its run has another evaluation data" in others.stderr
