import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import create_trial

from autoquant import Budget, SearchResult, load_result, search
from autoquant.api.folder import RunFolder
from autoquant.errors import UsageError
from tests.models import floats, model_of, saved


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> SearchResult:
    """What a search of a small model returned."""
    folder = tmp_path_factory.mktemp("finished")
    model = model_of("(float[N,4] x) => (float[N,3] y)", "h = MatMul(x, w) y = Relu(h)", {"w": floats(4, 3)})
    path = saved(model, folder / "model.onnx")
    data = [{"x": floats(1, 4, seed=seed)} for seed in range(8)]
    return search(path, calibration=data, budget=Budget(trials=3), out=folder / "run", cache=folder)


@pytest.fixture
def run(result: SearchResult, tmp_path: Path) -> Path:
    """Its folder, to be changed."""
    return Path(shutil.copytree(result.folder, tmp_path / "run"))


def test_a_finished_run_has_the_front_and_the_trials_that_its_search_returned(result: SearchResult) -> None:
    found = load_result(str(result.folder))
    assert found.folder == result.folder
    pd.testing.assert_frame_equal(found.front, result.front)
    pd.testing.assert_frame_equal(found.trials, result.trials)
    assert found.best(min_snr_db=20).path == result.best(min_snr_db=20).path
    assert found.record.evaluations == result.record.evaluations
    assert found.record.notes == result.record.notes
    assert found.record.environment == json.loads(json.dumps(result.record.environment))
    assert found.record.configuration["trials"] == 3
    assert found.record.phases.keys() == result.record.phases.keys()
    assert [(r.id, r.nodes, r.work) for r in found.record.regions] == [
        (r.id, r.nodes, r.work) for r in result.record.regions
    ]


def test_reading_a_run_leaves_it_as_it_is(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert load_result(run).record.ledger is None
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_while_new_models_are_measured_the_front_is_that_of_before(run: Path) -> None:
    expected = load_result(run)
    folder = RunFolder(run, resume=True)
    with folder.new_models():
        (folder.models / "float.onnx").write_text("new")
        found = load_result(run)
        pd.testing.assert_frame_equal(found.front.drop(columns="path"), expected.front.drop(columns="path"))
        assert [path.read_bytes() for path in map(run.joinpath, found.front["path"])]
        assert found.best(min_snr_db=200).path.read_bytes() != b"new"
    folder.close()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "file.npy", np.zeros(1))
    for path in (tmp_path, tmp_path / "gone", tmp_path / "file.npy", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="there is no run; give the folder that a search has written"):
            load_result(path)


def test_a_run_without_a_front_is_not_finished(run: Path) -> None:
    (run / "front.json").unlink()
    with pytest.raises(UsageError, match=r"run: its run is not finished; go on with it by autoquant\.search"):
        load_result(run)


def test_a_run_with_trials_of_other_code_is_refused_with_the_first_of_them(run: Path) -> None:
    storage = JournalStorage(JournalFileBackend(str(run / "study.journal")))
    study = load_study(study_name="autoquant", storage=storage)
    study.add_trial(study.trials[0])
    study.add_trial(create_trial(values=study.trials[0].values))
    said = rf"^{re.escape(str(run / 'study.journal'))}: trial 4 was added by other code than a search; take another run"
    with pytest.raises(UsageError, match=said):
        load_result(run)


def without_regions(file: Path) -> None:
    file.write_text(json.dumps({"regions": None, **dict.fromkeys(("seconds_saved", "environment"))}))


@pytest.mark.parametrize("name", ["run.json", "front.json", "study.journal"])
@pytest.mark.parametrize(
    "damage",
    [Path.unlink, without_regions, lambda file: file.write_text("{"), lambda file: file.write_text("[]\n[]\n")],
)
def test_damaged_files_are_refused_in_one_sentence(run: Path, name: str, damage: Callable[[Path], object]) -> None:
    damage(run / name)
    with pytest.raises(UsageError, match=rf"^{re.escape(str(run))}(/run.json)?: [^\n]+$"):
        load_result(run)
    assert (damage is Path.unlink) != (run / name).exists()
