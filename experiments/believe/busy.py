"""A program that disturbs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["spinning"]


@contextmanager
def spinning() -> Iterator[int]:
    """Keep one core busy meanwhile, in another process; its number."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
