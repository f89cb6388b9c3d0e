"""What measuring a file takes."""

from dataclasses import dataclass

__all__ = [
    "CHUNK_S",
    "FEW",
    "FEWEST_ROUNDS",
    "LEAST_ROUNDS",
    "LEAST_SESSIONS",
    "LONG_S",
    "STARTING_S",
    "TIMING_S",
    "WANTED_SESSIONS",
    "FileCosts",
    "TimingCosts",
    "n_continued",
]

LEAST_ROUNDS, FEWEST_ROUNDS = 5, 3
"""In one process; the second where there is no time for the least number of processes with more: two of them know so
little of how processes differ that the interval of a single file says nothing."""
LEAST_SESSIONS, WANTED_SESSIONS = 3, 5
"""Fresh processes, where there is time; the second where it costs nothing but files that others should beat."""
FEW = 3
"""So many files are better measured roughly than left out."""
STARTING_S = 0.5
"""Of a fresh process, roughly."""
CHUNK_S = 0.5
"""Of what a process is asked for at once, where that is known."""
TIMING_S = 5e-3
"""Of a round on one target, at least: short inferences are repeated in it."""
LONG_S = 0.1
"""Inferences that take as long are as fast as they get from the second one on, and disturbed by little."""
_PLANNED_ROUNDS = 6
_ALL = 1_000_000
"""Files, of which none takes further time."""
_WARMUPS, _LONG_WARMUPS = 4, 2
"""Rounds before those that count, in each process, in most cases; an inference right after opening is one of them. The
second number is that of long inferences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCosts:
    """What a file takes beside its latency.

    Attributes:
        n_samples: That it runs.
        opening_s: Seconds that opening it takes on all targets.
        scoring_s: Seconds of its metrics on all targets.
        n_targets: On which it is timed.
        is_beside: Whether outputs are compared with those of the float model on the one target that there is, so that
            rounds in which long inferences are compared count.
    """

    n_samples: int
    opening_s: float
    scoring_s: float = 0.0
    n_targets: int = 1
    is_beside: bool = False

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
        timing_s = max(latency_s, self.n_targets * TIMING_S)
        n_sessions, n_rounds = (1, LEAST_ROUNDS) if is_rough else (LEAST_SESSIONS, _PLANNED_ROUNDS)
        is_counted = self.is_beside and self.n_samples >= LEAST_ROUNDS
        return self.judging_seconds(latency_s) + _timing_seconds(
            self.opening_s, timing_s, n_sessions, n_rounds, is_counted=is_counted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingCosts:
    """What timing files in several processes takes, where they are open in the first one.

    Attributes:
        starting_s: Seconds that a fresh process takes before it opens anything.
        opening_s: Seconds that opening one file takes.
        baseline_s: Seconds of an inference of the baseline on all targets.
        file_s: The same of a file, in the mean.
        n_targets: On which they are timed.
        is_counted: Whether rounds in which outputs were compared count where inferences are long.
    """

    starting_s: float
    opening_s: float
    baseline_s: float
    file_s: float
    n_targets: int = 1
    is_counted: bool = False

    def n_timed(self, left_s: float) -> int:
        """Most files that there is time to time in as many processes as are wanted, in ``left_s`` seconds."""
        return max(0, self._n_fitting(left_s, WANTED_SESSIONS, _PLANNED_ROUNDS))

    def n_least(self, left_s: float, *, running_s: float = 0.0, timed_share: float = 1.0) -> int:
        """The same for the least number of processes and rounds; where it has time for a few alone, for one process.

        Args:
            left_s: Seconds, not infinite.
            running_s: Seconds that each file takes before.
            timed_share: Of the files, that are timed then.
        """
        several, one = (
            self._n_fitting(left_s, n_sessions, LEAST_ROUNDS, running_s, timed_share)
            for n_sessions in (LEAST_SESSIONS, 1)
        )
        return several if several > FEW else max(1, one)

    def _n_fitting(
        self, left_s: float, n_sessions: int, n_rounds: int, running_s: float = 0.0, timed_share: float = 1.0
    ) -> int:
        least_s = self.n_targets * TIMING_S
        of_baseline, of_file = (
            _timing_seconds(self.opening_s, max(latency_s, least_s), n_sessions, n_rounds, is_counted=self.is_counted)
            for latency_s in (self.baseline_s, self.file_s)
        )
        starting_s, each_s = (n_sessions - 1) * self.starting_s, running_s + timed_share * of_file
        return int((left_s - starting_s - of_baseline) / each_s) if each_s else _ALL


def n_continued(n_files: int, n_spares: int, n_done: int, *, left_s: float, session_s: float) -> int:
    """Files that further processes go on with: spares go where not as many processes as are wanted have time for all.

    Args:
        n_files: That were measured so far, beside the baseline.
        n_spares: Of these.
        n_done: Processes so far, at least one.
        left_s: For further ones; not infinite.
        session_s: Seconds of a further one with all files and the baseline.
    """

    def fitting(n_sessions: int) -> int:
        return int((1 + n_files) * left_s / (n_sessions * session_s)) - 1

    if n_done >= WANTED_SESSIONS:
        return n_files
    found = min(n_files, max(fitting(WANTED_SESSIONS - n_done), n_files - n_spares, 1))
    return found if found <= fitting(1) else n_files


def _timing_seconds(opening_s: float, timing_s: float, n_sessions: int, n_rounds: int, *, is_counted: bool) -> float:
    """Of long inferences the first process may have had its rounds when outputs were compared."""
    is_long = timing_s >= LONG_S
    n_timed = n_sessions - (is_long and is_counted)
    return (n_sessions - 1) * opening_s + n_timed * ((_LONG_WARMUPS if is_long else _WARMUPS) + n_rounds) * timing_s
