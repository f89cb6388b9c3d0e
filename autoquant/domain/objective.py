"""What models are compared in, and what is demanded of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoquant.domain.measurement import Believed, Latency, Measurement, Quality
from autoquant.domain.metric import Direction, Metric

__all__ = [
    "DEFAULT_OBJECTIVES",
    "LATENCY",
    "NO_BOUNDS",
    "SIZE",
    "SNR",
    "SNR_LIMIT_DB",
    "Bounds",
    "Goal",
    "Objectives",
    "Standing",
    "clamped_db",
    "standing_of",
]

LATENCY, SIZE, SNR = "latency", "size", "snr"
SNR_LIMIT_DB = 200.0
"""Equal outputs count as this much, so that every objective is finite."""


def clamped_db(snr_db: float) -> float:
    """Within plus and minus ``SNR_LIMIT_DB``; NaN stays."""
    return snr_db if math.isnan(snr_db) else min(max(float(snr_db), -SNR_LIMIT_DB), SNR_LIMIT_DB)


class Goal(StrEnum):
    """What the search does with an objective."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a model is compared by.

    Attributes:
        quality: Against the float model.
        latency: By target name.
        size_bytes: Of the file.
        drops: By metric, how much worse than float it is.
    """

    quality: Quality
    latency: Mapping[str, Latency]
    size_bytes: int
    drops: Mapping[str, float] = field(default_factory=dict)


def standing_of(measurement: Measurement, believed: Believed | None = None) -> Standing:
    """What the search knows of a candidate, or what it believes of its SNR and ratios in place of that."""
    quality, latency = measurement.quality, measurement.latency
    if believed is not None:
        quality = _moved(quality, believed.snr_db)
    if believed is not None and believed.ratios:
        pairs = zip(latency.items(), believed.ratios, strict=True)
        latency = {name: found.moved_to(ratio) for (name, found), ratio in pairs}
    return Standing(quality=quality, latency=latency, size_bytes=measurement.size_bytes, drops=measurement.drops)


def _moved(quality: Quality, snr_db: float) -> Quality:
    """With this SNR of the worst output, and others as far beyond it as before; as it is where none is finite."""
    if not quality.per_output or not math.isfinite(quality.worst_db):
        return quality
    by_db = snr_db - quality.worst_db
    return replace(quality, per_output={name: snr + by_db for name, snr in quality.per_output.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Objectives:
    """What members are compared in: SNR, metrics, the latency on each target, the size; always in this order.

    A metric counts by its drop against float: that puts models in the order of its values, whichever direction is
    better, and is known of every trial.

    Attributes:
        has_snr: Whether the SNR of the worst output is one.
        metrics: Each is one.
        has_size: Whether the size of the file is one.
    """

    has_snr: bool = True
    metrics: tuple[Metric, ...] = ()
    has_size: bool = False

    @property
    def goals(self) -> dict[str, Goal]:
        """By name, as the user spells them."""
        found = {SNR: Goal.MAXIMIZE} if self.has_snr else {}
        for metric in self.metrics:
            found[metric.name] = Goal.MAXIMIZE if metric.direction is Direction.HIGHER else Goal.MINIMIZE
        return found | {LATENCY: Goal.MINIMIZE} | ({SIZE: Goal.MINIMIZE} if self.has_size else {})

    @property
    def n_qualities(self) -> int:
        """How many objectives say how good the outputs are; they come first."""
        return self.has_snr + len(self.metrics)

    def losses(self, standing: Standing) -> list[float]:
        """One finite number an objective, smaller is better: negative SNR, drops, ratios, bytes.

        Raises:
            KeyError: A metric was not measured.
        """
        return [
            *([-clamped_db(standing.quality.worst_db)] if self.has_snr else []),
            *(standing.drops[metric.name] for metric in self.metrics),
            *(latency.ratio for latency in standing.latency.values()),
            *([float(standing.size_bytes)] if self.has_size else []),
        ]

    def spelled(self) -> list[str]:
        """For ``run.json``: names, and metrics with what they are."""
        metrics = {metric.name: str(metric) for metric in self.metrics}
        return [metrics.get(name, name) for name in self.goals]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is demanded of members.

    Attributes:
        min_snr_db: Least SNR of the worst output; None demands none.
        max_latency_ratio: Largest ratio on every target.
        max_size_bytes: Largest file.
        max_drops: Largest drop, by metric.
    """

    min_snr_db: float | None = None
    max_latency_ratio: float | None = None
    max_size_bytes: int | None = None
    max_drops: Mapping[str, float] = field(default_factory=dict)

    def violations(self, standing: Standing) -> dict[str, float]:
        """How far a model is beyond each bound, by what it bounds; one that is kept gives at most 0.

        A drop or a latency that was not measured is left out.
        """
        found: dict[str, float] = {}
        if self.min_snr_db is not None:
            found["snr_db"] = self.min_snr_db - standing.quality.worst_db
        if self.max_latency_ratio is not None and standing.latency:
            found["latency_ratio"] = max(x.ratio for x in standing.latency.values()) - self.max_latency_ratio
        if self.max_size_bytes is not None:
            found["size_bytes"] = float(standing.size_bytes - self.max_size_bytes)
        for name, drop in self.max_drops.items():
            if name in standing.drops:
                found[f"drop[{name}]"] = standing.drops[name] - drop
        return found

    def knows(self, drops: Mapping[str, float]) -> bool:
        """Whether every drop that is bounded was measured."""
        return self.max_drops.keys() <= drops.keys()

    def keeps(self, standing: Standing) -> bool:
        """Whether no bound that can be judged is exceeded."""
        return all(beyond <= 0 for beyond in self.violations(standing).values())


DEFAULT_OBJECTIVES = Objectives()
"""SNR and latency."""
NO_BOUNDS = Bounds()
