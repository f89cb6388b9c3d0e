"""One run at a time in a folder."""

import os
from contextlib import suppress
from pathlib import Path

from autoquant.errors import OutputError
from autoquant.isolation.locks import lock

__all__ = ["LOCK", "FolderLock"]

LOCK = "run.lock"
_MOST_ATTEMPTS = 100
"""To lock the file before it is removed by who held it."""


class FolderLock:
    """A file in the folder that is locked until ``release``, or until this process ends, however that happens.

    Where the disk knows no locks, two runs in one folder are not noticed: on Windows, and on some network disks. NFS
    knows them, from machine to machine, where its server does.

    Args:
        folder: That is written.

    Raises:
        OutputError: Another run holds it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        for _ in range(_MOST_ATTEMPTS):
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            is_free = lock(self._descriptor)
            self._is_locked = bool(is_free)
            if is_free is None or (is_free and self._is_in_place()):
                return
            os.close(self._descriptor)
            if not is_free:
                break
        raise OutputError(f"{folder}: another run is writing this folder; wait for its end, or use another folder")

    def release(self) -> None:
        """Remove the file and let others take the folder."""
        if not self._is_locked:
            os.close(self._descriptor)  # Windows removes no open file
        if not self._is_locked or self._is_in_place():
            with suppress(OSError):
                self._path.unlink()
        if self._is_locked:
            os.close(self._descriptor)

    def _is_in_place(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        return False
