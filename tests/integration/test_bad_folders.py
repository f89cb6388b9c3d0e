"""Folders and disks that cannot take a run are one sentence and exit code 2, and what was there stays."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.integration.conftest import OVERFLOWING, Command, assert_refused, run_command
from tests.models import floats, model_of


def test_an_output_folder_with_something_in_it_is_refused_and_kept(search: Command) -> None:
    Path("run").mkdir()
    Path("run/mine.txt").write_text("precious")
    result = search()
    assert result.exit_code == 2
    assert "not empty; choose another folder" in result.stderr
    assert [path.name for path in Path("run").iterdir()] == ["mine.txt"]


def test_an_output_folder_that_is_a_file_is_refused(search: Command) -> None:
    result = search(out="calib.npz")
    assert result.exit_code == 2
    assert "this is a file; choose a folder" in result.stderr


def test_an_empty_output_folder_survives_a_search_that_cannot_begin(search: Command) -> None:
    Path("run").mkdir()
    model = model_of("(float[N,8] x) => (float[N,4] y)", OVERFLOWING, {"big": 1e38, "w": floats(8, 4)})
    onnx.save(model, "inf.onnx")
    assert search(model="inf.onnx").exit_code == 2
    assert list(Path("run").iterdir()) == []


def test_folders_that_were_made_for_a_search_that_cannot_begin_are_removed(search: Command) -> None:
    result = search(out="new/deep/run", dim="N=3")
    assert result.exit_code == 2
    assert not Path("new").exists()


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    """A folder of its own file system; tests say how large."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=False).returncode:
        pytest.skip("only root may mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


def test_a_folder_that_cannot_be_written_is_refused(search: Command, mount: Path) -> None:
    remount(mount, "ro")
    assert_refused(search(out=str(mount / "run")), "Read-only file system", out=str(mount / "run"))


@pytest.mark.parametrize("size", ["8k", "64k", "128k"])
def test_a_full_disk_leaves_no_front(search: Command, mount: Path, size: str) -> None:
    remount(mount, f"size={size}")
    result = search(out=str(mount / "run"), trials="6")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "free some room" in result.stderr
    left = {path.name for path in mount.rglob("*") if path.is_file()}
    assert left <= {"log.txt", "run.json", "study.journal", "prepared.onnx"}


@pytest.mark.parametrize("command", ["regions", "inspect"])
def test_a_full_temporary_folder_is_no_fault_of_the_model(
    mount: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remount(mount, "size=16k")
    monkeypatch.setattr(tempfile, "tempdir", str(mount))
    result = run_command(command, "example:digits")
    assert result.exit_code == 2
    assert "temporary files cannot be written (No space left on device); set TMPDIR" in result.stderr


def test_a_disk_that_fills_up_keeps_the_earlier_front(search: Command, mount: Path) -> None:
    out = mount / "run"
    assert search(out=str(out), trials="6").exit_code == 0
    before = {path: path.read_bytes() for path in (out / "front.json", out / "front.csv", *out.glob("models/*"))}
    used = sum(path.stat().st_size // 4096 * 4 + 4 for path in mount.rglob("*"))
    remount(mount, f"size={used + 24}k")
    result = search("--resume", out=str(out), trials="2")
    assert result.exit_code == 2, result.output
    assert "free some room" in result.stderr
    assert before == {path: path.read_bytes() for path in before}
    assert not list(mount.rglob("*.part"))
    remount(mount, "size=20m")
    assert search("--resume", out=str(out), trials="1").exit_code == 0


def test_a_cache_that_cannot_be_written_is_done_without(search: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOQUANT_CACHE", "/dev/null")
    assert search(trials="2").exit_code == 0
    notes = json.loads(Path("run/run.json").read_text())["notes"]
    said = "the cache /dev/null cannot be written, so that the next search calibrates again: [Errno 20]"
    assert any(note.startswith(said) for note in notes)
