"""What is measured of a candidate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from autoquant.domain.region import Assignment
from autoquant.domain.scheme import FLOAT

__all__ = [
    "Believed",
    "Evaluation",
    "Failure",
    "Footprint",
    "Latency",
    "Measurement",
    "Quality",
    "SnrInterval",
    "State",
    "Trial",
]

_DIGITS = 12
"""Of the share of elements that differ: one of a hundred are 20 dB, and not what is left of 1 - 0.99."""


class State(StrEnum):
    """What became of a trial.

    One that was rejected early has no latency where its quality alone was enough; one that was never to be timed, a
    probe of its quality, is untimed.
    """

    COMPLETE = "complete"
    REJECTED_EARLY = "rejected-early"
    UNTIMED = "untimed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latency on one target, against the float model, from interleaved rounds.

    Attributes:
        median_ms: Median of the candidate's own latencies; of several processes the geometric mean of theirs.
        low_ms: Lower end of the 95 % interval of ``median_ms``.
        high_ms: Upper end.
        ratio: Median of the paired ratios candidate / float; of several processes the geometric mean of theirs.
        ratio_low: Lower end of the 95 % interval of ``ratio``.
        ratio_high: Upper end.
        n_rounds: Paired rounds behind the numbers.
        n_sessions: Fresh processes that they were run in. From two on, the intervals say where the median of a further
            one lies with 95 % (Student's t); from one process what a repetition in it would give (bootstrap).
        p90_ms: So many of the candidate's single inferences took no longer; None where they were not kept.
        p99_ms: The same for 99 %.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    n_rounds: int
    n_sessions: int = 1
    p90_ms: float | None = None
    p99_ms: float | None = None

    def moved_to(self, ratio: float) -> "Latency":
        """With another ratio, and an interval of the same width around it."""
        by = ratio - self.ratio
        return replace(self, ratio=ratio, ratio_low=self.ratio_low + by, ratio_high=self.ratio_high + by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a session costs on one target before it runs.

    Attributes:
        opening_ms: What opening the file takes; the median over fresh processes.
        memory_mb: Peak of resident memory that opening and the first inference add; None where the system doesn't tell.
    """

    opening_ms: float
    memory_mb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Output quality against the float model.

    Attributes:
        per_output: SNR in dB of each output of numbers, pooled over the samples; ``inf`` where equal.
        agreement: Share of equal elements of each output of integers, booleans or strings that is no rounded float.
        n_samples: Evaluation samples behind the numbers.
        error_db: Standard deviation of the worst output's SNR as an estimate for other samples, in dB, beside what all
            candidates have in common; 0 where it is unknown.
    """

    per_output: Mapping[str, float]
    agreement: Mapping[str, float]
    n_samples: int
    error_db: float = 0.0

    @property
    def worst_db(self) -> float:
        """SNR of the worst float output.

        Where no float output has one, the share of elements that differ in the worst other one counts, in dB: 10 % are
        10 dB, none is ``inf``.
        """
        if self.per_output or not self.agreement:
            return min(self.per_output.values(), default=math.inf)
        differing = round(1 - min(self.agreement.values()), _DIGITS)
        return math.inf if differing <= 0 else -10 * math.log10(differing)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnrInterval:
    """SNR over some samples and how far to trust it.

    Attributes:
        worst_db: Of the worst output, pooled over the samples; as ``Quality.worst_db``.
        n_samples: Behind the number.
        low_db: Lower end of the 95 % interval over samples; None where it is unknown.
        high_db: Upper end.
    """

    worst_db: float
    n_samples: int
    low_db: float | None = None
    high_db: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """What is believed of a candidate that was measured, without the luck of its measurement.

    Attributes:
        snr_db: SNR of the worst output.
        ratios: Latency ratio on each target, in their order; empty where it was not timed.
    """

    snr_db: float
    ratios: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Quality and latency of one candidate.

    Attributes:
        quality: On the target's own session.
        latency: By target name; empty where it was not timed.
        digest: Of the graph that onnxruntime runs; equal digests are equal candidates.
        effective: Name of the scheme that each region really runs.
        state: Whether it was measured to the end; a clear loser is stopped early.
        size_bytes: Of the serialized candidate; the delivered file has metadata too, a few kB.
        drops: By metric, how much worse than float the candidate is over all search samples if it is as good on those
            that it didn't run. Empty where no metric is an objective and no drop is demanded.
    """

    quality: Quality
    latency: Mapping[str, Latency]
    digest: str
    effective: Assignment
    state: State
    size_bytes: int
    drops: Mapping[str, float] = field(default_factory=dict)

    def expected_s(self, float_s: Mapping[str, float]) -> float:
        """Seconds of an inference on all targets, where those of the float model take ``float_s``, by target name."""
        return sum(found.ratio * float_s[name] for name, found in self.latency.items())

    @property
    def is_complete(self) -> bool:
        """Whether it was measured to the end, latency included."""
        return self.state is State.COMPLETE

    @property
    def is_comparable(self) -> bool:
        """Whether something says how good its outputs are: an SNR, or drops."""
        return self.quality.worst_db > -math.inf or bool(self.drops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial has no measurement.

    Attributes:
        stage: Where it failed: ``build``, ``open``, ``run``, ``metric`` or ``process``, the one that measures.
        reason: What went wrong.
    """

    stage: str
    reason: str

    @property
    def state(self) -> State:
        """Failed."""
        return State.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What was asked: the number in the Optuna study and the assignment."""

    number: int
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A trial and its outcome."""

    trial: Trial
    outcome: Measurement | Failure

    @property
    def is_quantized(self) -> bool:
        """Whether anything was to be quantized."""
        return bool(self.quantized)

    @property
    def quantized(self) -> Assignment:
        """What was to be quantized, by region."""
        return {region: scheme for region, scheme in self.trial.assignment.items() if scheme != FLOAT}
