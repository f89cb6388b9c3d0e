"""Model files measured together, in one fresh process after the other."""

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoquant.domain.counted import counted
from autoquant.domain.division import Division
from autoquant.domain.measurement import Footprint
from autoquant.errors import ModelError, OutputError, TargetError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.measurement.blame import LONGEST_START_S, NOT_TRIED, blamed
from autoquant.measurement.collected import Collected, Pair
from autoquant.measurement.conditions import Watch, drift_sentences, relative
from autoquant.measurement.costs import CHUNK_S, FEW, FEWEST_ROUNDS, LEAST_ROUNDS, LEAST_SESSIONS, LONG_S, n_continued
from autoquant.measurement.files import FileBenchSetup, Round
from autoquant.measurement.intervals import are_narrow
from autoquant.measurement.judging import Judging, Wishes
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Measured
from autoquant.measurement.roster import NO_MEMORY, Roster
from autoquant.measurement.time_left import TimeLeft

__all__ = ["JointMeasurement"]

_MOST_ROUNDS = 12
"""In one process."""
_MOST_UNEXPLAINED = 2
"""Processes that were lost although no file ends one by itself."""
_WARMUP_SHARE = 0.1
_LONGEST_WARMUP_S = 10.0
_CHEAP_SHARE = 0.2
"""Of what opening the files takes, for rounds."""
_OPENING_SHARE = 0.4
"""Of the time that is left when the first process has begun: at most for opening files in it."""
_UNOPENED = "there was no time to open {}, which are left out; give more time"
_BEATEN = "left out after a part of the processes, as time is short and others are better: {}"


@dataclass(slots=True)
class JointMeasurement:
    """Measures files in rounds that all of them and the baseline share, in one fresh process after the other.

    Attributes:
        setup: The baseline, samples and targets.
        files: Model files by id, the most important first.
        deadline: ``time.perf_counter()`` at which this should end; the first process runs every sample in any case, but
            for ``comparing_share``.
        is_ended: Whether nobody waits any more: what was measured so far is the result.
        n_sessions: Most processes.
        least_sessions: Where there is time.
        narrow: No further process is begun where half the 95 % interval of every ratio is this share of it.
        has_quality: Whether outputs are compared with the baseline's.
        wishes: Which files matter.
        memory_bytes: Data that each may have.
        file_s: Seconds after which one file, opened or run on a few samples, is taken to hang; None for no limit. A
            metric may take as long as it likes.
        division: Which samples the search has seen; None where nothing is to be said of parts.
        rounds: Every round, with the number of its process and its target.
        notes: What disturbed the measurement, and what to do about it.
        is_late: Whether there was no time for another process that was wanted.
    """

    setup: FileBenchSetup
    files: Mapping[str, Path]
    deadline: float = math.inf
    is_ended: Callable[[], bool] = lambda: False
    n_sessions: int = 5
    least_sessions: int = LEAST_SESSIONS
    narrow: float = 0.01
    has_quality: bool = True
    wishes: Wishes = field(default_factory=Wishes)
    memory_bytes: int | None = None
    file_s: float | None = None
    division: Division | None = None
    rounds: list[tuple[int, str, Round]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_late: bool = False
    _roster: Roster = field(init=False)
    _n_unexplained: int = 0
    _is_precise: bool = False
    _collected: Collected = field(init=False)
    _opening_s: float = 0.0
    _n_rounds: int = _MOST_ROUNDS
    _round_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._roster = Roster(list(self.files))

    @property
    def lost(self) -> Mapping[str, str]:
        """Why files were dropped that ended a process or for which a metric failed, by id."""
        return self._roster.lost

    def run(self) -> dict[str, Measured]:
        """Measure.

        Returns:
            By id, for each file that was not dropped, and the baseline under ``REFERENCE``.

        Raises:
            ModelError: A file or the baseline cannot be opened or run.
            TargetError: The execution provider does not start.
            MetricError: A metric fails on the outputs of the baseline.
            OutputError: There is no place for temporary files.
        """
        self._collected = Collected(self._targets, self.setup.seed, self.division, self.has_quality)
        watch = Watch()
        number = 0
        while number < self.n_sessions and (number == 0 or self._is_worth_another(number)):
            try:
                self._session(number)
            except OutputError as error:  # there is no place for the files of another process
                self._end(number, error)
                break
            except (WorkerLostError, ModelError, TargetError, MemoryError) as error:
                if self._begins_anew(number, error):
                    continue
                self._end(number, error)
                break
            number += 1
            watch.look()
        self.notes += [*self._roster.sentences, *watch.sentences, *self._drift()]
        return self._collected.measured(self._roster.kept, is_stopped=self._is_precise)

    def _begins_anew(self, number: int, error: Exception) -> bool:
        """Whether another process is to do what this one did not come to the end of.

        One that no file ends by itself is begun once more as it was. What the first one said is said again.
        """
        if number == 0:
            self._collected.forget_outputs()
            self.notes.clear()
        if isinstance(error, WorkerLostError):
            if self._blame(number):
                return True
            self._n_unexplained += 1
            if self._n_unexplained < _MOST_UNEXPLAINED:
                return True
        if not self._goes_on_with_fewer(number, str(error) or NO_MEMORY):
            return False
        self._n_unexplained = 0
        return True

    def _end(self, n_done: int, error: Exception) -> None:
        """What earlier processes measured is kept; where there is nothing to keep the error is raised."""
        if n_done:
            reason = str(error) or NO_MEMORY
            self.notes.append(f"after {counted(n_done, 'process')} no further one could be measured: {reason}")
        elif isinstance(error, WorkerLostError):
            where = f"{self.setup.baseline}: measuring it beside the other files failed"
            raise ModelError(f"{where}, {error}; try again") from error
        else:
            raise error

    def _goes_on_with_fewer(self, number: int, reason: str) -> bool:
        """Where the first process came to no end: together the files may be too many.

        What earlier processes measured is better kept as it is.
        """
        if number or not self.wishes.may_drop:
            return False
        return self._roster.halve(reason, to_one=self._time.is_over)

    def _drift(self) -> list[str]:
        """What the baseline's latencies say on the first target, beside those of samples of the same shapes."""
        found = [one for _, target, one in self.rounds if target == self._targets[0]]
        counted = [(one.shapes, statistics.median(one.seconds[REFERENCE])) for one in found if not one.is_repeated]
        return drift_sentences(relative(counted), len(found) - len(counted))

    @property
    def _targets(self) -> list[str]:
        return [target.name for target in self.setup.targets]

    @property
    def _time(self) -> TimeLeft:
        return TimeLeft(self.deadline, self.is_ended, self.file_s)

    def _is_worth_another(self, n_done: int) -> bool:
        if self.is_ended():
            return False
        ratios = self._collected.ratios(self._roster.kept).values()
        self._is_precise = n_done >= self.least_sessions and are_narrow(ratios, self.narrow)
        if self._is_precise:
            return False
        self._leave_out_beaten(n_done)
        n_affordable = (self._time.seconds - self._opening_s) / self._rounds_s
        self.is_late = n_affordable < (FEWEST_ROUNDS if n_done < self.least_sessions else LEAST_ROUNDS)
        if not self.is_late:
            self._n_rounds = int(min(self._n_rounds, n_affordable))
        return not self.is_late

    def _leave_out_beaten(self, n_done: int) -> None:
        """Files that others beat by what was measured so far, where there is no time for them in further processes."""
        kept = self._roster.kept
        if not self.wishes.may_drop or math.isinf(self.deadline):
            return
        judged = {key: self._collected.judged(key) for key in kept}
        spares = self.wishes.spares(judged, self._collected.session_ratios(kept))
        session_s = self._opening_s + LEAST_ROUNDS * self._rounds_s
        n = n_continued(len(kept), len(spares), n_done, left_s=self._time.seconds, session_s=session_s)
        self._roster.leave_out(spares[len(spares) - (len(kept) - n) :], _BEATEN)
        share = (1 + n) / (1 + len(kept))
        self._opening_s *= share
        self._round_s = {target: share * seconds for target, seconds in self._round_s.items()}

    @property
    def _rounds_s(self) -> float:
        """Seconds of one round on every target, as far as they are known."""
        return statistics.mean(self._round_s.values()) * len(self._targets)

    def _session(self, number: int) -> None:
        start = time.perf_counter()
        self._roster.begin()
        worker = self._worker(replace(self.setup, seed=self.setup.seed + number))
        try:
            worker.ready(seconds=LONGEST_START_S)
            ready_s = time.perf_counter() - start
            footprints = self._open(worker, number)
            opening_s, n_opened = time.perf_counter() - start, 1 + len(self._roster.kept)
            judging = self._judging
            if number == 0 and self.has_quality:
                judging.run(worker, ready_s, opening_s - ready_s)
                opening_s = ready_s + (opening_s - ready_s) * (1 + len(self._roster.kept)) / n_opened
            start = time.perf_counter()
            limit_s = min(_LONGEST_WARMUP_S, max(0.0, _WARMUP_SHARE * self._time.seconds))
            if self.files or limit_s:
                worker.call("warm_up", limit_s, seconds=self._session_limit_s)
            self._opening_s = opening_s + time.perf_counter() - start
            begun, compared = time.perf_counter(), self._counted(judging.rounds)
            found = [
                (name, found)
                for name in self._targets
                for found in compared.get(name) or self._run(worker, name, number, begun)
            ]
        finally:
            worker.close()
        counted = [name for name, each in found if not each.is_repeated]
        if number and min(counted.count(target) for target in self._targets) < FEWEST_ROUNDS:
            return  # the time was over: a few rounds must not count like a whole session
        self._collected.open(footprints)
        for target, part in found:
            self._count(number, target, part)

    def _counted(self, compared: Mapping[str, Sequence[Round]]) -> dict[str, list[Round]]:
        """Of long inferences, rounds in which outputs were compared are those of that process: none is run again."""
        keys, found = [REFERENCE, *self._roster.kept], dict[str, list[Round]]()
        for target, rounds in compared.items():
            kept = [replace(one, seconds={key: one.seconds[key] for key in keys}) for one in rounds]
            typical = [max(1e-9, statistics.median(one.seconds[key][0] for one in kept)) for key in keys]
            if len(kept) >= LEAST_ROUNDS and statistics.geometric_mean(typical) >= LONG_S:
                found[target], self._round_s[target] = kept, sum(typical)
        if found:
            self._n_rounds = self._affordable_rounds(0.0, n_done=1)
        return found

    @property
    def _judging(self) -> Judging:
        found = self._collected
        return Judging(self.setup, self.wishes, self._roster, found, self._time, self.division, self.notes)

    def _worker(self, setup: FileBenchSetup) -> Worker:
        return Worker(setup, memory_bytes=self.memory_bytes, affinity=setup.targets[0].affinity)

    def _open(self, worker: Worker, number: int) -> dict[Pair, Footprint]:
        """All files; where there may be no time for that, the first process learns from a few what opening takes."""
        rng = random.Random(self.setup.seed + number)
        kept, start, left_s = self._roster.kept, time.perf_counter(), self._time.seconds
        is_timely = number > 0 or not self.wishes.may_drop or math.isinf(left_s)
        first = [REFERENCE, *(kept if is_timely else kept[:FEW])]
        found = self._open_shuffled(worker, number, first, rng)
        later = kept[len(first) - 1 :]
        if later:
            each_s = (time.perf_counter() - start) / len(first)
            n_more = max(0, int(_OPENING_SHARE * left_s / each_s) - len(first))
            self._roster.leave_out(later[n_more:], _UNOPENED)
            found |= self._open_shuffled(worker, number, later[:n_more], rng)
        return found

    def _open_shuffled(
        self, worker: Worker, number: int, keys: Sequence[str], rng: random.Random
    ) -> dict[Pair, Footprint]:
        """In random order: what is opened first lies elsewhere in memory than what comes last."""
        found, order = dict[Pair, Footprint](), [*keys]
        rng.shuffle(order)
        for key in order:
            path = self.setup.baseline if key == REFERENCE else self.files[key]
            try:
                opened: Mapping[str, Footprint] = worker.call("open", key, path, seconds=self._time.answer_s(1))
            except (ModelError, TargetError, MemoryError) as error:
                if key == REFERENCE or number:  # what was measured before is not lost by this
                    raise
                self._roster.lose({key: str(error) or NO_MEMORY})
                worker.call("drop", [key])
                continue
            found.update({(key, target): footprint for target, footprint in opened.items()})
        return found

    def _run(self, worker: Worker, target: str, number: int, begun: float) -> list[Round]:
        """As many rounds as the time allows for several processes; those of this one began at ``begun``."""
        samples = [k % len(self.setup.feeds) for k in range(number * _MOST_ROUNDS, (number + 1) * _MOST_ROUNDS)]
        found: list[Round] = []
        n_done = 0
        while n_done < len(samples):
            if n_done >= self._n_rounds or (n_done >= self._least_rounds and self._time.seconds < 0):
                break
            start, round_s = time.perf_counter(), self._round_s.get(target, math.inf)
            part = samples[n_done : min(n_done + max(1, int(CHUNK_S / round_s)), self._n_rounds)]
            found.extend(worker.call("time", target, part, seconds=self._session_limit_s))
            n_done += len(part)
            self._round_s[target] = max(1e-6, time.perf_counter() - start) / len(part)
            if number == 0:
                self._n_rounds = self._affordable_rounds(time.perf_counter() - begun)
            if self.is_ended() and (number or n_done >= self._least_rounds):
                break
        return found

    def _affordable_rounds(self, spent_s: float, *, n_done: int = 0) -> int:
        """In each process, so that there is time for the least number of them; the first one's took ``spent_s``.

        Where there is time for fewer processes alone, they run few rounds, or as many as take a share of the opening.

        Args:
            spent_s: Seconds, to be spent again.
            n_done: Processes that have had all their rounds; without any, one is open.
        """
        left = self._time.seconds + spent_s
        n_wanted = self.least_sessions - n_done
        if left == math.inf or n_wanted < 1:
            return _MOST_ROUNDS
        most: float = _MOST_ROUNDS
        for n_sessions in range(n_wanted, 0, -1):
            n_opened = n_sessions - (n_done == 0)
            n = (left - n_opened * self._opening_s) / (n_sessions * self._rounds_s)
            if n >= FEWEST_ROUNDS:
                break
            most = min(_MOST_ROUNDS, max(self._least_rounds, _CHEAP_SHARE * self._opening_s / self._rounds_s))
        return int(max(FEWEST_ROUNDS if n_sessions + n_done > 1 else self._least_rounds, min(n, most)))

    @property
    def _least_rounds(self) -> int:
        """Of a single process; the baseline alone is compared with nothing."""
        return LEAST_ROUNDS if self.files else FEWEST_ROUNDS

    def _blame(self, number: int) -> bool:
        """Find the files that end a process by themselves and drop them; whether there are any."""
        found = blamed(
            {key: self.files[key] for key in self._roster.kept},
            self._targets,
            lambda: self._worker(self.setup),
            seconds=self._time.answer_s(1),
            is_over=lambda: self._time.is_over,
            method="compare" if self.has_quality else "time",
        )
        guilty = {key: reason for key, reason in found.items() if number == 0 or reason != NOT_TRIED}
        self._roster.lose(guilty)
        return bool(guilty)

    @property
    def _session_limit_s(self) -> float | None:
        """Longest that an answer about all files may take."""
        return self._time.answer_s(1 + len(self._roster.kept))

    def _count(self, number: int, target: str, found: Round) -> None:
        self.rounds.append((number, target, found))
        self._collected.count(self._roster.kept, number, target, found)
