"""What misbehaves, for processes that are really started: little is loaded with it, as each of them loads it."""

import ctypes
import os
import signal
import time

__all__ = ["FAULTS", "IsInterrupted", "crash", "eat_memory", "hang", "lack_memory"]


def crash() -> None:
    """Read address 0."""
    ctypes.string_at(0)


def hang() -> None:
    """Much longer than anybody waits."""
    time.sleep(600)


def eat_memory() -> None:
    """Until nothing is left."""
    eaten = []
    while True:
        eaten.append(bytearray(50_000_000))


def lack_memory() -> None:
    """Fail for want of it."""
    raise MemoryError


FAULTS = {"crash": crash, "hang": hang, "eat": eat_memory, "lack": lack_memory}


class IsInterrupted:
    """A refiner, and what makes it, during which somebody presses Ctrl-C and which never comes to an end."""

    def __init__(self, **_: object) -> None:
        pass

    def __call__(self) -> "IsInterrupted":
        return self

    def refine(self, *_: object) -> None:
        os.kill(os.getppid(), signal.SIGINT)
        hang()
