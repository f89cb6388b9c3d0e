"""What measuring a file takes."""

from dataclasses import dataclass

__all__ = ["LEAST_ROUNDS", "LEAST_SESSIONS", "TIMING_S", "FileCosts"]

LEAST_ROUNDS = 5
"""In one process."""
LEAST_SESSIONS = 3
"""Fresh processes, where there is time."""
TIMING_S = 5e-3
"""Of a round, at least: short inferences are repeated in it."""
_PLANNED_ROUNDS = 6
_WARMUPS = 3
"""Rounds before those that count, in each process, in most cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCosts:
    """What a file takes beside its latency.

    Attributes:
        n_samples: That it runs.
        opening_s: Seconds that opening it takes on all targets.
        scoring_s: Seconds of its metrics on all targets.
    """

    n_samples: int
    opening_s: float
    scoring_s: float = 0.0

    def judging_seconds(self, latency_s: float) -> float:
        """To run it on every sample."""
        return self.opening_s + self.n_samples * latency_s + self.scoring_s

    def is_scoring_most(self, latency_s: float) -> bool:
        """Whether metrics take longer than all inferences on which they are computed."""
        return self.scoring_s > self.opening_s + self.n_samples * latency_s

    def seconds(self, latency_s: float, *, is_rough: bool) -> float:
        """To run it on every sample, and time it in a single process or in the least number of them.

        Args:
            latency_s: Seconds of an inference on all targets.
            is_rough: Whether a single process has to do.
        """
        timing_s = max(latency_s, TIMING_S)
        if is_rough:
            return self.judging_seconds(latency_s) + (_WARMUPS + LEAST_ROUNDS) * timing_s
        further_s = (LEAST_SESSIONS - 1) * self.opening_s
        n_rounds = LEAST_SESSIONS * (_WARMUPS + _PLANNED_ROUNDS)
        return self.judging_seconds(latency_s) + further_s + n_rounds * timing_s
