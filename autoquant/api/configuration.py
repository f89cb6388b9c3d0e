"""What a user asks of a search."""

import math
import numbers
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoquant.calibration.sources import DataSource
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.arguments import check_n_regions, check_several, check_type
from autoquant.domain.metric import Metric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, Bounds, Objectives
from autoquant.domain.sampler import MAX_SEED, SamplerName
from autoquant.domain.target import MAX_THREADS, Target
from autoquant.errors import UsageError

if TYPE_CHECKING:  # Optuna is heavy, and a budget needs none
    from autoquant.study.samplers import SamplerChoice

__all__ = [
    "DEFAULT_SECONDS",
    "Budget",
    "Configuration",
    "Demands",
    "check_cores",
    "check_seed",
    "check_targets",
    "parse_accuracy",
]

DEFAULT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends, whichever comes first; one that is resumed has all of it anew.

    Attributes:
        seconds: Wall-clock time from the start to the written front.
        trials: Trials of the study.
        trial_seconds: Longest time of one trial, which then counts as failed; by default many times the usual one, and
            not much more than a quarter of the time that is left.
        trial_memory_mb: Memory of the process that measures candidates; most of what is available by default and,
            in any case, for the last measurement, which holds all finalists. On Linux alone, where it can be limited.
    """

    seconds: float | None = None
    trials: int | None = None
    trial_seconds: float | None = None
    trial_memory_mb: int | None = None

    @property
    def limit_s(self) -> float:
        """The time, infinite without one."""
        return math.inf if self.seconds is None else self.seconds

    def __post_init__(self) -> None:
        _unwrap(self)
        _check_numbers(self)
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"the time budget is {self.seconds} s, it must be positive and finite, e.g. 120 s")
        if self.trials is not None and not _is_whole(self.trials):
            raise UsageError(f"the budget is {self.trials} trials, it must be a whole number of at least 1")
        if self.trial_seconds is not None and not 0 < self.trial_seconds < math.inf:
            raise UsageError(
                f"the time of a trial is {self.trial_seconds} s, it must be positive and finite, e.g. 60 s"
            )
        if self.trial_memory_mb is not None and not 1 <= self.trial_memory_mb < math.inf:
            raise UsageError(
                f"the memory of a trial is {self.trial_memory_mb} MB, it must be at least 1 and finite, e.g. 4000"
            )
        if self.trial_memory_mb is not None and sys.platform != "linux":
            raise UsageError(
                f"the memory of a trial is {self.trial_memory_mb} MB, but only Linux can limit that of a process;"
                " leave it out"
            )


@dataclass(frozen=True, slots=True)
class Demands:
    """What every member but ``float`` keeps.

    Attributes:
        min_snr_db: Members keep at least this SNR.
        max_latency_ratio: Members take at most this share of the float model's latency.
        max_size_bytes: Files of members have at most so many bytes, external data included.
        max_drop: Members are at most this much worse than float over all evaluation samples, in every metric or by the
            name of one; 0.005 is half a percentage point of a share.
    """

    min_snr_db: float | None = None
    max_latency_ratio: float | None = None
    max_size_bytes: int | None = None
    max_drop: float | Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        _unwrap(self)
        _check_numbers(self)
        if self.min_snr_db is not None and not math.isfinite(self.min_snr_db):
            raise UsageError(f"the lowest SNR is {self.min_snr_db} dB, it must be a finite number, e.g. 40")
        if self.max_latency_ratio is not None and not 0 < self.max_latency_ratio <= 1:
            raise UsageError(f"the highest latency ratio is {self.max_latency_ratio}, it must lie in (0, 1]")
        if self.max_size_bytes is not None and not 1 <= self.max_size_bytes < math.inf:
            raise UsageError(
                f"the largest size is {self.max_size_bytes} bytes, it must be at least 1 and finite, e.g. 4000000"
            )
        drops = self.max_drop if isinstance(self.max_drop, Mapping) else {"": self.max_drop}
        for drop in drops.values():
            if drop is not None and not 0 <= drop <= 1:
                raise UsageError(f"the largest drop is {drop}, it must lie in 0 to 1, e.g. 0.005")

    def check_size(self, least_bytes: int) -> None:
        """Whether a candidate can be as small as is demanded, where the constants of each take so much at least.

        Raises:
            UsageError: None can.
        """
        if self.max_size_bytes is not None and self.max_size_bytes < least_bytes:
            raise UsageError(
                f"the largest size is {self.max_size_bytes} bytes, but weights and other constants alone take"
                f" {least_bytes} in every candidate; allow for more, or leave it out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Every argument of a search, checked.

    Attributes:
        model: The float model's file.
        calibration: What calibrates.
        evaluation: What evaluates; None splits the calibration data.
        held_out: What only the last measurement sees; None takes a part of the evaluation samples.
        labels: File with labels of the evaluation samples, None where the data bring their own.
        metrics: Beside SNR.
        objectives: What members are compared in.
        targets: Where candidates are timed, at least one.
        budget: When the search ends.
        demands: What every member but ``float`` keeps.
        out: The run's folder.
        space: Name or path of the search space.
        n_regions: Largest number of regions.
        dims: Sizes of named dynamic dimensions.
        seed: Of proposals, orders and resampling.
        resume: Whether ``out`` holds a run that goes on.
        cache: Where a folder ``autoquant`` keeps what is the same whenever it is made anew, None for the user's own.
        sampler: What proposes, as ``autoquant.study.samplers.parse_sampler`` gives it.
        warm_start: What is tried right after the uniform recipes: a run, a QDQ model or overrides.
        accuracy: What is done for accuracy; None for what the space says.
    """

    model: Path
    calibration: DataSource
    evaluation: DataSource | None
    targets: tuple[Target, ...]
    budget: Budget
    demands: Demands
    out: Path
    space: str
    n_regions: int
    dims: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    resume: bool = False
    cache: Path | None = None
    held_out: DataSource | None = None
    labels: Path | None = None
    metrics: tuple[Metric, ...] = ()
    objectives: Objectives = DEFAULT_OBJECTIVES
    sampler: "SamplerChoice" = SamplerName.STRUCTURE
    warm_start: Path | None = None
    accuracy: Accuracy | None = None

    def __post_init__(self) -> None:
        _unwrap(self)
        check_targets(self.targets)
        check_seed(self.seed)
        check_n_regions(self.n_regions)
        if self.metrics and self.batch > 1:
            raise UsageError("metrics are of single samples; leave the batch at 1, or leave them out")
        self._check_drops()

    def _check_drops(self) -> None:
        if self.demands.max_drop is None:
            return
        if not self.metrics:
            raise UsageError("a largest drop is given but no metric, add one, e.g. top1")
        for name in self.max_drops:
            if name not in self._metric_names:
                raise UsageError(
                    f"a largest drop is given for '{name}', but the metrics are: {', '.join(self._metric_names)}"
                )

    @property
    def _metric_names(self) -> list[str]:
        return [metric.name for metric in self.metrics]

    @property
    def max_drops(self) -> Mapping[str, float]:
        """The largest drop by metric; those without one are left out."""
        asked = self.demands.max_drop
        if asked is None or isinstance(asked, Mapping):
            return asked or {}
        return dict.fromkeys(self._metric_names, asked)

    @property
    def bounds(self) -> Bounds:
        """The demands, drops by metric."""
        return Bounds(
            min_snr_db=self.demands.min_snr_db,
            max_latency_ratio=self.demands.max_latency_ratio,
            max_size_bytes=self.demands.max_size_bytes,
            max_drops=self.max_drops,
        )

    @property
    def counts_size(self) -> bool:
        """Whether nothing should add to the size of files."""
        return self.objectives.has_size or self.demands.max_size_bytes is not None

    @property
    def batch(self) -> int:
        """Samples of one inference."""
        return self.targets[0].batch

    def plain(self) -> dict[str, object]:
        """For ``run.json``: plain values only."""
        return {
            "model": str(self.model),
            "calibration": _spelled(self.calibration),
            "evaluation": None if self.evaluation is None else _spelled(self.evaluation),
            "held_out": None if self.held_out is None else _spelled(self.held_out),
            "labels": None if self.labels is None else str(self.labels),
            "metrics": [str(metric) for metric in self.metrics],
            "objectives": self.objectives.spelled(),
            "targets": [_plain_target(target) for target in self.targets],
            "seconds": self.budget.seconds,
            "trials": self.budget.trials,
            "trial_seconds": self.budget.trial_seconds,
            "trial_memory_mb": self.budget.trial_memory_mb,
            "min_snr_db": self.demands.min_snr_db,
            "max_latency_ratio": self.demands.max_latency_ratio,
            "max_size_bytes": self.demands.max_size_bytes,
            "max_drop": dict(self.max_drops),
            "space": self.space,
            "accuracy": self.accuracy,
            "n_regions": self.n_regions,
            "dims": dict(self.dims),
            "seed": self.seed,
            "sampler": _spelled(self.sampler),
            "warm_start": None if self.warm_start is None else str(self.warm_start),
        }


def parse_accuracy(asked: str | None) -> Accuracy | None:
    """Check what the user asked for; None where the space decides.

    Raises:
        UsageError: There is no such level.
    """
    if asked is not None and asked not in tuple(Accuracy):
        raise UsageError(f"the accuracy level is '{asked}', choose from: {', '.join(Accuracy)}")
    return None if asked is None else Accuracy(asked)


def check_seed(seed: int) -> None:
    """Whether numpy's and Optuna's generators take it.

    Raises:
        UsageError: They don't.
    """
    check_type("the seed", seed, numbers.Integral, "a whole number")
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"the seed is {seed}, it must lie in 0 to {MAX_SEED}")


def check_targets(targets: Sequence[Target]) -> None:
    """Whether they can be measured together on this machine.

    Raises:
        UsageError: There is none, two are the same, they differ in what a run has once, or want cores that aren't here.
    """
    if not targets:
        raise UsageError("there is no target, give at least one, e.g. Target('cpu')")
    check_several("targets", targets, Target, "targets, e.g. [Target('cpu')]")
    if len({target.name for target in targets}) < len(targets):
        raise UsageError("two targets have the same name; they must differ in execution provider, threads or streams")
    for name in ("batch", "affinity"):
        if len({getattr(target, name) for target in targets}) > 1:
            raise UsageError(f"the targets differ in {name}; search each in a run of its own")
    for target in targets:
        _check_counts(target)
    check_cores(targets[0].affinity, "affinity")


def _check_counts(target: Target) -> None:
    for name in ("threads", "streams"):
        count = getattr(target, name)
        if count > MAX_THREADS:
            raise UsageError(f"target {target.name} has {count} {name}, at most {MAX_THREADS} can be used")


def check_cores(cores: Sequence[int], where: str) -> None:
    """Whether a process may be bound to them; to none it is not bound.

    Args:
        cores: By number.
        where: Begins the message.

    Raises:
        UsageError: This system cannot bind processes, or this one may not use them.
    """
    if not cores:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError(f"{where}: this system cannot bind a process to cores; leave it out")
    here = os.sched_getaffinity(0)
    if not set(cores) <= here:
        known = ", ".join(map(str, sorted(here)))
        raise UsageError(f"{where}: this process may use the cores {known}; choose among them")


def _plain_target(target: Target) -> dict[str, object]:
    found: dict[str, object] = {"ep": target.ep, "threads": target.threads, "options": dict(target.options)}
    return {**found, "batch": target.batch, "streams": target.streams, "affinity": list(target.affinity)}


def _unwrap(arguments: "Budget | Demands | Configuration") -> None:
    """Numbers of numpy and fractions become Python's own, also those in mappings: not everything takes them."""
    for one in fields(arguments):
        value = getattr(arguments, one.name)
        if isinstance(value, Mapping):
            object.__setattr__(arguments, one.name, {key: _plain(each) for key, each in value.items()})
        else:
            object.__setattr__(arguments, one.name, _plain(value))


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    return float(value) if isinstance(value, numbers.Real) and not isinstance(value, int | float) else value


def _is_whole(number: float) -> bool:
    return 1 <= number < math.inf and number == int(number)


def _check_numbers(arguments: "Budget | Demands") -> None:
    for one in fields(arguments):
        value = getattr(arguments, one.name)
        is_by_name = one.name == "max_drop" and isinstance(value, Mapping)
        for each in value.values() if is_by_name else (value,):
            if each is not None or is_by_name:
                check_type(f"{type(arguments).__name__}.{one.name}", each, numbers.Real, "a number")


def _spelled(source: "DataSource | SamplerChoice") -> str:
    return str(source) if isinstance(source, str | Path) else f"<{type(source).__name__}>"
