"""The folder that a search writes."""

import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autoquant.errors import OutputError

__all__ = ["RunFolder"]

_OWN = frozenset(
    {"models", "study.journal", "log.txt", "run.json", "front.json", "front.csv", "trials.csv", "report.html"}
)
_LOG = logging.getLogger("autoquant")


class RunFolder:
    """A run's folder: files appear whole or not at all.

    Args:
        path: New or empty, unless a run is resumed.
        resume: Whether it holds a run that goes on.

    Raises:
        OutputError: It holds something else, or cannot be written.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        self.path = path
        self.models = path / "models"
        self.journal = path / "study.journal"
        if path.exists() and not path.is_dir():
            raise OutputError(f"{path}: this is a file; choose a folder for --out")
        if resume and not self.journal.exists():
            raise OutputError(f"{path}: there is no run to resume; leave out --resume to start one")
        if not resume and path.exists() and any(path.iterdir()):
            raise OutputError(f"{path}: this folder is not empty; use --resume to go on with its run, or another --out")
        with writing(path):
            self.models.mkdir(parents=True, exist_ok=True)

    def write_text(self, name: str, text: str) -> None:
        """Write a file at once.

        Raises:
            OutputError: There is no room, or the folder cannot be written.
        """
        target = self.path / name
        part = target.with_name(target.name + ".part")
        with writing(target):
            try:
                part.write_text(text, encoding="utf-8")
                os.replace(part, target)
            except OSError:
                part.unlink(missing_ok=True)
                raise

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Write plain values."""
        self.write_text(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def read_json(self, name: str) -> dict[str, object]:
        """Read plain values; empty where the file is missing or was cut off."""
        try:
            found = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @contextmanager
    def log(self) -> Iterator[None]:
        """Everything that the package logs goes to ``log.txt`` meanwhile."""
        with writing(self.path / "log.txt"):
            handler = logging.FileHandler(self.path / "log.txt", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        level = _LOG.level
        _LOG.setLevel(logging.INFO)
        _LOG.addHandler(handler)
        try:
            yield
        finally:
            _LOG.removeHandler(handler)
            _LOG.setLevel(level)
            handler.close()

    def discard_if_new(self) -> None:
        """Remove what a search that could not begin has left; a folder with a study stays."""
        if self.journal.exists():
            return
        for name in _OWN:
            path = self.path / name
            if path.is_file():
                path.unlink()
        for folder in (self.models, self.path):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutputError(f"{path}: the disk is full; free some room and go on with --resume") from error
        raise OutputError(f"{path}: cannot be written ({error.strerror}); choose another --out") from error
