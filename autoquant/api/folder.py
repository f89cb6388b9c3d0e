"""The folder that a search writes."""

import errno
import itertools
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autoquant.api.lock import LOCK, FolderLock
from autoquant.domain.reason import is_disk_full
from autoquant.errors import DiskFullError, OutputError
from autoquant.runtime.paths import is_text

__all__ = [
    "FRONT",
    "GIVEN_WAY",
    "JOURNAL",
    "KEPT",
    "LEDGER",
    "RunFolder",
    "enough_room",
    "read_json",
    "write_texts",
    "writing",
]

LEDGER = "ledger.csv"
"""Not every run has one."""
JOURNAL = "study.journal"
"""The trials; a run that has it can be resumed."""
_LATENCIES = "latency.csv"
FRONT = "front.json"
_OF_MODELS = (FRONT, "front.csv", "report.html", LEDGER, _LATENCIES)
"""What tells of the models, and of no other ones."""
_OWN = (
    JOURNAL,
    f"{JOURNAL}.lock",
    "log.txt",
    "run.json",
    *_OF_MODELS,
    "trials.csv",
    "prepared.onnx",
)
GIVEN_WAY = "models.earlier"
"""Where models are, and what tells of them, while new ones are measured."""
KEPT = "earlier"
"""Fronts that later ones do not match."""
_BEFORE_TRIALS = (LOCK, "log.txt", "run.json", "run.json.part")
_LOG = logging.getLogger("autoquant")


@dataclass(slots=True)
class EarlierFront:
    """What new models replace.

    Attributes:
        place: Where it goes if it is kept, relative to the folder.
        text: Of its ``front.json``; empty where there is none.
        is_kept: Whether it goes there.
    """

    place: Path
    text: str
    is_kept: bool = False


class RunFolder:
    """A run's folder, which nobody else takes until it is closed: files appear whole or not at all.

    Args:
        path: New or empty unless a run is resumed; what a run that was killed before it had a study has left counts as
            nothing.
        resume: Whether it holds a run that goes on.
        advice: What to do where it should be new and is not empty.

    Raises:
        OutputError: It holds something else, another run is writing it, or it cannot be written.
    """

    def __init__(
        self, path: Path, *, resume: bool, advice: str = "resume its run to go on with it, or use another folder"
    ) -> None:
        self.path = path
        self.models = path / "models"
        self.journal = path / JOURNAL
        self._earlier = path / GIVEN_WAY
        self._replaced = path / "models.replaced"
        self._copying = path / "models.part"
        self._is_new, self._advice = not resume, advice
        with writing(path):
            if not is_text(path):
                raise OutputError(f"{path}: this name is not UTF-8, as onnxruntime wants it; choose another folder")
            if path.exists() and not path.is_dir():
                raise OutputError(f"{path}: this is a file; choose a folder")
            if resume and not self.journal.exists():
                raise OutputError(f"{path}: there is no run to resume; start one without resuming")
            self._made = [folder for folder in (self.models, path, *path.parents) if not folder.exists()]
            self._found = frozenset(os.listdir(path)) if path.exists() else frozenset[str]()
            path.mkdir(parents=True, exist_ok=True)
            self._lock: FolderLock | None = FolderLock(path)
            try:
                self._begin()
            except BaseException:
                self.close()
                raise

    def _begin(self) -> None:
        if self._is_new and not self._is_unused():
            advice = self._advice if self.journal.exists() else "choose another folder"
            raise OutputError(f"{self.path}: this folder is not empty; {advice}")
        self.models.mkdir(exist_ok=True)
        if not self._is_new:  # what a killed run has left
            self.journal.with_name(f"{JOURNAL}.lock").unlink(missing_ok=True)
            self._mend_journal()
            self._bring_back()
            shutil.rmtree(self._replaced, ignore_errors=True)

    def close(self) -> None:
        """Let other runs take it."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _is_unused(self) -> bool:
        """Whether nothing is there but what a run leaves that was killed before its first trial."""
        return not self.journal.exists() and all(
            entry.name in _BEFORE_TRIALS or (entry == self.models and not any(entry.iterdir()))
            for entry in self.path.iterdir()
        )

    def _mend_journal(self) -> None:
        """Cut off a last line without an end: Optuna would append to it."""
        content = self.journal.read_bytes()
        if content and not content.endswith(b"\n"):
            os.truncate(self.journal, content.rfind(b"\n") + 1)

    def write_text(self, name: str, text: str) -> None:
        """Write a file at once.

        Raises:
            OutputError: There is no room, or the folder cannot be written.
        """
        self.write_texts({name: text})

    def write_texts(self, texts: Mapping[str, str]) -> None:
        """Write all files or none.

        Raises:
            OutputError: There is no room, or the folder cannot be written.
        """
        write_texts(self.path, texts)

    def remove(self, name: str) -> None:
        """Remove a file of an earlier run of the folder, if there is one.

        Raises:
            OutputError: The folder cannot be written.
        """
        with writing(self.path):
            (self.path / name).unlink(missing_ok=True)

    def write_json(self, name: str, value: Mapping[str, object]) -> None:
        """Write plain values."""
        self.write_text(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def take_journal(self, folder: Path) -> None:
        """Copy the study of another run, without what a killed one has left of a last line.

        Raises:
            OutputError: There is none, or this folder cannot be written.
        """
        try:
            content = (folder / JOURNAL).read_bytes()
        except OSError as error:
            raise OutputError(f"{folder}: there is no run; give the folder that a search has written") from error
        with writing(self.path):
            self.journal.write_bytes(content[: content.rfind(b"\n") + 1])

    @contextmanager
    def log(self) -> Iterator[None]:
        """Everything that the package logs goes to ``log.txt`` meanwhile."""
        with writing(self.path / "log.txt"):
            handler = _LogFile(self.path / "log.txt", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        level, propagate, others = _LOG.level, _LOG.propagate, _Others(_LOG.getEffectiveLevel())
        handlers = [handler, others] if propagate else [handler]
        _LOG.setLevel(min(logging.INFO, others.level))
        _LOG.propagate = False
        for each in handlers:
            _LOG.addHandler(each)
        try:
            yield
        finally:
            for each in handlers:
                _LOG.removeHandler(each)
            _LOG.setLevel(level)
            _LOG.propagate = propagate
            with suppress(OSError):
                handler.close()

    @contextmanager
    def new_models(self) -> Iterator[EarlierFront]:
        """Models of an earlier run, and what tells of them, give way to new ones, or come back where these stay undone.

        They are done when the context ends: what tells of them is written inside.
        """
        with writing(self.path):
            earlier = EarlierFront(self._new_place(), self._read(FRONT))
        try:
            with writing(self.path):
                self._give_way()
            yield earlier
        except BaseException:
            self._bring_back()
            raise
        with writing(self.path):
            if earlier.is_kept:
                self._keep(self.path / earlier.place)
            else:
                self._earlier.rename(self._replaced)  # which nobody brings back, not even half removed
        shutil.rmtree(self._replaced, ignore_errors=True)

    def _give_way(self) -> None:
        for name in _OF_MODELS:
            if (self.path / name).exists():  # whole or not at all: what is found there is taken back
                shutil.copyfile(self.path / name, self._copying)
                os.replace(self._copying, self.models / name)
        (self.path / _LATENCIES).unlink(missing_ok=True)
        self.models.rename(self._earlier)
        self.models.mkdir()

    def _new_place(self) -> Path:
        taken = {name.removesuffix(".part") for name in os.listdir(self.path / KEPT)} if self._has_kept else set()
        return Path(KEPT) / next(str(number) for number in itertools.count(1) if str(number) not in taken)

    @property
    def _has_kept(self) -> bool:
        return (self.path / KEPT).is_dir()

    def _read(self, name: str) -> str:
        found = self.path / name
        return found.read_text(encoding="utf-8", errors="replace") if found.exists() else ""

    def _keep(self, place: Path) -> None:
        part = place.with_name(f"{place.name}.part")
        part.mkdir(parents=True)
        self._earlier.rename(part / "models")  # from here on nobody brings it back
        for name in _OF_MODELS:
            if (part / "models" / name).exists():
                (part / "models" / name).rename(part / name)
        part.rename(place)

    def _bring_back(self) -> None:
        if self._earlier.is_dir():
            shutil.rmtree(self.models, ignore_errors=True)
            for name in _OF_MODELS:
                (self.path / name).unlink(missing_ok=True)
            self._earlier.rename(self.models)
        self._copying.unlink(missing_ok=True)
        for name in _OF_MODELS:
            if (self.models / name).exists():
                os.replace(self.models / name, self.path / name)

    def discard_if_new(self) -> None:
        """Remove what a search that could not begin has left, unless it was resumed; the folder is closed then."""
        if not self._is_new:
            return
        for name in set(_OWN) - self._found:
            with suppress(OSError):
                (self.path / name).unlink(missing_ok=True)
        if self.models in self._made:
            with suppress(OSError):  # not empty
                self.models.rmdir()
        self.close()
        for folder in self._made:
            with suppress(OSError):  # not empty
                folder.rmdir()


class _Others(logging.Handler):
    """Gives the loggers above what they would get without the log file."""

    def emit(self, record: logging.LogRecord) -> None:
        if _LOG.parent is not None and _LOG.parent.hasHandlers():  # without any, logging would print warnings
            _LOG.parent.handle(record)


class _LogFile(logging.FileHandler):
    """Lines that cannot be written are lost: the search is more important."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Say nothing."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into one sentence."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise _disk_full(path) from error
        raise OutputError(f"{path}: cannot be written ({error.strerror}); choose another folder") from error


def read_json(path: Path, advice: str) -> dict[str, object]:
    """Read plain values.

    Args:
        path: Of an object in JSON.
        advice: What to do where that cannot be read.

    Raises:
        OutputError: It is missing, was cut off, or holds something else.
    """
    try:
        return dict[str, object](json.loads(path.read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        raise OutputError(f"{path}: it is missing or damaged; {advice}") from error


@contextmanager
def enough_room(path: Path) -> Iterator[None]:
    """Too little disk or memory is for the user to put right, wherever it shows, and so is a folder that is gone."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise _disk_full(path) from error
        if not _concerns(error, path):
            raise
        raise OutputError(f"{path}: cannot be written any more ({error.strerror}); choose another folder") from error
    except MemoryError as error:
        raise OutputError(f"{path}: there is not enough memory; use fewer samples or a larger machine") from error


def _concerns(error: OSError, path: Path) -> bool:
    """Whether it is about a file in that folder, or about the device of any."""
    if error.errno in (errno.EIO, errno.EROFS):
        return True
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(path)


def _disk_full(path: Path) -> DiskFullError:
    return DiskFullError(f"{path}: the disk is full; free some room and try again")


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write all files or none.

    Args:
        folder: Where to.
        texts: By name.

    Raises:
        OutputError: There is no room, or the folder cannot be written.
    """
    parts = {folder / f"{name}.part": folder / name for name in texts}
    with writing(folder):
        try:
            for part, text in zip(parts, texts.values(), strict=True):
                part.write_text(text, encoding="utf-8", errors="backslashreplace")  # paths may be no UTF-8
            for part, target in parts.items():
                os.replace(part, target)
        finally:
            for part in parts:
                with suppress(OSError):
                    part.unlink(missing_ok=True)
