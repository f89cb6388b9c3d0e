"""What is demanded of a finished run, and what was measured for it."""

import math
from dataclasses import dataclass

from autoquant.domain.measurement import Evaluation, Failure, Measurement
from autoquant.study.demand import Predicted

__all__ = ["Attempt", "Demand"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model shall keep; as text what sentences call it.

    Attributes:
        min_snr_db: The lowest SNR.
        max_latency_ratio: The highest ratio on every target, None where that does not count.
    """

    min_snr_db: float
    max_latency_ratio: float | None = None

    def __str__(self) -> str:
        ratio = "" if self.max_latency_ratio is None else f" at a ratio of {self.max_latency_ratio:g}"
        return f"{self.min_snr_db:g} dB{ratio}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A prediction and what became of it."""

    predicted: Predicted
    evaluation: Evaluation

    @property
    def snr_db(self) -> float:
        """That was measured; minus infinity where it failed."""
        outcome = self.evaluation.outcome
        return outcome.quality.worst_db if isinstance(outcome, Measurement) else -math.inf

    @property
    def overestimated_db(self) -> float:
        """By how much the prediction was too high; nothing is known of one that failed."""
        return self.predicted.snr_db - self.snr_db if math.isfinite(self.snr_db) else 0.0

    @property
    def gave(self) -> str:
        """What was measured, in words."""
        outcome = self.evaluation.outcome
        if isinstance(outcome, Failure):
            return f"it failed at {outcome.stage} ({outcome.reason})"
        ratio = max(latency.ratio for latency in outcome.latency.values())
        return f"its trial gave {self.snr_db:.2f} dB and a ratio of {ratio:.3f}"
