import importlib
import os
from pathlib import Path

import pytest

from autoquant.isolation.locks import lock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="only POSIX has flock")


def test_what_is_locked_is_locked_for_everybody_else_until_it_is_closed(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert lock(first) is True
    assert lock(second) is False
    os.close(first)
    assert lock(second) is True
    os.close(second)


def test_a_disk_without_locks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(importlib.import_module("fcntl"), "flock", flock)
    assert lock(0) is None
