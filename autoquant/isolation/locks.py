"""Locks that end with the process that holds them, however it ends."""

import importlib
import os

__all__ = ["lock"]


def lock(descriptor: int) -> bool | None:
    """Lock an open file or folder until it is closed, see flock(2); nothing waits for it.

    Returns:
        Whether it is locked now: False where it is already, by another process or through another descriptor, None
        where there are no such locks: on Windows, and on some network disks.
    """
    if os.name != "posix":
        return None
    fcntl = importlib.import_module("fcntl")  # there is none on Windows
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
