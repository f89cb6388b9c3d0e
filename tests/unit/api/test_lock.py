import importlib
import os
from pathlib import Path

import pytest

from autoquant.api.lock import LOCK, FolderLock
from autoquant.errors import OutputError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="only POSIX has flock")


def test_a_folder_has_one_holder_at_a_time_and_no_file_afterwards(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    with pytest.raises(OutputError, match="another run is writing this folder"):
        FolderLock(tmp_path)
    first.release()
    FolderLock(tmp_path).release()
    assert not list(tmp_path.iterdir())


def test_the_file_of_a_killed_run_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    FolderLock(tmp_path).release()


def test_a_file_that_was_removed_just_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = importlib.import_module("fcntl")
    flock = fcntl.flock
    locked: list[int] = []

    def late(descriptor: int, how: int) -> None:
        if not locked:
            (tmp_path / LOCK).unlink()
        locked.append(descriptor)
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    first = FolderLock(tmp_path)
    assert len(locked) == 2
    with pytest.raises(OutputError, match="another run is writing this folder"):
        FolderLock(tmp_path)
    first.release()


def test_the_lock_of_another_run_is_not_removed(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    (tmp_path / LOCK).unlink()
    second = FolderLock(tmp_path)
    first.release()
    assert (tmp_path / LOCK).exists()
    second.release()
    assert not (tmp_path / LOCK).exists()


def test_a_disk_without_locks_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.api.lock.lock", lambda _: None)
    first, second = FolderLock(tmp_path), FolderLock(tmp_path)
    first.release()
    second.release()
