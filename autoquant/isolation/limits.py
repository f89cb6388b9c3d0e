"""Limits of a process, where the system has them."""

import contextlib
import ctypes
import importlib
import signal
import sys
from pathlib import Path

from autoquant.domain.memory import kilobytes_in

__all__ = ["die_with_parent", "limit_memory"]

_PR_SET_PDEATHSIG = 1


def limit_memory(more_bytes: int) -> None:
    """Let this process allocate so much more than it has; beyond it allocations fail, and nothing else does.

    On Linux only (``RLIMIT_DATA`` counts private memory since 4.7, see getrlimit(2)).
    """
    if sys.platform != "linux":
        return
    resource = importlib.import_module("resource")  # there is none on Windows
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    limit = kilobytes_in(status, "VmData") * 1024 + more_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
