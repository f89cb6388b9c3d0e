"""What rounds and outputs of files, in one process after the other, say together."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.division import Division
from autoquant.domain.measurement import Footprint, Latency
from autoquant.domain.metric import MemberMetric
from autoquant.domain.quality import QualityMeter
from autoquant.measurement.differences import shown_faster
from autoquant.measurement.files import Round
from autoquant.measurement.intervals import STOPPED_LEVEL, SessionInterval, intervals_by_target
from autoquant.measurement.latency import REFERENCE, Estimate, Timings
from autoquant.measurement.measured import Judged, Measured

__all__ = ["Collected", "Pair"]

Pair = tuple[str, str]
"""A file and a target."""
_ITSELF = SessionInterval(1.0, 1.0, 1.0, 1.0, 1.0)
"""Of the baseline's ratio to itself, which nobody measures."""


@dataclass(slots=True)
class Collected:
    """Outputs and timings by file and target.

    Attributes:
        targets: Names.
        seed: Of bootstraps.
        division: Which samples the search has seen; None where nothing is to be said of parts.
        has_quality: Whether outputs are compared with the baseline's.
        timings: Of files that were timed.
    """

    targets: Sequence[str]
    seed: int
    division: Division | None
    has_quality: bool
    timings: dict[Pair, Timings] = field(default_factory=dict)
    _meters: dict[Pair, QualityMeter] = field(default_factory=dict)
    _scores: dict[Pair, Mapping[str, MemberMetric]] = field(default_factory=dict)
    _footprints: dict[Pair, list[Footprint]] = field(default_factory=dict)
    _judged: dict[str, Judged] = field(default_factory=dict)

    def forget_outputs(self) -> None:
        """Those of a process that did not come to its end."""
        self._meters.clear()
        self._scores.clear()
        self._judged.clear()

    def compare(self, target: str, meters: Mapping[str, QualityMeter]) -> None:
        """Outputs of files on further samples."""
        for key, meter in meters.items():
            self._judged.pop(key, None)
            if (key, target) in self._meters:
                self._meters[key, target].merge(meter)
            else:
                self._meters[key, target] = meter

    def score(self, target: str, key: str, found: Mapping[str, MemberMetric]) -> None:
        """Metrics of a file."""
        self._judged.pop(key, None)
        self._scores[key, target] = found

    def open(self, footprints: Mapping[Pair, Footprint]) -> None:
        """What files took to open in one process."""
        for pair, footprint in footprints.items():
            self._footprints.setdefault(pair, []).append(footprint)

    def count(self, keys: Collection[str], number: int, target: str, found: Round) -> None:
        """A round of one process, unless it is repeated."""
        if found.is_repeated:
            return
        for key in (*keys, REFERENCE):
            timings = self.timings.setdefault((key, target), Timings())
            timings.add(found.seconds[key], found.seconds[REFERENCE], number)

    def ratios(self, keys: Collection[str]) -> dict[Pair, SessionInterval]:
        """Empty from a single process."""
        timed = self._timings_of(keys)
        found = {pair: timings.ratio_by_session() for pair, timings in timed.items()}
        if min(map(len, found.values())) < 2:
            return {}
        measured = {pair: medians for pair, medians in found.items() if pair[0] != REFERENCE}
        rounds = {pair: timed[pair].ratio_variance() for pair in measured}
        return dict.fromkeys(found, _ITSELF) | intervals_by_target(measured, rounds=rounds, level=STOPPED_LEVEL)

    def session_ratios(self, keys: Collection[str]) -> dict[str, dict[str, Sequence[float]]]:
        """One a session so far, by file and target, for files that were timed."""
        found: dict[str, dict[str, Sequence[float]]] = {}
        for (key, target), timings in self._timings_of(keys).items():
            if key != REFERENCE:
                found.setdefault(key, {})[target] = timings.ratio_by_session()
        return found

    def judged(self, key: str) -> Judged:
        """By the SNRs of the target on which it is lowest."""
        if key not in self._judged:
            self._judged[key] = self._judge(key)
        return self._judged[key]

    def _judge(self, key: str) -> Judged:
        metrics = self._metrics(key)
        if not self.has_quality or key == REFERENCE:
            return Judged(metrics=metrics)
        parts = self.division
        meters = [self._meters[key, name] for name in self.targets]
        pooled = [meter if parts is None else meter.part(parts.pooled) for meter in meters]
        worst = min(range(len(meters)), key=lambda i: pooled[i].quality().worst_db)
        held_out = None if parts is None else meters[worst].part(parts.held_out)
        return Judged(
            quality=pooled[worst].quality(),
            snr_search=None if parts is None else meters[worst].part(parts.search).interval(self.seed),
            snr_held_out=held_out.interval(self.seed) if held_out and held_out.noise else None,
            metrics=metrics,
        )

    def measured(self, keys: Collection[str], *, is_stopped: bool = False) -> dict[str, Measured]:
        """By id, for these files and the baseline; ``is_stopped`` where ratios were known well enough for that."""
        ratios = self.ratios(keys)
        latency = self._latencies(keys, ratios)
        faster = [self._faster(keys, target, is_stopped) for target in self.targets]
        return {
            key: Measured(
                judged=self.judged(key),
                latency={name: latency[key, name] for name in self.targets},
                footprint={name: self._footprint(key, name) for name in self.targets},
                ratio={name: ratios[key, name] for name in self.targets} if ratios else {},
                faster_than=frozenset().union(*(found[key] for found in faster)),
            )
            for key in (*keys, REFERENCE)
        }

    def _timings_of(self, keys: Collection[str]) -> dict[Pair, Timings]:
        return {pair: timings for pair, timings in self.timings.items() if pair[0] in (*keys, REFERENCE)}

    def _faster(self, keys: Collection[str], target: str, is_stopped: bool) -> dict[str, frozenset[str]]:
        timings = {key: self.timings[key, target] for key in (*keys, REFERENCE)}
        return shown_faster(timings, self.seed, is_stopped=is_stopped)

    def _latencies(self, keys: Collection[str], ratios: Mapping[Pair, SessionInterval]) -> dict[Pair, Latency]:
        kept = self._timings_of(keys)
        if not ratios:
            return {pair: timings.latency(self.seed) for pair, timings in kept.items()}
        medians = {pair: timings.seconds_by_session() for pair, timings in kept.items()}
        own = intervals_by_target(medians, rounds={pair: each.seconds_variance() for pair, each in kept.items()})
        return {
            pair: timings.latency_within(_of_next(own[pair]), _of_next(ratios[pair])) for pair, timings in kept.items()
        }

    def _metrics(self, key: str) -> dict[str, MemberMetric]:
        found = [self._scores[key, name] for name in self.targets if (key, name) in self._scores]
        names = found[0] if found else ()
        return {name: max((each[name] for each in found), key=lambda m: m.drop.all.value) for name in names}

    def _footprint(self, key: str, target: str) -> Footprint:
        found = self._footprints[key, target]
        memory = [footprint.memory_mb for footprint in found if footprint.memory_mb is not None]
        return Footprint(
            opening_ms=float(np.median([footprint.opening_ms for footprint in found])),
            memory_mb=float(np.median(memory)) if memory else None,
        )


def _of_next(found: SessionInterval) -> Estimate:
    """Where a further process lies."""
    return found.value, found.next_low, found.next_high
