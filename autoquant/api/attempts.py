"""What is demanded of a finished run, and what was measured for it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from autoquant.domain.front import FLOAT_ID, Front
from autoquant.domain.measurement import Evaluation, Failure, Latency, Measurement
from autoquant.measurement.differences import UNSEEN_SPREAD
from autoquant.measurement.intervals import LEVEL, PRIOR_SESSIONS
from autoquant.study.demand import Predicted

__all__ = ["Attempt", "Demand", "process_errors"]


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


def process_errors(front: Front | None, targets: Sequence[str]) -> list[float]:
    """Standard deviations of a ratio's logarithm between processes, by target, as the members of a front say them.

    Where there are none, or none was measured in several processes, an idle machine's is assumed. Intervals of members
    are Student's, of a further process and with a variance that members share: what they say is undone with as many
    degrees of freedom as they have at most.
    """
    members = () if front is None else [member for member in front.members if member.id != FLOAT_ID]
    return [_process_error([m.latency[name] for m in members if name in m.latency]) for name in targets]


def _process_error(known: Sequence[Latency]) -> float:
    several = [each for each in known if each.n_sessions > 1]
    squares = [_spread(each, len(several)) ** 2 for each in several]
    return math.sqrt(sum(squares) / len(squares)) if squares else UNSEEN_SPREAD


def _spread(latency: Latency, n_members: int) -> float:
    n = latency.n_sessions
    freedom = n - 1 + min(PRIOR_SESSIONS, (n_members - 1) * (n - 1))
    half_width = math.log(latency.ratio_high / latency.ratio_low) / 2
    return float(half_width / (stdtrit(freedom, (1 + LEVEL) / 2) * math.sqrt(1 + 1 / n)))
