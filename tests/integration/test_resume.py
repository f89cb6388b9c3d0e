"""``--resume`` goes on with the study in the folder, and only with that one."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from typer.testing import Result

import autoquant
from autoquant import Budget
from autoquant.api.trials import SearchProgress
from autoquant.errors import ModelError
from autoquant.measurement.joint import JointMeasurement
from autoquant.measurement.measured import Measured
from autoquant.model.io import sha256_of
from tests.integration.conftest import Command, contents
from tests.models import floats, model_of


def trials_of(folder: str = "run") -> pd.DataFrame:
    return pd.read_csv(Path(folder) / "trials.csv")


def test_trial_numbers_go_on_and_nothing_is_evaluated_twice(search: Command, run: dict[Path, bytes]) -> None:
    first = trials_of()
    assert search("--resume", trials="6").exit_code == 0
    both = trials_of()
    assert list(both["number"]) == list(range(9))
    pd.testing.assert_frame_equal(both.iloc[:3], first, check_dtype=False)
    assert not both.filter(like="scheme[").duplicated().any()
    members = json.loads(Path("run/front.json").read_text())["members"]
    assert {path.name for path in Path("run/models").glob("*.onnx")} == {Path(m["path"]).name for m in members}
    assert not Path("run/models.earlier").exists()


def test_a_front_that_the_next_one_does_not_match_is_kept(command: Command, digits: dict[Path, bytes]) -> None:
    again = ("search", "example:digits", "--space", "quick", "--regions", "4", "--trials", "1", "--resume")
    result = command(*again, "--out", "digits", "--max-latency-ratio", "0.0001")
    assert result.exit_code == 0, result.stderr
    assert [member["id"] for member in json.loads(Path("digits/front.json").read_text())["members"]] == ["float"]
    assert "of the front before, which may have had more time or other demands; it is kept in earlier/1" in (
        " ".join(result.stdout.split())
    )
    models = {path for path in digits if path.suffix == ".onnx" and path.parent.name == "models"}
    for path in (*models, Path("digits/front.json"), Path("digits/report.html"), Path("digits/latency.csv")):
        assert (Path("digits/earlier/1") / path.relative_to("digits")).read_bytes() == digits[path]
    before = json.loads(digits[Path("digits/run.json")])
    assert json.loads(Path("digits/run.json").read_text())["latency_prior"] is not None
    assert before["latency_prior"] is not None


@pytest.mark.usefixtures("digits", "all_finalists")
def test_models_have_the_sums_that_the_first_search_found_to_be_faster(command: Command) -> None:
    document = json.loads(Path("digits/run.json").read_text())
    assert "plain_sums" not in document["rewrites"]
    Path("digits/run.json").write_text(json.dumps({**document, "rewrites": ["plain_sums"]}))
    again = ("search", "example:digits", "--space", "quick", "--regions", "4", "--trials", "1", "--resume")
    result = command(*again, "--out", "digits")
    assert result.exit_code == 0, result.stderr
    assert json.loads(Path("digits/run.json").read_text())["rewrites"] == ["plain_sums"]
    models = [onnx.load(path) for path in Path("digits/models").glob("*.onnx")]
    said = {prop.value for model in models for prop in model.metadata_props if prop.key == "autoquant.rewrites"}
    assert said == {'["plain_sums"]'}


def test_there_must_be_a_run(search: Command) -> None:
    result = search("--resume")
    assert result.exit_code == 2
    assert "there is no run to resume" in result.stderr
    assert not Path("run").exists()


def but_the_log(files: dict[Path, bytes]) -> dict[Path, bytes]:
    return {path: content for path, content in files.items() if path.name != "log.txt"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"space": "quick"}, "space"),
        ({"accuracy": "none"}, "level of accuracy"),
        ({"minimize": "latency,size"}, "set of objectives"),
        ({"regions": "2"}, "number of regions"),
        ({"threads": "2"}, "target"),
        ({"dim": "N=1"}, "set of sizes of dimensions"),
        ({"evaluation": "other.npz"}, "evaluation data"),
        ({"calibration": "other.npz"}, "calibration data"),
        ({"model": "other.onnx"}, "model"),
    ],
)
def test_another_search_does_not_go_on_with_a_run(
    search: Command, run: dict[Path, bytes], options: dict[str, str], name: str
) -> None:
    np.savez("other.npz", x=floats(10, 8, seed=9))
    model = onnx.load("model.onnx")
    model.doc_string = "another"
    onnx.save(model, "other.onnx")
    result = search("--resume", trials="2", **options)
    assert result.exit_code == 2
    assert f"its run has another {name} " in result.stderr
    assert but_the_log(contents("run")) == but_the_log(run)


@pytest.mark.usefixtures("run")
def test_the_same_model_under_another_path_goes_on_and_the_whole_study_is_told_of(search: Command) -> None:
    Path("model.onnx").rename("moved.onnx")
    result = search("--resume", trials="2", model="moved.onnx")
    assert result.exit_code == 0
    assert "5 evaluations" in result.stdout


def test_a_run_of_another_machine_is_refused(search: Command, run: dict[Path, bytes]) -> None:
    document = json.loads(Path("run/run.json").read_text())
    document["environment"]["cpu"] = "Imaginary 9000"
    Path("run/run.json").write_text(json.dumps(document))
    result = search("--resume")
    assert result.exit_code == 2
    assert "its run was measured in another environment (cpu Imaginary 9000, now" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_run_of_another_version_is_refused(search: Command, run: dict[Path, bytes]) -> None:
    document = json.loads(Path("run/run.json").read_text())
    document["environment"]["versions"]["autoquant"] = "0.0.1"
    Path("run/run.json").write_text(json.dumps(document))
    result = search("--resume")
    assert result.exit_code == 2
    assert "its run was measured in another environment (autoquant 0.0.1, now" in result.stderr


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("before", "now"), [("q=cosine", "q=top1"), ("old_metrics:score", "own_metrics_of_resume:score")]
)
def test_a_metric_of_the_same_name_that_is_another_one_is_refused(search: Command, before: str, now: str) -> None:
    document = json.loads(Path("run/run.json").read_text())
    document["configuration"]["metrics"] = [before, "top1"]
    Path("run/run.json").write_text(json.dumps(document))
    Path("own_metrics_of_resume.py").write_text("def score(*_):\n    return 1.0\n")
    result = search("--resume", "--metric", now, "--metric", "top1", trials="1")
    assert result.exit_code == 2
    assert f" is another metric in its run ({before}, now {now})" in result.stderr


def test_a_run_whose_configuration_is_lost_is_refused(search: Command, run: dict[Path, bytes]) -> None:
    Path("run/run.json").write_text("{")
    result = search("--resume")
    assert result.exit_code == 2
    assert "run.json: it is missing or damaged" in result.stderr


def test_a_damaged_study_is_refused(search: Command, run: dict[Path, bytes]) -> None:
    lines = Path("run/study.journal").read_text().splitlines()
    Path("run/study.journal").write_text("\n".join([lines[0], "{broken", *lines[1:]]) + "\n")
    result = search("--resume", trials="1")
    assert result.exit_code == 2
    assert "the study cannot be read" in result.stderr
    before, after = but_the_log(run), but_the_log(contents("run"))
    assert {**after, Path("run/study.journal"): b""} == {**before, Path("run/study.journal"): b""}


def test_a_study_with_trials_of_other_code_is_refused(search: Command, run: dict[Path, bytes]) -> None:
    storage = JournalStorage(JournalFileBackend("run/study.journal"))
    load_study(study_name="autoquant", storage=storage).enqueue_trial({})
    result = search("--resume")
    assert result.exit_code == 2
    assert "trial 3 was added by other code than a search" in result.stderr


def test_a_run_that_was_killed_goes_on(search: Command, run: dict[Path, bytes]) -> None:
    with Path("run/study.journal").open("a") as journal:
        journal.write('{"op_code": 4, "worker_id": "cut o')
    os.symlink("study.journal", "run/study.journal.lock")
    Path("run/models").rename("run/models.earlier")
    Path("run/models").mkdir()
    Path("run/models/t0099.onnx").write_bytes(b"half")
    assert search("--resume", trials="2").exit_code == 0
    assert len(trials_of()) == 5
    assert not Path("run/models/t0099.onnx").exists()


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has flock")
def test_a_run_that_still_goes_on_is_neither_begun_again_nor_resumed(search: Command) -> None:
    refused: dict[str, Result] = {}

    def on_progress(progress: SearchProgress) -> None:
        if progress.phase in ("calibrate", "search") and progress.phase not in refused:
            refused[progress.phase] = search(*(["--resume"] if progress.phase == "search" else []))

    result = autoquant.search(
        "model.onnx", calibration="calib.npz", budget=Budget(trials=3), out="run", on_progress=on_progress
    )
    for each in refused.values():
        assert each.exit_code == 2
        assert "run: another run is writing this folder; wait for its end" in each.stderr
    assert len(refused) == 2
    assert len(result.record.evaluations) == 3
    assert not Path("run/run.lock").exists()


def test_other_external_weights_are_another_model(search: Command) -> None:
    def save(seed: int) -> None:
        model = model_of("(float[N,8] x) => (float[N,64] y)", "y = MatMul(x, w)", {"w": floats(8, 64, seed=seed)})
        Path("weights.bin").unlink(missing_ok=True)
        onnx.save(model, "external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)

    save(1)
    assert search(model="external.onnx", trials="2").exit_code == 0
    configuration = json.loads(Path("run/run.json").read_text())["configuration"]
    assert configuration["weights_sha256"] == [sha256_of(Path("weights.bin"))]
    save(2)
    result = search("--resume", model="external.onnx", trials="1")
    assert result.exit_code == 2
    assert "its run has another set of external weights" in result.stderr


@pytest.mark.usefixtures("run")  # the cache has its calibration on all samples
def test_a_calibration_that_was_cut_off_is_the_same_with_more_time(
    search: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("autoquant.api.preparing._CALIBRATION_SHARE", 0.0)
        patched.setenv("AUTOQUANT_CACHE", "another")
        assert search(trials="3", time="60s", out="cut").exit_code == 0
    first = json.loads(Path("cut/run.json").read_text())
    assert first["n_calibration_samples"] == 1
    assert "calibration: there was time for 1 of the 12 samples" in first["notes"]
    assert search("--resume", trials="1", time="600s", out="cut").exit_code == 0
    document = json.loads(Path("cut/run.json").read_text())
    assert document["n_calibration_samples"] == 1
    assert "calibration: as before, on 1 of the 12 samples" in document["notes"]


def test_a_whole_calibration_is_not_cut_off_with_less_time(
    search: Command, run: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autoquant.api.preparing._CALIBRATION_SHARE", 0.0)
    monkeypatch.setenv("AUTOQUANT_CACHE", "another")
    assert search("--resume", trials="1", time="60s").exit_code == 0
    assert json.loads(Path("run/run.json").read_text())["n_calibration_samples"] == 12


def test_evaluation_samples_that_there_was_no_time_for_stay_out_with_more_time(
    search: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("autoquant.api.setups._FLOAT_SHARE", 0.0)
        assert search(trials="3", time="60s").exit_code == 0
    first = json.loads(Path("run/run.json").read_text())
    assert search("--resume", trials="1", time="600s").exit_code == 0
    document = json.loads(Path("run/run.json").read_text())
    assert document["n_evaluation_samples"] == first["n_evaluation_samples"] == 2
    assert any(note.startswith("evaluation: as before, on ") for note in document["notes"])


def test_a_run_that_was_killed_before_its_first_trial_is_begun_again(search: Command, run: dict[Path, bytes]) -> None:
    for path in run:
        if path.name not in ("log.txt", "run.json"):
            path.unlink()
    assert "there is no run to resume" in search("--resume").stderr
    assert search(trials="2").exit_code == 0


def test_the_configuration_is_there_before_the_study(search: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object, **__: object) -> None:
        assert Path("run/run.json").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr("autoquant.api.run.Study", killed)
    assert search(trials="2").exit_code == 130


def trained_further() -> None:
    model = onnx.load("model.onnx")
    model.doc_string = "trained further"
    onnx.save(model, "model.onnx")


def removed() -> None:
    Path("model.onnx").unlink(missing_ok=True)


def refuse_to_finish(change: Callable[[], None], phase: str = "") -> None:
    """Search while the model changes in this phase."""
    before = Path("model.onnx").read_bytes()
    with pytest.raises(ModelError, match=r"^model\.onnx: the model has changed since the search began; put back what"):
        autoquant.search(
            "model.onnx",
            calibration="calib.npz",
            evaluation="eval.npz",
            budget=Budget(trials=3),
            out="run",
            on_progress=lambda progress: change() if progress.phase == phase else None,
        )
    assert not Path("run/front.json").exists()
    Path("model.onnx").write_bytes(before)


@pytest.mark.parametrize("change", [trained_further, removed])
def test_a_model_that_changes_during_the_search_gives_no_front_until_it_is_back(
    search: Command, change: Callable[[], None]
) -> None:
    refuse_to_finish(change, "search")
    configuration = json.loads(Path("run/run.json").read_text())["configuration"]
    assert configuration["model_sha256"] == sha256_of(Path("model.onnx"))
    assert search("--resume", trials="1").exit_code == 0
    assert len(trials_of()) == 4


@pytest.mark.usefixtures("workplace")
def test_a_model_that_changes_during_the_last_measurement_gives_no_front(monkeypatch: pytest.MonkeyPatch) -> None:
    run = JointMeasurement.run

    def run_and_change(measurement: JointMeasurement) -> dict[str, Measured]:
        found = run(measurement)
        trained_further()
        return found

    monkeypatch.setattr(JointMeasurement, "run", run_and_change)
    refuse_to_finish(lambda: None)
    assert not list(Path("run/models").iterdir())
