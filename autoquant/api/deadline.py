"""How a search divides its time."""

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from autoquant.measurement.costs import LEAST_SESSIONS, STARTING_S, FileCosts

__all__ = [
    "LEAST_TRIAL_S",
    "MOST_SHARE",
    "N_COMPARED",
    "N_FINALISTS",
    "REFINE_SHARE",
    "Deadline",
    "longest_seconds",
    "most_finalists",
    "writing_seconds",
]

_PREPARING_SHARE = 0.4
"""Of the budget: once preparing took more, it leaves out what a search can do without, so that there is one."""
_N_LONGEST = 3
"""Phases that are named where preparing was late."""
_FINISH_SHARE = 0.3
"""Share of the budget for the last measurement and the files, where that many finalists can use it."""
REFINE_SHARE = 0.2
"""Of the budget, for refining finalists, where that is asked for."""
MOST_SHARE = 0.5
"""Of the budget, for both together."""
_WRITTEN_BYTES_PER_S = 1.5e8
"""Rough: it only decides how much time is kept, and how many finalists are begun."""
_WRITING_S, _WRITING_EACH_S = 0.5, 2e-3
"""For what follows the last measurement, tables and the report, and of each evaluation in them."""
N_FINALISTS, N_COMPARED = 20, 40
"""Candidates that are measured again as files at most: usually, and where the samples of the search leave SNRs open,
as which of them are good is seen on all samples then. Time is planned for timing the first number of them."""
_LARGE_ERROR_DB = 1.0
LEAST_TRIAL_S, _PATIENCE = 20.0, 20.0
"""A candidate may take this long, or so many times what the first one should take, where the user does not say."""
_TRIAL_SHARE, _HANGING_S, _LEAST_PATIENCE = 0.25, 10.0, 2.0
"""But a trial no more of the time that is left, if that is so long and so many times what the first one should take."""


def longest_seconds(first_s: float) -> float:
    """What a candidate may take before it is taken to hang.

    Args:
        first_s: What the first one should take.
    """
    return max(LEAST_TRIAL_S, _PATIENCE * first_s)


def most_finalists(snr_errors_db: Sequence[float], *, is_refined: bool) -> int:
    """Most candidates that are worth a last measurement.

    Args:
        snr_errors_db: What samples leave open of the SNRs of those that could be on the front; standard deviations.
        is_refined: Whether each has a second version, of which outputs are compared too.
    """
    is_open = bool(snr_errors_db) and statistics.median(snr_errors_db) > _LARGE_ERROR_DB
    return N_COMPARED if is_open and not is_refined else N_FINALISTS


def writing_seconds(n_evaluations: int) -> float:
    """What is kept for what follows the last measurement, where there are so many evaluations to be told of."""
    return _WRITING_S + _WRITING_EACH_S * n_evaluations


@dataclass(slots=True)
class Deadline:
    """Seconds since the start, and what is left of the budget.

    Attributes:
        seconds: The budget; None where only trials count.
        phases: Seconds of each phase so far; what was gone before is ``start``.
        spent_s: Seconds that were gone before this was made.
        left_out: What preparing went without, as it was late.
    """

    seconds: float | None
    phases: dict[str, float] = field(default_factory=dict)
    spent_s: float = 0.0
    left_out: list[str] = field(default_factory=list)
    _start: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        if self.spent_s:
            self.phases["start"] = self.spent_s

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

    @property
    def is_late(self) -> bool:
        """Whether preparing leaves out what a search can do without."""
        return self.elapsed > _PREPARING_SHARE * self.limit_s

    def leaves_out(self, what: str) -> bool:
        """The same, and where it is so this is remembered as left out.

        Args:
            what: In words, for ``hurry``.
        """
        is_late = self.is_late
        if is_late:
            self.left_out.append(what)
        return is_late

    @property
    def hurry(self) -> str | None:
        """What was left out and where the time went; None where nothing was."""
        if not self.left_out:
            return None
        longest = sorted(self.phases, key=lambda name: -self.phases[name])[:_N_LONGEST]
        spent = ", ".join(f"{name} {self.phases[name]:.1f} s" for name in longest)
        return (
            f"more than {_PREPARING_SHARE:.0%} of the budget was gone before the first candidate ({spent}), so that"
            f" these were left out: {', '.join(self.left_out)}; give more time"
        )

    def part(self, share: float) -> float:
        """So much of the budget, but no more than half of what is left of it: a large model may have taken most."""
        return max(0.0, min(share * self.limit_s, self.left / 2))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time inside."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start

    def trial_seconds(self, first_s: float) -> float:
        """What a trial may take before it is taken to hang: not all the time that is left, as nobody would learn of it.

        Args:
            first_s: What the first trial should take.
        """
        hanging_s = max(_HANGING_S, _LEAST_PATIENCE * first_s)
        return min(longest_seconds(first_s), max(hanging_s, _TRIAL_SHARE * self.left))

    def finish_seconds(
        self,
        n_finalists: int,
        latency_s: float,
        costs: FileCosts,
        size_bytes: int,
        *,
        n_evaluations: int = 0,
        is_refined: bool = False,
        is_rough: bool = False,
    ) -> float:
        """What to keep for the end: the share of the budget, or less where the finalists so far need less.

        Args:
            n_finalists: So far; at most ``most_finalists``.
            latency_s: Seconds of an inference on all targets, in the mean of float and finalists.
            costs: Of each file.
            size_bytes: Of a file.
            n_evaluations: So far.
            is_refined: Whether each finalist has a second version, of which outputs are compared alone.
            is_rough: Whether it may be as short as it can be.
        """
        n_timed = min(n_finalists, N_FINALISTS)
        writing_s, reporting_s = size_bytes / _WRITTEN_BYTES_PER_S, writing_seconds(n_evaluations)
        each, n_processes = costs.seconds(latency_s, is_rough=is_rough) + writing_s, 1 if is_rough else LEAST_SESSIONS
        wanted = (1 + n_timed) * each + n_processes * STARTING_S + reporting_s  # float is measured with them
        n_compared = n_timed if is_refined else min(n_finalists, N_COMPARED) - n_timed
        wanted += n_compared * (costs.judging_seconds(latency_s) + writing_s)
        return min(wanted, _FINISH_SHARE * self.seconds + reporting_s if self.seconds is not None else wanted)
