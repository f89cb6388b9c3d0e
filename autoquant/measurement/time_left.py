"""How long a joint measurement may go on."""

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["TimeLeft"]


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """How long there is, and for how long a process may not answer.

    Attributes:
        deadline: ``time.perf_counter()`` at which it should end.
        is_ended: Whether nobody waits any more.
        file_s: Seconds after which one file is taken to hang; None for no limit.
    """

    deadline: float
    is_ended: Callable[[], bool]
    file_s: float | None

    @property
    def seconds(self) -> float:
        """Until the deadline, less than 0 after it."""
        return self.deadline - time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether nothing that is not necessary is begun any more."""
        return self.is_ended() or self.seconds < 0

    def answer_s(self, n_files: int) -> float | None:
        """Longest that an answer about so many files may take: hardly longer than there is time."""
        if self.file_s is None:
            return None
        return min(self.file_s * n_files, self.file_s + max(0.0, self.seconds))
