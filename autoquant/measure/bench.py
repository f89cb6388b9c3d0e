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
from autoquant.measure.telling import TellingSamples
from autoquant.model.optimized import OptimizedGraph, read_optimized
from autoquant.runtime.session import Initializers, Session, open_session, ort_values

__all__ = ["Bench", "Opened", "Progress"]

_WARMUP_S = 5e-3
_TIMING_S = 2e-3
_FINAL_TIMING_S = 8e-3
_CPU = Target()
_PINNED = "the float model, pinned"


@dataclass(frozen=True, slots=True)
class Progress:
    """A measurement so far.

    Attributes:
        quality: Estimated for all samples from those so far.
        ratios: Median ratio so far, by target name.
        n_rounds: Timed rounds so far.
    """

    quality: Quality
    ratios: Mapping[str, float]
    n_rounds: int


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
    _signal: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    _telling: TellingSamples = field(default_factory=lambda: TellingSamples(0, 0))
    _pinned: dict[str, Session] = field(default_factory=dict)
    _values: dict[int, tuple[npt.NDArray[np.generic], Initializers]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        session = open_session(self.model, _CPU)
        self._names = [output.name for output in session.get_outputs()]
        self._reference = [session.run(None, feed) for feed in self.feeds]
        self._signal = np.sum([[_power(out) for out in outputs] for outputs in self._reference], axis=0)
        self._telling = TellingSamples(len(self.feeds), len(self._names))
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

        The first rounds take the most telling samples, from which the quality over all samples is estimated; a
        candidate that is still of interest then runs the other samples, untimed.

        Args:
            sessions: The candidate's, by target name.
            n_rounds: Timed rounds.
            goes_on: Asked with the estimate after a third of the rounds and after all of them.

        Returns:
            Quality of the worst target, latency by target name, and whether all samples were run.
        """
        rng = random.Random(self.seed)
        meters = {name: QualityMeter(self._names) for name in sessions}
        timings = {name: Timings() for name in sessions}
        for session in sessions.values():
            _warm_up(session, self.feeds)
        n_rounds = min(n_rounds, len(self.feeds))
        checkpoints = {max(2, n_rounds // 3), n_rounds}
        for k, i in enumerate(self._telling.order):
            if k in checkpoints and self._telling.is_known and not goes_on(self._progress(meters, timings)):
                break
            if k < n_rounds:
                self._round(i, sessions, meters, timings, rng)
            else:
                for name, session in sessions.items():
                    meters[name].add(self._reference[i], session.run(None, self.feeds[i]))
        latency = {name: timing.latency(self.seed) for name, timing in timings.items()}
        n_done = len(next(iter(meters.values())).noise)
        if n_done < len(self.feeds):
            return self._progress(meters, timings).quality, latency, False
        for meter in meters.values():
            self._telling.learn(np.array(meter.noise))
        return _worst([meter.quality() for meter in meters.values()]), latency, True

    def _progress(self, meters: Mapping[str, QualityMeter], timings: Mapping[str, Timings]) -> Progress:
        shares = self._telling.shares(len(next(iter(meters.values())).noise))
        quality = _worst([meter.quality(shares, self._signal) for meter in meters.values()])
        ratios = {name: timing.ratio for name, timing in timings.items()}
        return Progress(quality, ratios, len(next(iter(timings.values())).session))

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
            key: (
                _worst([m.quality() for m in meters[key].values()]),
                {name: t.latency(self.seed) for name, t in timings[key].items()},
            )
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


def _power(values: npt.NDArray[np.generic]) -> float:
    return float(np.square(values.astype(np.float64)).sum()) if values.dtype.kind == "f" else 0.0


def _warm_up(session: Session, feeds: Sequence[Feed]) -> None:
    """Once, and again while that took no longer than a few milliseconds: the first run allocates."""
    end = time.perf_counter() + _WARMUP_S
    for feed in feeds[:3]:
        session.run(None, feed)
        if time.perf_counter() > end:
            break


def _worst(qualities: Sequence[Quality]) -> Quality:
    return min(qualities, key=lambda quality: quality.worst_db)
