"""Measures candidates against the pinned float model."""

import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.measurement import Latency, Quality
from autoquant.domain.quality import QualityMeter
from autoquant.domain.target import Target
from autoquant.measure.latency import Outputs, Timings, repetitions, run_round
from autoquant.model.optimized import OptimizedGraph, read_optimized
from autoquant.runtime.session import Initializers, Session, open_session, ort_values

__all__ = ["Bench", "Opened", "Progress"]

_N_WARMUPS = 2
_TIMING_S = 2e-3
_FINAL_TIMING_S = 8e-3
_CPU = Target()
_PINNED = "the float model, pinned"


@dataclass(frozen=True, slots=True)
class Progress:
    """A measurement so far.

    Attributes:
        quality: Pooled over the samples so far.
        ratios: Median ratio so far, by target name.
    """

    quality: Quality
    ratios: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Opened:
    """A candidate's sessions, by target name, and the graph that the first target runs."""

    sessions: Mapping[str, Session]
    optimized: OptimizedGraph


@dataclass(slots=True)
class Bench:
    """The float model, open on every target, and its outputs on the evaluation samples.

    Attributes:
        model: The user's own file: latencies are ratios to it, its outputs on the CPU provider are the reference.
        targets: Where candidates are timed.
        feeds: Evaluation samples.
        seed: Of orders and resampling.
    """

    model: Path
    targets: Sequence[Target]
    feeds: Sequence[Feed]
    seed: int = 0
    float_s: dict[str, float] = field(default_factory=dict)
    _reference: list[Outputs] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _pinned: dict[str, Session] = field(default_factory=dict)
    _values: dict[int, tuple[npt.NDArray[np.generic], Initializers]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        session = open_session(self.model, _CPU)
        self._names = [output.name for output in session.get_outputs()]
        self._reference = [session.run(None, feed) for feed in self.feeds]
        self._pinned = {target.name: open_session(self.model, target) for target in self.targets}
        for name, pinned in self._pinned.items():
            _warm_up(pinned, self.feeds)
            start = time.perf_counter()
            for feed in self.feeds[:3]:
                pinned.run(None, feed)
            self.float_s[name] = (time.perf_counter() - start) / min(3, len(self.feeds))

    def open(self, skeleton: bytes, constants: Mapping[str, npt.NDArray[np.generic]]) -> Opened:
        """Open a candidate on every target; the first one also says what it really runs.

        Raises:
            ModelError: onnxruntime refuses the candidate.
        """
        values = self._ort_values(constants)
        with tempfile.TemporaryDirectory(prefix="autoquant-", dir=_memory_folder()) as folder:
            path = Path(folder) / "optimized.onnx"
            first = open_session(skeleton, self.targets[0], initializers=values, optimized_path=path)
            optimized = read_optimized(path)
        others = {t.name: open_session(skeleton, t, initializers=values) for t in self.targets[1:]}
        return Opened({self.targets[0].name: first, **others}, optimized)

    def measure(
        self, sessions: Mapping[str, Session], n_rounds: int, goes_on: Callable[[Progress], bool]
    ) -> tuple[Quality, dict[str, Latency], bool]:
        """Quality and latency from the same inferences: in each round every target runs another sample.

        Args:
            sessions: The candidate's, by target name.
            n_rounds: At most so many; each sample is used once.
            goes_on: Asked once, after a third of the rounds and at least two.

        Returns:
            Quality of the worst target, latency by target name, and whether all rounds were run.
        """
        rng = random.Random(self.seed)
        meters = {name: QualityMeter(self._names) for name in sessions}
        timings = {name: Timings() for name in sessions}
        for session in sessions.values():
            _warm_up(session, self.feeds)
        n_rounds = min(n_rounds, len(self.feeds))
        checkpoint = max(2, n_rounds // 3)
        for i in range(n_rounds):
            if i == checkpoint and not goes_on(_progress(meters, timings)):
                break
            self._round(i, sessions, meters, timings, rng)
        latency = {name: timing.latency(self.seed) for name, timing in timings.items()}
        n_done = next(iter(meters.values())).n_samples
        return _worst(meters), latency, n_done == n_rounds

    def _round(
        self,
        i: int,
        sessions: Mapping[str, Session],
        meters: Mapping[str, QualityMeter],
        timings: Mapping[str, Timings],
        rng: random.Random,
    ) -> None:
        for name, session in sessions.items():
            pair = {_PINNED: self._pinned[name], name: session}
            seconds, outputs = run_round(pair, self.feeds[i], repetitions(self.float_s[name], _TIMING_S), rng)
            timings[name].add(seconds[name], seconds[_PINNED])
            meters[name].add(self._reference[i], outputs[name])

    def measure_files(
        self, files: Mapping[str, Path], *, n_sessions: int, deadline: float
    ) -> dict[str, tuple[Quality, dict[str, Latency]]]:
        """Measure delivered files together: all of them, and the float model, in every round.

        Args:
            files: Model files by id.
            n_sessions: How often everything is opened anew; rounds are shared out among the openings.
            deadline: ``time.perf_counter()`` at which no further pass over the samples begins; the first pass, which
                quality needs, is always made.

        Returns:
            Quality over all samples and latency by target name, by id.
        """
        rng = random.Random(self.seed)
        meters = {key: {t.name: QualityMeter(self._names) for t in self.targets} for key in files}
        timings = {key: {t.name: Timings() for t in self.targets} for key in files}
        parts = [list(range(k, len(self.feeds), n_sessions)) for k in range(n_sessions)]
        for number, part in enumerate(parts):
            for target in self.targets:
                opened = {key: open_session(path, target) for key, path in files.items()}
                everyone = {_PINNED: open_session(self.model, target), **opened}
                for session in everyone.values():
                    _warm_up(session, self.feeds)
                n_repeats = repetitions(self.float_s[target.name], _FINAL_TIMING_S)
                for turn, i in enumerate([*part, *part]):
                    again = turn >= len(part)
                    if again and time.perf_counter() > deadline:
                        break
                    seconds, outputs = run_round(everyone, self.feeds[i], n_repeats, rng)
                    for key in files:
                        timings[key][target.name].add(seconds[key], seconds[_PINNED], number)
                        if not again:
                            meters[key][target.name].add(self._reference[i], outputs[key])
        return {
            key: (_worst(meters[key]), {name: t.latency(self.seed) for name, t in timings[key].items()})
            for key in files
        }

    def _ort_values(self, constants: Mapping[str, npt.NDArray[np.generic]]) -> Initializers:
        values: dict[str, object] = {}
        for name, array in constants.items():
            if id(array) not in self._values:
                self._values[id(array)] = (array, ort_values({"": array}))
            values[name] = self._values[id(array)][1][""]
        return values


def _memory_folder() -> str | None:
    """A folder in memory where the system has one: a trial then writes nothing to disk."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _warm_up(session: Session, feeds: Sequence[Feed]) -> None:
    for feed in feeds[:_N_WARMUPS]:
        session.run(None, feed)


def _progress(meters: Mapping[str, QualityMeter], timings: Mapping[str, Timings]) -> Progress:
    return Progress(_worst(meters), {name: timing.ratio for name, timing in timings.items()})


def _worst(meters: Mapping[str, QualityMeter]) -> Quality:
    return min((meter.quality() for meter in meters.values()), key=lambda quality: quality.worst_db)
