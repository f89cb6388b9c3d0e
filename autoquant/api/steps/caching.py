"""Where results are kept that are the same whenever they are made anew."""

import logging
import os
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np

from autoquant.runtime.providers import runtime_version

__all__ = ["cache_sentences", "made_by", "memory_of", "recalled", "trim_cache", "user_cache"]

_LOG = logging.getLogger("autoquant")
_Found = TypeVar("_Found")
_MOST_BYTES = 4_000_000_000


class _PartError(Exception):
    """Raised so that a part of a result is not kept as the whole."""

    def __init__(self, found: Any) -> None:
        super().__init__("there was no time for all of it")
        self.found = found


def recalled(folder: Path, content: tuple[object, ...], make: Callable[[], tuple[_Found, bool]]) -> _Found:
    """What was made of the same before, otherwise what is made now; kept if there was time for all of it.

    Args:
        folder: Where results are kept.
        content: All that the result depends on, with the version of what makes it.
        make: The result, and whether there was time for all of it.
    """
    cached = memory_of(folder).cache(_made, ignore=["make"])
    try:
        found: _Found = cached(content, make=make)
    except _PartError as part:
        found = part.found
    return found


def _made(content: tuple[object, ...], make: Callable[[], tuple[_Found, bool]]) -> _Found:  # noqa: ARG001 - of the cache
    found, is_whole = make()
    if not is_whole:
        raise _PartError(found)
    return found


def made_by(step: str) -> str:
    """The version of what makes a result, for ``recalled``: that of a step and of the packages that it uses."""
    return f"{metadata.version('autoquant')} {runtime_version()} {np.__version__} {step}"


def memory_of(folder: str | os.PathLike[str]) -> joblib.Memory:
    """In a folder of its own below, as joblib takes much of what lies in one for its own and removes it.

    It keeps nothing where that cannot be written, or where ``~`` leads nowhere.
    """
    sentences = cache_sentences(folder)
    for sentence in sentences:
        _LOG.warning("%s", sentence)
    return joblib.Memory(None if sentences else _own_folder(folder), verbose=0)


def cache_sentences(folder: str | os.PathLike[str]) -> list[str]:
    """Why nothing is kept there; none where something can be."""
    try:
        own = _own_folder(folder)
        own.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=own):  # of a folder that is there joblib says so when it is too late
            return []
    except (OSError, RuntimeError) as error:
        return [f"the cache {folder} cannot be written, so that the next search calibrates again: {error}"]


def _own_folder(folder: str | os.PathLike[str]) -> Path:
    return Path(folder).expanduser() / "autoquant"


def trim_cache(folder: str | os.PathLike[str], *, most_bytes: int = _MOST_BYTES) -> None:
    """Remove what was not read for longest, as far as the file system notes it, until no more than this is left."""
    memory_of(folder).reduce_size(bytes_limit=most_bytes)


def user_cache() -> Path:
    """The user's own folder, for who names none."""
    return Path(os.environ.get("AUTOQUANT_CACHE") or os.environ.get("XDG_CACHE_HOME") or "~/.cache")
