import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoquant.isolation import scratch
from autoquant.isolation.scratch import Scratch

MAKES_ONE = """
import sys
from autoquant.isolation.scratch import Scratch
made = Scratch(sys.argv[1])
(made.path / "weights").write_bytes(b"0" * 100)
print(made.path, flush=True)
sys.stdin.read()
"""


def test_folders_of_the_living_stay_and_are_removed_by_them(tmp_path: Path) -> None:
    first, second = Scratch(str(tmp_path)), Scratch(str(tmp_path))
    (first.path / "weights").write_bytes(b"0")
    assert set(tmp_path.iterdir()) == {first.path, second.path}
    for made in (first, second):
        made.remove()
        made.remove()  # there is nothing any more
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="folders are locked on POSIX")
def test_a_folder_of_a_killed_process_is_removed_by_the_next_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKES_ONE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        Scratch(str(tmp_path)).remove()
        assert left.exists()
        process.kill()
    assert left.exists()
    Scratch(str(tmp_path)).remove()
    assert not list(tmp_path.iterdir())


def test_where_nothing_can_be_locked_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "lock", lambda _: None)
    first = Scratch(str(tmp_path))
    Scratch(str(tmp_path)).remove()
    assert list(tmp_path.iterdir()) == [first.path]
    first.remove()
    assert not list(tmp_path.iterdir())
