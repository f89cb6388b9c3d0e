"""Model files measured together in this process: one session of a measurement."""

import math
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autoquant.domain.feed import Feed, Shapes, sample_name, shapes_of
from autoquant.domain.measurement import Footprint
from autoquant.domain.metric import MemberMetric
from autoquant.domain.quality import QualityMeter
from autoquant.domain.reason import one_line
from autoquant.domain.target import DEFAULT_TARGET, Target
from autoquant.errors import ModelError
from autoquant.measurement.costs import LONG_S
from autoquant.measurement.latency import REFERENCE, Outputs, Repeats, run_round
from autoquant.runtime.binding import on_device
from autoquant.runtime.clocks import Clock, clock_of
from autoquant.runtime.memory import resident_growth
from autoquant.runtime.session import Session, open_session
from autoquant.runtime.streams import in_streams

__all__ = ["Compared", "FileBench", "FileBenchSetup", "Round", "Scorer"]

_STILL_FASTER = 0.95
_MOST_WARMUPS = 8
"""Rounds that nobody counts: until files got no faster by a twentieth, but not more."""
_JUMP = 1.25
_MOST_REPEATS = 3


class Scorer(Protocol):
    """Takes the outputs of files and says what metrics make of them."""

    def add(self, key: str, sample: int, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample of a file; samples come in order."""

    def scores(self, key: str) -> Mapping[str, MemberMetric]:
        """Metrics by name of a file over its samples so far, of the baseline for ``REFERENCE``.

        Raises:
            MetricError: A function of the user's own fails.
        """


@dataclass(frozen=True, slots=True)
class Round:
    """Every file on one sample.

    Attributes:
        seconds: Of each inference, by file; the baseline's are named ``REFERENCE``.
        is_repeated: Whether it doesn't count: the files were far slower than usual, so that it was run again.
        shapes: Of the sample.
    """

    seconds: Mapping[str, Sequence[float]]
    is_repeated: bool
    shapes: Shapes = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Outputs of files on some samples.

    Attributes:
        meters: Of those that run on all of them, by file.
        failed: Why the others don't, by file.
        rounds: One for each sample, with all that were run on it.
        is_beside: Whether the baseline ran on the same target, so that rounds may count.
    """

    meters: Mapping[str, QualityMeter]
    failed: Mapping[str, str]
    rounds: tuple[Round, ...]
    is_beside: bool

    @property
    def baseline_s(self) -> float:
        """Seconds that the baseline took."""
        return sum(second for found in self.rounds for second in found.seconds[REFERENCE])


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBenchSetup:
    """Makes a ``FileBench`` in whatever process it is called.

    Attributes:
        baseline: The float model's file.
        feeds: Samples.
        targets: Where files are timed.
        seed: Of orders.
        make_scorer: Given the names of the outputs, makes what takes the outputs that are compared; None for nothing.
        sample_names: What messages call the samples; their places by default.
        numbers: Outputs of integers that have an SNR, as ``QualityMeter.numbers``.
    """

    baseline: Path
    feeds: Sequence[Feed]
    targets: Sequence[Target]
    seed: int
    make_scorer: Callable[[Sequence[str]], Scorer] | None = None
    sample_names: Sequence[str] = ()
    numbers: frozenset[str] = frozenset()

    def __call__(self) -> "FileBench":
        """Nothing is open yet."""
        return FileBench(self)


@dataclass(slots=True)
class FileBench:
    """Opens files and runs rounds that all of them share with the baseline."""

    setup: FileBenchSetup
    _opened: dict[str, dict[str, Session]] = field(init=False)
    _rng: random.Random = field(init=False)
    _usual_s: defaultdict[tuple[str, Shapes], list[float]] = field(default_factory=lambda: defaultdict(list))
    _repeats: Repeats = field(default_factory=Repeats)
    _first_s: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _names: list[str] = field(default_factory=list)
    _not_on_cpu: str = ""
    _paths: dict[str, Path] = field(default_factory=dict)
    _scorers: dict[str, Scorer] = field(default_factory=dict)
    _clocks: dict[str, Clock] = field(init=False)

    def __post_init__(self) -> None:
        self._clocks = {target.name: clock_of(target) for target in self.setup.targets}
        self._rng = random.Random(self.setup.seed)
        self._opened = {target.name: {} for target in self.setup.targets}

    def open(self, key: str, path: Path) -> dict[str, Footprint]:
        """Open a file on every target and run it once.

        Raises:
            ModelError: onnxruntime refuses it, or cannot run it on the first sample.
        """
        found = {}
        self._paths[key] = path
        for target in self.setup.targets:
            with resident_growth() as growth:
                start = time.perf_counter()
                session = open_session(path, target)
                opening_s = time.perf_counter() - start
                _run_once(session, self.setup.feeds[0], path)
                self._first_s[target.name].append(max(1e-9, time.perf_counter() - start - opening_s))
            self._opened[target.name][key] = in_streams(on_device(session), target.streams)
            self._names = [output.name for output in session.get_outputs()]
            found[target.name] = Footprint(opening_ms=opening_s * 1e3, memory_mb=growth.megabytes)
        return found

    def drop(self, keys: Sequence[str]) -> None:
        """Close files."""
        for sessions in self._opened.values():
            for key in keys:
                sessions.pop(key, None)

    def warm_up(self, limit_s: float) -> None:
        """Run rounds until files get no faster from one to the next, ``limit_s`` is over, or there were enough.

        Of long inferences none is needed: each file was run when it was opened, and is run once more before the first
        round that counts. What counts is the geometric mean of all files on each target: some of many are faster by
        chance in any round.
        """
        if self._first_s and all(statistics.geometric_mean(first) >= LONG_S for first in self._first_s.values()):
            return
        end = time.perf_counter() + limit_s
        before = {target.name: math.inf for target in self.setup.targets}
        for _ in range(_MOST_WARMUPS):
            now = {name: self._typical(self._round(name, self.setup.feeds[0])) for name in before}
            if all(now[name] >= _STILL_FASTER * before[name] for name in now):
                return
            before = now
            if time.perf_counter() > end:
                return

    def time(self, target: str, samples: Sequence[int]) -> list[Round]:
        """A round for each sample; where latencies jump it is run again, a few times at most.

        What counts is the geometric mean of all files: if rounds were left out in which the baseline alone is slow, the
        others would seem to be slower than they are. Samples of other shapes may take longer: they have a usual of
        their own.

        Raises:
            ModelError: onnxruntime cannot run a file on one of the samples.
        """
        rounds: list[Round] = []
        for sample in samples:
            feed = self.setup.feeds[sample]
            for repeats_left in reversed(range(_MOST_REPEATS)):
                found = self._round(target, feed)
                has_jumped = self._has_jumped(self._usual_s[target, shapes_of(feed)], self._typical(found))
                rounds.append(Round(found, has_jumped and repeats_left > 0, shapes_of(feed)))
                if not rounds[-1].is_repeated:
                    break
        return rounds

    def open_reference(self) -> str:
        """Open the baseline on the CPU provider, if it is not open there; outputs are compared with its own.

        Returns:
            Why the CPU provider cannot open it, so that they are compared with its own on each target; else empty.
        """
        there = self._opened.setdefault(DEFAULT_TARGET.name, {})
        if REFERENCE in there or self._not_on_cpu:
            return self._not_on_cpu
        try:
            there[REFERENCE] = open_session(self.setup.baseline, DEFAULT_TARGET)
        except ModelError as error:
            if any(REFERENCE not in self._opened[target.name] for target in self.setup.targets):
                self.open(REFERENCE, self.setup.baseline)
            self._not_on_cpu = str(error)
        return self._not_on_cpu

    def compare(self, target: str, samples: Sequence[int]) -> Compared:
        """Outputs of every file against the baseline's; a file that fails on a sample is closed.

        The baseline runs first, the others in random order, as these are rounds that may count.
        """
        source = target if self.open_reference() else DEFAULT_TARGET.name
        failed, rounds = dict[str, str](), list[Round]()
        meters = {
            key: QualityMeter(self._names, self.setup.numbers) for key in self._opened[target] if key != REFERENCE
        }
        scorer, clock = self._scorer(target), self._clocks[target]
        for sample in samples:
            feed, seconds = self.setup.feeds[sample], dict[str, list[float]]()
            reference, seconds[REFERENCE] = _timed(self._opened[source][REFERENCE], feed, clock)
            if scorer is not None:
                scorer.add(REFERENCE, sample, reference, reference)
            for key in self._rng.sample(list(meters), len(meters)):
                try:
                    outputs, seconds[key] = _timed(self._opened[target][key], feed, clock)
                except Exception as error:  # onnxruntime raises its own types from run
                    where = sample_name(self.setup.sample_names, sample)
                    failed[key] = f"onnxruntime cannot run it on {where}: {one_line(error)}"
                    continue
                meters[key].add(reference, outputs)
                if scorer is not None:
                    scorer.add(key, sample, reference, outputs)
            self.drop([key for key in meters if key in failed])
            meters = {key: meter for key, meter in meters.items() if key not in failed}
            rounds.append(Round(seconds, is_repeated=False, shapes=shapes_of(feed)))
        return Compared(meters=meters, failed=failed, rounds=tuple(rounds), is_beside=source == target)

    def score(self, target: str, key: str) -> Mapping[str, MemberMetric]:
        """Metrics by name of a file over the samples that were compared.

        Raises:
            MetricError: A function of the user's own fails.
        """
        return self._scorers[target].scores(key)

    def _scorer(self, target: str) -> Scorer | None:
        if self.setup.make_scorer is not None and target not in self._scorers:
            self._scorers[target] = self.setup.make_scorer(self._names)
        return self._scorers.get(target)

    def _round(self, target: str, feed: Feed) -> dict[str, list[float]]:
        sessions, clock = self._opened[target], self._clocks[target]
        known = self._usual_s[target, shapes_of(feed)]
        try:
            if not known:
                first, _ = run_round(sessions, feed, 1, self._rng, clock)
                known.append(self._typical(first))
                self._repeats.learn(target, shapes_of(feed), self._of_reference(first))
            n_repeats = self._repeats.of(target, shapes_of(feed), known[0])
            seconds, _ = run_round(sessions, feed, n_repeats, self._rng, clock)
            self._repeats.learn(target, shapes_of(feed), self._of_reference(seconds))
            return seconds
        except Exception:  # onnxruntime raises its own types from run
            for key, session in sessions.items():
                _run_once(session, feed, self._paths[key])
            raise

    @staticmethod
    def _of_reference(seconds: Mapping[str, Sequence[float]]) -> Sequence[float]:
        """Those of the baseline; of another file where it is not open."""
        return seconds.get(REFERENCE, next(iter(seconds.values())))

    @staticmethod
    def _has_jumped(known: list[float], seconds: float) -> bool:
        usual = statistics.median(known[-15:])
        known.append(seconds)
        return len(known) > 5 and seconds > _JUMP * usual

    @classmethod
    def _typical(cls, seconds: Mapping[str, Sequence[float]]) -> float:
        return statistics.geometric_mean(cls._medians(seconds).values())

    @staticmethod
    def _medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
        return {key: statistics.median(values) for key, values in seconds.items()}


def _timed(session: Session, feed: Feed, clock: Clock) -> tuple[Outputs, list[float]]:
    start = clock()
    outputs: Outputs = session.run(None, feed)
    return outputs, [clock() - start]


def _run_once(session: Session, feed: Feed, path: Path) -> None:
    try:
        session.run(None, feed)
    except Exception as error:  # onnxruntime raises its own types from run
        raise ModelError(f"{path}: onnxruntime cannot run it on these data: {one_line(error)}") from error
