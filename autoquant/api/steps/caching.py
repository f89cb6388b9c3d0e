"""Where results are kept that are the same whenever they are made anew."""

import logging
import os
from pathlib import Path

import joblib

__all__ = ["memory_of", "user_cache"]

_LOG = logging.getLogger("autoquant")


def memory_of(folder: Path) -> joblib.Memory:
    """One that keeps nothing where the folder cannot be written."""
    try:
        return joblib.Memory(folder, verbose=0)
    except OSError as error:
        _LOG.warning("results are not kept: %s", error)
        return joblib.Memory(None, verbose=0)


def user_cache() -> Path:
    """The user's own folder, for who names none."""
    base = os.environ.get("AUTOQUANT_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "autoquant"
