"""What goes between the two processes: pickles, one after the other."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

__all__ = ["PYTHONPATH_BEFORE", "Answer", "Request", "Start", "receive", "send"]

PYTHONPATH_BEFORE = "AUTOQUANT_PYTHONPATH"
"""What ``PYTHONPATH`` was in the first process: in the other one it says where our own modules are, until that runs."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first message: what to make, and under which limits.

    Attributes:
        factory: Makes the object, pickled apart: it can be unpickled only with ``path``.
        memory_bytes: Data that the process may have.
        affinity: Cores that it may use.
        path: Where modules are found.
    """

    factory: Callable[[], object] | bytes
    memory_bytes: int | None
    affinity: tuple[int, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A call; without a method only whether the object is there."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call gave, or what it raised, and what the package warned of there since the last one."""

    value: Any = None
    error: BaseException | None = None
    warnings: tuple[str, ...] = ()


def send(stream: IO[bytes], message: object) -> None:
    """Write a message whole."""
    if isinstance(message, Start):
        message = Start(pickle.dumps(message.factory), message.memory_bytes, message.affinity, message.path)
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Wait for a message.

    Raises:
        EOFError: There is none any more.
    """
    return pickle.load(stream)
