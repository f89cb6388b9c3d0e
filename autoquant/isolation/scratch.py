"""Folders for files that nobody keeps, not even those of a process that was killed."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from autoquant.isolation.locks import lock

__all__ = ["Scratch"]

_UNLOCKED, _LOCKED = "autoquant-new-", "autoquant-scratch-"


class Scratch:
    """A new folder, locked as long as this process lives; those that are locked no more are removed on the way.

    Where folders cannot be locked, what a killed process has left stays.

    Args:
        parent: Where to; the system's folder for temporary files where None.
    """

    def __init__(self, parent: str | None) -> None:
        place = Path(parent or tempfile.gettempdir())
        _sweep(place)
        self.path = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=place))
        self._descriptor = _locked(self.path)
        if self._descriptor is not None:
            self.path = self.path.rename(place / self.path.name.replace(_UNLOCKED, _LOCKED, 1))

    def remove(self) -> None:
        """Remove it with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _sweep(place: Path) -> None:
    for folder in place.glob(f"{_LOCKED}*"):
        descriptor = _locked(folder)
        if descriptor is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)


def _locked(folder: Path) -> int | None:
    """Its descriptor; None where it is somebody else's, or cannot be locked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        if lock(descriptor):
            return descriptor
        os.close(descriptor)
    return None
