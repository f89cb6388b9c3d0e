"""What a user asks of a search."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.calibration.sources import DataSource
from autoquant.domain.target import Target
from autoquant.errors import UsageError

__all__ = ["DEFAULT_SECONDS", "MAX_SEED", "MAX_THREADS", "Budget", "Configuration", "Demands", "seconds_of"]

DEFAULT_SECONDS = 120.0
MAX_SEED = 2**32 - 1
MAX_THREADS = 1024
_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends, whichever comes first.

    Attributes:
        seconds: Wall-clock time from the start to the written front.
        trials: Trials of the study.
        trial_seconds: Longest time of one trial, which then counts as failed; many times the usual one by default.
        trial_memory_mb: Memory of the process that measures; most of what is available by default.
    """

    seconds: float | None = None
    trials: int | None = None
    trial_seconds: float | None = None
    trial_memory_mb: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"the time budget is {self.seconds} s, it must be positive and finite, e.g. 120 s")
        if self.trials is not None and self.trials < 1:
            raise UsageError(f"the budget is {self.trials} trials, it must be at least 1")
        if self.trial_seconds is not None and not 0 < self.trial_seconds < math.inf:
            raise UsageError(
                f"the time of a trial is {self.trial_seconds} s, it must be positive and finite, e.g. 60 s"
            )
        if self.trial_memory_mb is not None and self.trial_memory_mb < 1:
            raise UsageError(f"the memory of a trial is {self.trial_memory_mb} MB, it must be at least 1, e.g. 4000")


@dataclass(frozen=True, slots=True)
class Demands:
    """Bounds of what is of interest.

    Attributes:
        min_snr_db: Members keep at least this SNR.
        max_latency_ratio: Members take at most this share of the float model's latency.
    """

    min_snr_db: float | None = None
    max_latency_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.min_snr_db is not None and not math.isfinite(self.min_snr_db):
            raise UsageError(f"the lowest SNR is {self.min_snr_db} dB, it must be a finite number, e.g. 40")
        if self.max_latency_ratio is not None and not 0 < self.max_latency_ratio <= 1:
            raise UsageError(f"the highest latency ratio is {self.max_latency_ratio}, it must lie in (0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Every argument of a search, checked.

    Attributes:
        model: The float model's file.
        calibration: What calibrates.
        evaluation: What evaluates; None splits the calibration data.
        targets: Where candidates are timed, at least one.
        budget: When the search ends.
        demands: What is of interest.
        out: The run's folder.
        space: Name or path of the search space.
        n_regions: Largest number of regions.
        dims: Sizes of named dynamic dimensions.
        seed: Of every random choice.
        resume: Whether ``out`` holds a run that goes on.
        cache: Folder of calibration results, None for the user's own.
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

    def __post_init__(self) -> None:
        if not self.targets:
            raise UsageError("there is no target, give at least one, e.g. Target('cpu')")
        if len({target.name for target in self.targets}) < len(self.targets):
            raise UsageError("two targets have the same name; they must differ in execution provider or threads")
        for target in self.targets:
            if target.threads > MAX_THREADS:
                raise UsageError(
                    f"target {target.name} has {target.threads} threads, at most {MAX_THREADS} can be used"
                )
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"the seed is {self.seed}, it must lie in 0 to {MAX_SEED}")
        if self.n_regions < 1:
            raise UsageError(f"the number of regions is {self.n_regions}, it must be at least 1")

    def plain(self) -> dict[str, object]:
        """For ``run.json``: plain values only."""
        return {
            "model": str(self.model),
            "calibration": _spelled(self.calibration),
            "evaluation": None if self.evaluation is None else _spelled(self.evaluation),
            "targets": [{"ep": t.ep, "threads": t.threads, "options": dict(t.options)} for t in self.targets],
            "seconds": self.budget.seconds,
            "trials": self.budget.trials,
            "trial_seconds": self.budget.trial_seconds,
            "trial_memory_mb": self.budget.trial_memory_mb,
            "min_snr_db": self.demands.min_snr_db,
            "max_latency_ratio": self.demands.max_latency_ratio,
            "space": self.space,
            "n_regions": self.n_regions,
            "dims": dict(self.dims),
            "seed": self.seed,
        }


def seconds_of(text: str, where: str) -> float:
    """Read a time such as ``120s``, ``5m`` or ``1h``.

    Args:
        text: What the user wrote.
        where: Begins the message, e.g. ``"--time"``.

    Raises:
        UsageError: It is no time, or none at all.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text.strip())
    if not match:
        raise UsageError(f"{where} {text}: write a number with a unit, e.g. 120s, 5m or 1h")
    seconds = float(match[1]) * _UNITS[match[2] or "s"]
    if seconds == 0:
        raise UsageError(f"{where} {text}: the time budget must be positive, e.g. 120s")
    return seconds


def _spelled(source: DataSource) -> str:
    return str(source) if isinstance(source, str | Path) else f"<{type(source).__name__}>"
