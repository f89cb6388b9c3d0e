"""A worker without a process, for what can only be watched from inside."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DirectWorker"]


@dataclass(slots=True)
class DirectWorker:
    """What is used of ``autoquant.isolation.process.Worker``, in this process."""

    factory: Callable[[], object]
    memory_bytes: int | None = None
    affinity: Sequence[int] = ()
    _made: object = None

    @property
    def is_running(self) -> bool:
        """Whether the object was made."""
        return self._made is not None

    @property
    def pid(self) -> int | None:
        """Of this process, once the object was made."""
        return os.getpid() if self.is_running else None

    def start(self) -> None:
        """Make the object."""
        if self._made is None:
            self._made = self.factory()

    def call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:  # noqa: ARG002
        """Call a method of the object; nothing ends it."""
        self.start()
        return getattr(self._made, method)(*arguments)

    def close(self) -> None:
        """Let the object go."""
        self._made = None
