"""A program that disturbs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["spinning"]

_SPIN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextmanager
def spinning() -> Iterator[int]:
    """Keep one core busy meanwhile, in another process; its number. It ends with this process, however that ends."""
    process = subprocess.Popen([sys.executable, "-c", _SPIN])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
