"""How a search divides its time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["N_SESSIONS", "Deadline"]

_FINISH_SHARE = 0.16
"""Share of the budget for the last measurement and the files, where that many finalists can use it."""
_WRITING_S = 2.0
_LONGEST_FINISH_S = 60.0
_TIMING_S = 8e-3
_FASTER = 0.8
"""A finalist's latency is assumed to be this share of the float model's."""
N_SESSIONS = 3
"""How often every finalist is opened for the last measurement."""
_N_FINALISTS = 20


@dataclass(slots=True)
class Deadline:
    """Seconds since the start, and what is left of the budget.

    Attributes:
        seconds: The budget; None where only trials count.
        phases: Seconds of each phase so far.
    """

    seconds: float | None
    phases: dict[str, float] = field(default_factory=dict)
    _start: float = field(default_factory=time.perf_counter)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without a budget."""
        return float("inf") if self.seconds is None else self.seconds - self.elapsed

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def finish_seconds(self, float_s: float, n_samples: int) -> float:
        """What to keep for the end: the share of the budget, or less where 20 finalists need less."""
        wanted = _N_FINALISTS * _finalist_seconds(float_s, n_samples, 0.1) + _WRITING_S
        return min(wanted, _FINISH_SHARE * self.seconds + _WRITING_S if self.seconds is not None else wanted)

    def n_finalists(self, float_s: float, n_samples: int, opening_s: float) -> int:
        """How many finalists can be measured in the time that is left, each at least once on every sample."""
        each = _finalist_seconds(float_s, n_samples, opening_s)
        seconds = min(self.left - _WRITING_S, _LONGEST_FINISH_S) - each
        return int(max(2, min(_N_FINALISTS, seconds / each)))


def _finalist_seconds(float_s: float, n_samples: int, opening_s: float) -> float:
    """One finalist: written, opened and warmed up once a session, run on every sample."""
    return (n_samples + N_SESSIONS) * max(float_s * _FASTER, _TIMING_S) + N_SESSIONS * opening_s + 0.1
