"""How a search divides its time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from autoquant.measurement.costs import LEAST_SESSIONS, finalist_seconds, judging_seconds, least_seconds

__all__ = ["MOST_SHARE", "N_FINALISTS", "REFINE_SHARE", "WRITING_S", "Deadline"]

_FINISH_SHARE = 0.3
"""Share of the budget for the last measurement and the files, where that many finalists can use it."""
REFINE_SHARE = 0.2
"""Of the budget, for refining finalists, where that is asked for."""
MOST_SHARE = 0.5
"""Of the budget, for both together."""
_WRITTEN_BYTES_PER_S = 1.5e8
"""Rough: it only decides how much time is kept, and how many finalists are begun."""
_STARTING_S = 0.5
"""Of a fresh process."""
WRITING_S = 2.0
"""For what follows the last measurement: tables, the report."""
N_FINALISTS = 20


@dataclass(slots=True)
class Deadline:
    """Seconds since the start, and what is left of the budget.

    Attributes:
        seconds: The budget; None where only trials count.
        phases: Seconds of each phase so far.
        spent_s: Seconds that were gone before this was made.
    """

    seconds: float | None
    phases: dict[str, float] = field(default_factory=dict)
    spent_s: float = 0.0
    _start: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start + self.spent_s

    @property
    def limit_s(self) -> float:
        """The budget, infinite without one."""
        return float("inf") if self.seconds is None else self.seconds

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a budget."""
        return self.limit_s - self.elapsed

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def finish_seconds(
        self,
        n_finalists: int,
        latency_s: float,
        n_samples: int,
        opening_s: float,
        size_bytes: int,
        *,
        is_refined: bool = False,
        is_rough: bool = False,
    ) -> float:
        """What to keep for the end: the share of the budget, or less where the finalists so far need less.

        Args:
            n_finalists: So far.
            latency_s: Seconds of an inference on all targets.
            n_samples: That each file runs.
            opening_s: Seconds that opening a file takes on all targets.
            size_bytes: Of a file.
            is_refined: Whether each finalist has a second version, of which outputs are compared alone.
            is_rough: Whether it may be as short as it can be.
        """
        n_written = min(n_finalists, N_FINALISTS)
        writing_s = size_bytes / _WRITTEN_BYTES_PER_S
        seconds, n_processes = (least_seconds, 1) if is_rough else (finalist_seconds, LEAST_SESSIONS)
        each = seconds(latency_s, n_samples) + n_processes * opening_s + writing_s
        wanted = (1 + n_written) * each + n_processes * _STARTING_S + WRITING_S  # float is measured with them
        if is_refined:
            wanted += n_written * (judging_seconds(latency_s, n_samples) + opening_s + writing_s)
        return min(wanted, _FINISH_SHARE * self.seconds + WRITING_S if self.seconds is not None else wanted)
