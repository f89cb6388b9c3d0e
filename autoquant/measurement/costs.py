"""What measuring a file takes."""

__all__ = ["LEAST_ROUNDS", "LEAST_SESSIONS", "TIMING_S", "finalist_seconds", "judging_seconds", "least_seconds"]

LEAST_ROUNDS = 5
"""In one process."""
LEAST_SESSIONS = 3
"""Fresh processes, where there is time."""
TIMING_S = 5e-3
"""Of a round, at least: short inferences are repeated in it."""
_PLANNED_ROUNDS = 8
_WARMUPS = 1


def finalist_seconds(latency_s: float, n_samples: int) -> float:
    """What a file takes to run on every sample, and timed in the least number of processes."""
    return judging_seconds(latency_s, n_samples) + LEAST_SESSIONS * _PLANNED_ROUNDS * max(latency_s, TIMING_S)


def least_seconds(latency_s: float, n_samples: int) -> float:
    """What a file takes to run on every sample, and timed in a single process."""
    return judging_seconds(latency_s, n_samples) + (_WARMUPS + LEAST_ROUNDS) * max(latency_s, TIMING_S)


def judging_seconds(latency_s: float, n_samples: int) -> float:
    """What a file takes to run on every sample."""
    return n_samples * latency_s
