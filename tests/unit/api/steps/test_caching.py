import os
from importlib import metadata
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from autoquant.api.steps import calibrate, prepare, read_data
from autoquant.api.steps.caching import made_by, recalled, trim_cache, user_cache
from tests.models import floats, model_of, saved


def test_what_was_not_used_for_longest_is_removed_first(tmp_path: Path) -> None:
    made: list[str] = []

    def make(name: str) -> tuple[np.ndarray, bool]:
        made.append(name)
        return np.zeros(10_000), True

    def get(name: str) -> None:
        assert recalled(tmp_path, (name,), lambda: make(name)).size == 10_000

    get("newer")
    (newer,) = tmp_path.rglob("output.pkl")
    get("older")
    (older,) = set(tmp_path.rglob("output.pkl")) - {newer}
    os.utime(newer, (2_000, 1_000))
    os.utime(older, (1_000, 1_000))
    trim_cache(tmp_path, most_bytes=1_000_000)
    assert newer.exists()
    assert older.exists()
    trim_cache(tmp_path, most_bytes=120_000)
    get("newer")
    assert made == ["newer", "older"]
    get("older")
    assert made == ["newer", "older", "older"]


def test_what_others_keep_in_the_folder_stays(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / ("0a" * 20) / "model.bin"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(bytes(1_000))
    recalled(tmp_path, ("a",), lambda: (1, True))
    trim_cache(tmp_path, most_bytes=1)
    assert snapshot.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"snapshots", "autoquant"}
    assert recalled(tmp_path, ("a",), lambda: (2, True)) == 2


def test_a_folder_may_be_below_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    recalled(Path("~/kept"), ("a",), lambda: (1, True))
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert recalled(tmp_path / "home" / "kept", ("a",), lambda: (2, True)) == 1


def test_who_has_no_home_folder_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("AUTOQUANT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    trim_cache(user_cache())
    assert recalled(user_cache(), ("a",), lambda: (1, True)) == 1
    assert recalled(user_cache(), ("a",), lambda: (2, True)) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_part_is_not_kept_as_the_whole(tmp_path: Path) -> None:
    assert recalled(tmp_path, ("a",), lambda: (1, False)) == 1
    assert recalled(tmp_path, ("a",), lambda: (2, True)) == 2
    assert recalled(tmp_path, ("a",), lambda: (3, True)) == 2


def test_a_folder_that_is_there_but_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read-only file system")

    (tmp_path / "autoquant").mkdir()
    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert recalled(tmp_path, ("a",), lambda: (1, True)) == 1
    assert recalled(tmp_path, ("a",), lambda: (2, True)) == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "autoquant"]


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    blocked = tmp_path / "file" / "cache"
    trim_cache(blocked)
    assert recalled(blocked, ("a",), lambda: (1, True)) == 1
    assert recalled(blocked, ("a",), lambda: (2, True)) == 2


def test_onnxruntime_has_a_version_whichever_package_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata.version

    def version(name: str) -> str:
        if name == "onnxruntime":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(metadata, "version", version)
    assert f" {ort.__version__} " in made_by("step 1")


@pytest.mark.parametrize("upgraded", ["importlib.metadata.version", "autoquant.api.steps.caching.runtime_version"])
def test_what_another_version_observed_is_observed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upgraded: str
) -> None:
    model = model_of("(float[1,4] x) => (float[1,3] y)", "y = MatMul(x, w)", {"w": floats(4, 3)})
    path, n_observed = saved(model, tmp_path / "model.onnx"), []
    samples = read_data(path, {"x": floats(5, 4)})
    prepared = prepare(path, samples)
    for version in ("1.0", "1.0", "1.1"):
        monkeypatch.setattr(upgraded, lambda *_, version=version: version)
        told: list[int] = []
        calibrate(prepared, samples, cache_folder=tmp_path / "cache", on_sample=told.append)
        n_observed.append(len(told))
    assert n_observed == [5, 0, 5]
