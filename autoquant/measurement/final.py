"""The last measurement: delivered files, together, from which every number of the front comes."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.domain.measurement import Latency, Quality
from autoquant.domain.quality import QualityMeter
from autoquant.measurement.bench import Bench, warm_up, worst
from autoquant.measurement.latency import Outputs, Timings, repetitions, run_round
from autoquant.runtime.session import Session, open_session

__all__ = ["FinalMeasurement", "finalist_seconds"]

_N_TIMED = 36
"""Samples that are timed in the first pass; the others only count for quality."""
_LEAST_ROUNDS = 15
"""Rounds behind an interval, however few the samples."""
_TIMING_S = 5e-3
"""A timing lasts at least this long."""
_PINNED = "the float model, pinned"


@dataclass(slots=True)
class FinalMeasurement:
    """Measures files in rounds that all of them and the float model share, over several openings of the sessions.

    Attributes:
        bench: The float model, the samples and the reference outputs.
        files: Model files by id, the most important first.
        n_sessions: How often everything is opened anew where there is time; the samples are shared out.
        deadline: ``time.perf_counter()`` at which this should end: files that there is no time for are dropped, the
            least important first, and samples run a second time only before it.
    """

    bench: Bench
    files: Mapping[str, Path]
    n_sessions: int
    deadline: float
    _kept: list[str] = field(default_factory=list)
    _opened: dict[str, dict[str, Session]] = field(default_factory=dict)
    _n_openings: int = 0
    _opening_s: float = 0.0
    _meters: dict[tuple[str, str], QualityMeter] = field(default_factory=dict)
    _timings: dict[tuple[str, str], Timings] = field(default_factory=dict)

    def run(self) -> tuple[dict[str, tuple[Quality, dict[str, Latency]]], dict[str, Latency]]:
        """Measure.

        Returns:
            Quality over all samples and latency by target name, for each file that was not dropped; and the float
            model's latency by target name.
        """
        bench, targets = self.bench, [target.name for target in self.bench.targets]
        self._kept = list(self.files)
        for key in (*self._kept, _PINNED):
            for name in targets:
                self._meters[key, name] = QualityMeter(bench.names)
                self._timings[key, name] = Timings()
        rng, running_s = random.Random(bench.seed), 0.0
        parts = [range(k, len(bench.feeds), self.n_sessions) for k in range(min(self.n_sessions, len(bench.feeds)))]
        for number, part in enumerate(parts):
            self._prepare(running_s, len(parts) - number)
            start = time.perf_counter()
            for name in targets:
                self._run_part(name, part, rng)
            running_s = time.perf_counter() - start
            self._repeat(part, running_s * (len(parts) - 1 - number), rng)
        found = {
            key: (
                worst([self._meters[key, name].quality() for name in targets]),
                {name: self._timings[key, name].latency(bench.seed) for name in targets},
            )
            for key in self._kept
        }
        return found, {name: self._timings[_PINNED, name].latency(bench.seed) for name in targets}

    def _prepare(self, running_s: float, n_parts_left: int) -> None:
        """Open everything anew where there is time for that; otherwise go on as it is, if need be with fewer files."""
        left = self.deadline - time.perf_counter()
        if not self._opened or (running_s + self._opening_s) * n_parts_left <= left:
            self._open()
        elif running_s * n_parts_left > left:
            n_kept = max(2, int(len(self._kept) * max(left, 0.0) / (running_s * n_parts_left)))
            del self._kept[n_kept:]

    def _open(self) -> None:
        start = time.perf_counter()
        self._opened.clear()
        for target in self.bench.targets:
            sessions: dict[str, Session] = {_PINNED: open_session(self.bench.model, target)}
            sessions.update({key: open_session(self.files[key], target) for key in self._kept})
            for session in sessions.values():
                warm_up(session, self.bench.feeds)
            self._opened[target.name] = sessions
        self._n_openings += 1
        self._opening_s = time.perf_counter() - start

    def _run_part(self, target: str, part: Sequence[int], rng: random.Random) -> None:
        timed = part[: -(-_N_TIMED // self.n_sessions)]
        for i in timed:
            for key, outputs in self._round(target, i, rng).items():
                self._meters[key, target].add(self.bench.reference[i], outputs)
        for i in part[len(timed) :]:
            for key in self._kept:
                outputs = self._opened[target][key].run(None, self.bench.feeds[i])
                self._meters[key, target].add(self.bench.reference[i], outputs)

    def _repeat(self, part: Sequence[int], rest_s: float, rng: random.Random) -> None:
        """Further rounds in the same opening: to a least number always, then as many again while there is time."""
        wanted = -(-_N_TIMED // self.n_sessions)
        least = -(-_LEAST_ROUNDS // self.n_sessions)
        n_done = min(len(part), wanted)
        for k in range(wanted):
            if n_done + k >= least and time.perf_counter() + rest_s + self._opening_s > self.deadline:
                break
            for target in self._opened:
                self._round(target, part[k % len(part)], rng)

    def _round(self, target: str, i: int, rng: random.Random) -> dict[str, Outputs]:
        sessions = {key: self._opened[target][key] for key in (_PINNED, *self._kept)}
        n_repeats = repetitions(self.bench.float_s[target], _TIMING_S)
        seconds, outputs = run_round(sessions, self.bench.feeds[i], n_repeats, rng)
        for key in sessions:
            self._timings[key, target].add(seconds[key], seconds[_PINNED], self._n_openings)
        return outputs


def finalist_seconds(latency_s: float, n_samples: int) -> float:
    """What a file takes to run on every sample, timed on some."""
    n_timed = min(n_samples, _N_TIMED)
    return n_timed * max(latency_s, _TIMING_S) + (n_samples - n_timed) * latency_s
