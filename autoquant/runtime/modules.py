"""Modules of the user."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["importable"]


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported inside, before others of their names."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
