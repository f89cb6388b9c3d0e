"""Modules of the user."""

import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

__all__ = ["importable"]


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported and run inside, before others of their names, wherever they go meanwhile."""
    sys.path.insert(0, str(folder))
    try:
        with chdir(folder):
            yield
    finally:
        with suppress(ValueError):  # a module may have taken it out
            sys.path.remove(str(folder))
