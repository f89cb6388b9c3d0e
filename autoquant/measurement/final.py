"""The last measurement: delivered files, together, from which every number of the front comes."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.domain.measurement import Latency, Quality
from autoquant.domain.quality import QualityMeter
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench, warm_up, worst
from autoquant.measurement.latency import Timings, repetitions, run_round
from autoquant.runtime.session import Session, open_session

__all__ = ["FinalMeasurement", "finalist_seconds"]

_N_TIMED = 36
"""Samples that are timed in the first pass; the others only count for quality."""
_TIMING_S = 5e-3
"""A timing lasts at least this long."""
_PINNED = "the float model, pinned"


@dataclass(slots=True)
class FinalMeasurement:
    """Measures files in rounds that all of them and the float model share, over several openings of the sessions.

    Attributes:
        bench: The float model, the samples and the reference outputs.
        files: Model files by id, the most important first.
        n_sessions: How often everything is opened anew; the samples are shared out among the openings.
        deadline: ``time.perf_counter()`` at which this should end: files that there is no time for are dropped, the
            least important first, and samples run a second time only before it.
    """

    bench: Bench
    files: Mapping[str, Path]
    n_sessions: int
    deadline: float
    _kept: list[str] = field(default_factory=list)
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
        rng, start = random.Random(bench.seed), time.perf_counter()
        parts = [range(k, len(bench.feeds), self.n_sessions) for k in range(min(self.n_sessions, len(bench.feeds)))]
        for number, part in enumerate(parts):
            if number:
                self._drop((time.perf_counter() - start) / number * (len(parts) - number))
            for target in bench.targets:
                self._session(target, number, part, rng)
        found = {
            key: (
                worst([self._meters[key, name].quality() for name in targets]),
                {name: self._timings[key, name].latency(bench.seed) for name in targets},
            )
            for key in self._kept
        }
        return found, {name: self._timings[_PINNED, name].latency(bench.seed) for name in targets}

    def _drop(self, seconds: float) -> None:
        """Keep the files that the time is enough for, given what all of them would still take."""
        left = self.deadline - time.perf_counter()
        if seconds > left:
            n_kept = max(2, int(len(self._kept) * max(left, 0.0) / seconds))
            del self._kept[n_kept:]

    def _session(self, target: Target, number: int, part: Sequence[int], rng: random.Random) -> None:
        bench = self.bench
        sessions: dict[str, Session] = {_PINNED: open_session(bench.model, target)}
        sessions.update({key: open_session(self.files[key], target) for key in self._kept})
        for session in sessions.values():
            warm_up(session, bench.feeds)
        n_repeats = repetitions(bench.float_s[target.name], _TIMING_S)
        timed = part[: -(-_N_TIMED // self.n_sessions)]
        for i in timed:
            self._round(sessions, target, number, i, n_repeats, rng)
        for i in part[len(timed) :]:
            for key in self._kept:
                self._meters[key, target.name].add(bench.reference[i], sessions[key].run(None, bench.feeds[i]))
        for i in timed:
            if time.perf_counter() + self._rest_seconds(number) > self.deadline:
                break
            self._round(sessions, target, number, i, n_repeats, rng, counts=False)

    def _round(
        self,
        sessions: Mapping[str, Session],
        target: Target,
        number: int,
        i: int,
        n_repeats: int,
        rng: random.Random,
        *,
        counts: bool = True,
    ) -> None:
        seconds, outputs = run_round(sessions, self.bench.feeds[i], n_repeats, rng)
        for key in sessions:
            self._timings[key, target.name].add(seconds[key], seconds[_PINNED], number)
            if counts:
                self._meters[key, target.name].add(self.bench.reference[i], outputs[key])

    def _rest_seconds(self, number: int) -> float:
        """What the openings after this one will take for one pass over their samples."""
        share = (self.n_sessions - 1 - number) / self.n_sessions
        n_samples = len(self.bench.feeds)
        found = [sum(t.candidate_s) / max(len(t.session), 1) for t in self._timings.values()]
        running = sum(finalist_seconds(seconds, n_samples) for seconds in found)
        return share * (running + len(found) * self.n_sessions * self.bench.opening_s)


def finalist_seconds(latency_s: float, n_samples: int) -> float:
    """What a file takes to run on every sample, timed on some."""
    n_timed = min(n_samples, _N_TIMED)
    return n_timed * max(latency_s, _TIMING_S) + (n_samples - n_timed) * latency_s
