import subprocess
from pathlib import Path

import pytest

from experiments import commit
from experiments.believe.document import new_part
from experiments.environment import read_environment


@pytest.fixture(autouse=True)
def _forgotten() -> None:
    commit.read_commit.cache_clear()


def git(*arguments: str, cwd: Path) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *names, *arguments], cwd=cwd, capture_output=True, text=True, check=True).stdout


def test_a_commit_is_named_and_whether_files_differ_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "commit.py"
    file.write_text("1")
    git("init", "-q", cwd=tmp_path)
    git("add", ".", cwd=tmp_path)
    git("commit", "-qm", "a", cwd=tmp_path)
    monkeypatch.setattr(commit, "__file__", str(file))
    head = git("rev-parse", "HEAD", cwd=tmp_path)[:12]
    assert commit.read_commit() == read_environment()["commit"] == new_part("a")["commit"] == head
    file.write_text("2")
    commit.read_commit.cache_clear()
    assert commit.read_commit() == f"{head}-dirty"


def test_outside_of_a_checkout_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "__file__", str(tmp_path / "commit.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit.read_commit() is None
    commit.read_commit.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert commit.read_commit() is None
