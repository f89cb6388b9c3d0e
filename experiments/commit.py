"""The state of the code behind a number."""

import subprocess
from functools import cache
from pathlib import Path

__all__ = ["read_commit"]

_COMMAND = ("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")


@cache
def read_commit() -> str | None:
    """The checked-out commit, with ``-dirty`` where tracked files differ from it; None outside of a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        found = subprocess.run(_COMMAND, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
