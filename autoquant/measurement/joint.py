"""Model files measured together, in one fresh process after the other."""

import math
import random
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoquant.domain.division import Division
from autoquant.domain.measurement import Footprint
from autoquant.errors import MetricError, ModelError, OutputError, TargetError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.measurement.blame import NOT_TRIED, STARTING_S, blamed
from autoquant.measurement.collected import Collected, Pair
from autoquant.measurement.conditions import Watch, drift_sentences, relative
from autoquant.measurement.costs import LEAST_ROUNDS, LEAST_SESSIONS, TIMING_S, n_timed
from autoquant.measurement.files import Compared, FileBenchSetup, Round
from autoquant.measurement.intervals import are_narrow
from autoquant.measurement.latency import REFERENCE
from autoquant.measurement.measured import Judged, Measured

__all__ = ["JointMeasurement"]

_MOST_ROUNDS = 12
"""In one process."""
_CHUNK_S = 0.5
_MOST_UNEXPLAINED = 2
"""Processes that were lost although no file ends one by itself."""
_WARMUP_SHARE = 0.1
_LONGEST_WARMUP_S = 10.0
_NO_MEMORY = "there is not enough memory"
_LATE_SPARES = "there was no time to time {} that others should beat, which are left out; give more --time"


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
        may_drop: Whether files that there is no time for are dropped, the least important first.
        has_quality: Whether outputs are compared with the baseline's.
        comparing_share: Of the time that is left, for comparing outputs on all targets; a few samples are compared in
            any case, all of them where it is None.
        superseded: Given what outputs say of each file, ids of those that nobody wants any more: they are not timed.
        spares: Given the same of the others, ids of those that are timed only where there is time for the number
            of processes that is wanted, the most important first.
        memory_bytes: Data that each may have.
        file_s: Seconds after which one file, opened or run on a few samples, is taken to hang; None for no limit. A
            metric may take as long as it likes.
        division: Which samples the search has seen; None where nothing is to be said of parts.
        lost: Why files were dropped that ended a process or for which a metric failed, by id.
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
    may_drop: bool = True
    has_quality: bool = True
    comparing_share: float | None = None
    superseded: Callable[[Mapping[str, Judged]], Collection[str]] = lambda _: ()
    spares: Callable[[Mapping[str, Judged]], Sequence[str]] = lambda _: ()
    memory_bytes: int | None = None
    file_s: float | None = None
    division: Division | None = None
    lost: dict[str, str] = field(default_factory=dict)
    rounds: list[tuple[int, str, Round]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    is_late: bool = False
    _kept: list[str] = field(default_factory=list)
    _begun: list[str] = field(default_factory=list)
    _halved: dict[str, str] = field(default_factory=dict)
    _unfinished: dict[str, str] = field(default_factory=dict)
    _n_unexplained: int = 0
    _collected: Collected = field(init=False)
    _opening_s: float = 0.0
    _n_rounds: int = _MOST_ROUNDS
    _round_s: dict[str, float] = field(default_factory=dict)
    _sample_s: dict[str, tuple[float, float]] = field(default_factory=dict)

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
        self._kept = list(self.files)
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
        self.notes += [*self._too_many, *self._too_late, *watch.sentences, *self._drift()]
        return self._collected.measured(self._kept)

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
        if not self._goes_on_with_fewer(number, str(error) or _NO_MEMORY):
            return False
        self._n_unexplained = 0
        return True

    def _end(self, n_done: int, error: Exception) -> None:
        """What earlier processes measured is kept; where there is nothing to keep the error is raised."""
        if n_done:
            reason = str(error) or _NO_MEMORY
            self.notes.append(f"after {n_done} processes no further one could be measured: {reason}")
        elif isinstance(error, WorkerLostError):
            where = f"{self.setup.baseline}: measuring it beside the other files failed"
            raise ModelError(f"{where}, {error}; try again") from error
        else:
            raise error

    def _goes_on_with_fewer(self, number: int, reason: str) -> bool:
        """Drop the less important half where the first process came to no end: together they may be too many.

        What earlier processes measured is better kept as it is.
        """
        whole = [key for key in self._begun if self.lost.get(key, _NO_MEMORY) == _NO_MEMORY]
        if number or not self.may_drop or len(whole) < 2:
            return False
        self._kept = whole[: 1 if self.is_ended() or self._left < 0 else len(whole) // 2]
        for key in whole:
            self.lost.pop(key, None)
        self._halved.update({key: reason for key in whole if key not in self._kept})
        return True

    @property
    def _too_many(self) -> list[str]:
        """What was left out so that the others could be measured."""
        reasons = list(dict.fromkeys(self._halved.values()))
        n = f"{len(self._halved)} of {len(self.files)} files"
        return [f"left out, as together they could not be measured: {n}, {'; '.join(reasons)}"] if reasons else []

    @property
    def _too_late(self) -> list[str]:
        """What was left out for want of time, or of patience, in whichever process."""
        others = {*self._kept, *self._halved, *self.lost}
        whys = [why for key, why in self._unfinished.items() if key not in others]
        return [why.format(f"{whys.count(why)} of {len(self.files)} files") for why in dict.fromkeys(whys)]

    def _drift(self) -> list[str]:
        """What the baseline's latencies say on the first target, beside those of samples of the same shapes."""
        found = [one for _, target, one in self.rounds if target == self._targets[0]]
        counted = [(one.shapes, statistics.median(one.seconds[REFERENCE])) for one in found if not one.is_repeated]
        return drift_sentences(relative(counted), len(found) - len(counted))

    @property
    def _targets(self) -> list[str]:
        return [target.name for target in self.setup.targets]

    @property
    def _left(self) -> float:
        return self.deadline - time.perf_counter()

    def _is_worth_another(self, n_done: int) -> bool:
        if self.is_ended():
            return False
        if n_done >= self.least_sessions and are_narrow(self._collected.ratios(self._kept).values(), self.narrow):
            return False
        n_affordable = (self._left - self._opening_s) / self._rounds_s
        self.is_late = n_affordable < LEAST_ROUNDS
        if not self.is_late:
            self._n_rounds = int(min(self._n_rounds, n_affordable))
        return not self.is_late

    @property
    def _rounds_s(self) -> float:
        """Seconds of one round on every target, as far as they are known."""
        return statistics.mean(self._round_s.values()) * len(self._targets)

    def _session(self, number: int) -> None:
        start, self._begun = time.perf_counter(), self._kept
        worker = self._worker(replace(self.setup, seed=self.setup.seed + number))
        try:
            footprints = self._open(worker, number)
            opening_s = time.perf_counter() - start
            if number == 0 and self.has_quality:
                self._judge(worker, opening_s)
            start = time.perf_counter()
            limit_s = min(_LONGEST_WARMUP_S, max(0.0, _WARMUP_SHARE * self._left))
            worker.call("warm_up", limit_s, seconds=self._session_limit_s)
            self._opening_s = opening_s + time.perf_counter() - start
            begun = time.perf_counter()
            found = [(name, found) for name in self._targets for found in self._run(worker, name, number, begun)]
        finally:
            worker.close()
        counted = [name for name, each in found if not each.is_repeated]
        if number and min(counted.count(target) for target in self._targets) < LEAST_ROUNDS:
            return  # the time was over: a few rounds must not count like a whole session
        self._collected.open(footprints)
        for target, part in found:
            self._count(number, target, part)

    def _worker(self, setup: FileBenchSetup) -> Worker:
        return Worker(setup, memory_bytes=self.memory_bytes, affinity=setup.targets[0].affinity)

    def _open(self, worker: Worker, number: int) -> dict[Pair, Footprint]:
        """In random order: what is opened first lies elsewhere in memory than what comes last."""
        found: dict[Pair, Footprint] = {}
        worker.ready(seconds=STARTING_S)
        keys = [REFERENCE, *self._kept]
        random.Random(self.setup.seed + number).shuffle(keys)
        for key in keys:
            path = self.setup.baseline if key == REFERENCE else self.files[key]
            try:
                opened: Mapping[str, Footprint] = worker.call("open", key, path, seconds=self._limit_s(1))
            except (ModelError, TargetError, MemoryError) as error:
                if key == REFERENCE or number:  # what was measured before is not lost by this
                    raise
                self.lost[key] = str(error) or _NO_MEMORY
                self._kept = [other for other in self._kept if other != key]
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
            if n_done >= LEAST_ROUNDS and (self._left < 0 or n_done >= self._n_rounds):
                break
            start, round_s = time.perf_counter(), self._round_s.get(target, math.inf)
            part = samples[n_done : min(n_done + max(1, int(_CHUNK_S / round_s)), max(LEAST_ROUNDS, self._n_rounds))]
            found.extend(worker.call("time", target, part, seconds=self._session_limit_s))
            n_done += len(part)
            self._round_s[target] = max(1e-6, time.perf_counter() - start) / len(part)
            if number == 0:
                self._n_rounds = self._affordable_rounds(time.perf_counter() - begun)
            if self.is_ended() and (number or n_done >= LEAST_ROUNDS):
                break
        return found

    def _affordable_rounds(self, spent_s: float) -> int:
        """In each process, so that there is time for the least number of them; the first one's took ``spent_s``."""
        left = self._left + spent_s - (self.least_sessions - 1) * self._opening_s
        if left == math.inf:
            return _MOST_ROUNDS
        n = left / (self.least_sessions * self._rounds_s)
        return int(min(_MOST_ROUNDS, max(LEAST_ROUNDS, n)))

    def _judge(self, worker: Worker, opening_s: float) -> None:
        """By outputs, on every target, before anything is timed; opening all files took some seconds."""
        opening_s /= 1 + len(self._kept)
        not_on_cpu = worker.call("open_reference", seconds=self._limit_s(1))
        if not_on_cpu:
            where = "on the same target, not on the CPU"
            self.notes.append(f"outputs are compared with the baseline's {where}: {not_on_cpu}")
        for target in self._targets:
            self._compare(worker, target)
            if self.setup.make_scorer is not None:
                self._score(worker, target)
        judged = {key: self._collected.judged(key) for key in self._kept}
        superseded = self.superseded(judged)
        self._keep(worker, [key for key in self._kept if key not in superseded])
        late = self._late(self.spares({key: judged[key] for key in self._kept}), opening_s)
        self._unfinished.update(dict.fromkeys(late, _LATE_SPARES))
        self._keep(worker, [key for key in self._kept if key not in late])

    def _late(self, spares: Sequence[str], opening_s: float) -> Sequence[str]:
        """Those that there is no time for in as many processes as are wanted; opening a file takes some seconds."""
        if math.isinf(self._left) or not self._sample_s:
            return ()
        baseline_s, file_s = (sum(seconds) for seconds in zip(*self._sample_s.values(), strict=True))
        n_others = len(self._kept) - len(spares)
        n = n_timed(self._left, opening_s=opening_s, baseline_s=baseline_s, file_s=file_s)
        return spares[max(n, n_others, 1) - n_others :]

    def _keep(self, worker: Worker, kept: Sequence[str]) -> None:
        """These of the files, and close the others."""
        worker.call("drop", [key for key in self._kept if key not in kept])
        self._kept = list(kept)

    def _compare(self, worker: Worker, target: str) -> None:
        n_samples, n_done, size = len(self.setup.feeds), 0, 1
        end = time.perf_counter() + self._comparing_s
        while n_done < n_samples and not (n_done >= self._least_compared and self._why_no_more(end)):
            start = time.perf_counter()
            part = range(n_done, min(n_done + size, n_samples))
            found: Compared = worker.call("compare", target, part, seconds=self._session_limit_s)
            self.lost.update(found.failed)
            self._kept = [key for key in self._kept if key not in found.failed]
            self._collected.compare(target, found.meters)
            seconds, baseline_s = (time.perf_counter() - start) / len(part), found.baseline_s / len(part)
            self._sample_s[target] = baseline_s, (seconds - baseline_s) / max(1, len(found.meters))
            n_done += len(part)
            size = max(1, int(_CHUNK_S / max(seconds, 1e-6)))
            self._drop_what_is_late(worker, n_samples - n_done, seconds, baseline_s)
        said = f"outputs were compared on {n_done} of the {n_samples} samples: {self._why_no_more(end)}"
        if n_done < n_samples and said not in self.notes:
            self.notes.append(said)

    @property
    def _comparing_s(self) -> float:
        """For comparing outputs on one target."""
        return math.inf if self.comparing_share is None else self.comparing_share * self._left / len(self._targets)

    def _why_no_more(self, end: float) -> str:
        """Than the samples that were compared; empty where the next ones are."""
        if self.is_ended():
            return "the user wanted no more"
        return "there was no time for more; give more --time" if time.perf_counter() > end else ""

    @property
    def _least_compared(self) -> int:
        """Samples, whoever wants it to end: metrics have values on all those of a search, on fewer they may not."""
        if self.setup.make_scorer is None:
            return LEAST_ROUNDS
        return len(self.setup.feeds) if self.division is None else self.division.search.stop

    def _score(self, worker: Worker, target: str) -> None:
        """Metrics of the baseline and of every file; a file that there is no time for or that has none is dropped."""
        self._collected.score(target, REFERENCE, worker.call("score", target, REFERENCE))
        scored: list[str] = []
        for number, key in enumerate(self._kept):
            if scored and self.may_drop and (self._left < 0 or self.is_ended()):
                late = "there was no time for the metrics of {}, which are left out; give more --time"
                unwanted = "left out, as the user wanted no more: the metrics of {}"
                self._unfinished.update(dict.fromkeys(self._kept[number:], unwanted if self.is_ended() else late))
                break
            try:
                self._collected.score(target, key, worker.call("score", target, key))
                scored.append(key)
            except MetricError as error:
                self.lost[key] = str(error)
        self._keep(worker, scored)

    def _drop_what_is_late(self, worker: Worker, n_samples: int, sample_s: float, baseline_s: float) -> None:
        """Where there is no time for so many samples more of all files, and to time them.

        Of the seconds of a sample those of the baseline are the same however many files there are.
        """
        timing_s = LEAST_ROUNDS * max(sample_s, len(self._kept) * TIMING_S)
        needed_s, left = n_samples * (sample_s - baseline_s), self._left - timing_s - n_samples * baseline_s
        if not n_samples or needed_s <= left or len(self._kept) < 2 or not self.may_drop:
            return
        n_kept = max(1, int(len(self._kept) * max(left, 0.0) / needed_s))
        late = "there was no time to compare the outputs of {}, which are left out; give more --time"
        self._unfinished.update(dict.fromkeys(self._kept[n_kept:], late))
        self._keep(worker, self._kept[:n_kept])

    def _blame(self, number: int) -> bool:
        """Find the files that end a process by themselves and drop them; whether there are any."""
        found = blamed(
            {key: self.files[key] for key in self._kept},
            self._targets,
            lambda: self._worker(self.setup),
            seconds=self._limit_s(1),
            is_over=lambda: self.is_ended() or self._left < 0,
            method="compare" if self.has_quality else "time",
        )
        guilty = {key: reason for key, reason in found.items() if number == 0 or reason != NOT_TRIED}
        self.lost.update(guilty)
        self._kept = [key for key in self._kept if key not in guilty]
        return bool(guilty)

    def _limit_s(self, n_files: int) -> float | None:
        """Longest that an answer about so many files may take: hardly longer than there is time."""
        if self.file_s is None:
            return None
        return min(self.file_s * n_files, self.file_s + max(0.0, self._left))

    @property
    def _session_limit_s(self) -> float | None:
        """Longest that an answer about all files may take."""
        return self._limit_s(1 + len(self._kept))

    def _count(self, number: int, target: str, found: Round) -> None:
        self.rounds.append((number, target, found))
        self._collected.count(self._kept, number, target, found)
