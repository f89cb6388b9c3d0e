"""What trials take, what they took, and what is kept for the end."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoquant.api.deadline import MOST_SHARE, N_COMPARED, REFINE_SHARE, Deadline, most_finalists
from autoquant.api.evaluator import BenchFacts
from autoquant.domain.measurement import Evaluation, Measurement, State
from autoquant.measurement.bench import N_FIRST, N_TELLING
from autoquant.measurement.costs import LONG_S, TIMING_S

__all__ = ["Finish", "TrialCosts", "TrialTimes"]

_ROUNDS_S, _LEAST_ROUNDS, _MOST_ROUNDS = 0.25, 6, 16
_FEW_ROUNDS, _FEWEST_ROUNDS = 4, 3
_N_LATEST = 5


@dataclass(frozen=True, slots=True)
class TrialCosts:
    """What trials take, roughly, where candidates are about as fast as float.

    Attributes:
        facts: Of the float model.
        opening_s: Seconds that opening a candidate takes.
    """

    facts: BenchFacts
    opening_s: float

    @property
    def float_s(self) -> float:
        """Of one inference on every target."""
        return sum(self.facts.float_s.values())

    @property
    def round_s(self) -> float:
        """Of one timed inference on every target."""
        return sum(max(seconds, TIMING_S) for seconds in self.facts.float_s.values())

    @property
    def n_rounds(self) -> int:
        """Rounds of float and a candidate that take a quarter of a second, where these are neither few nor many."""
        return max(_LEAST_ROUNDS, min(_MOST_ROUNDS, round(_ROUNDS_S / (2 * self.round_s))))

    @property
    def few_rounds(self) -> int:
        """Where there is time for few trials; a round of long inferences is disturbed by little."""
        return _FEW_ROUNDS if self.round_s < LONG_S else _FEWEST_ROUNDS

    def first_seconds(self, n_rounds: int) -> float:
        """Of the first trial: it runs every sample that may be telling, some of them timed."""
        opening_s = self.facts.reading_seconds(self.opening_s)
        running_s = self.facts.n_samples * self.float_s + n_rounds * (2 * self.round_s - self.float_s)
        return opening_s + running_s + self.facts.scoring.trial_s

    def later_seconds(self, n_rounds: int) -> float:
        """Of one that runs few samples, as it is known which tell most."""
        n_run = min(N_TELLING, self.facts.n_samples)
        scoring_s = self.facts.scoring.trial_s * n_run / self.facts.n_samples
        running_s = n_run * self.float_s + 2 * n_rounds * self.round_s
        return self.opening_s + running_s + scoring_s

    @property
    def untimed_seconds(self) -> float:
        """Of one for noise alone."""
        return self.opening_s + N_FIRST * self.float_s


@dataclass(slots=True)
class TrialTimes:
    """Seconds that the trials of this run took.

    Attributes:
        every: In their order.
    """

    every: list[float] = field(default_factory=list)
    _usual: list[float] = field(default_factory=list)
    _measuring: list[float] = field(default_factory=list)
    _spent: dict[State, list[float]] = field(default_factory=lambda: {state: [] for state in State})

    def count(self, seconds: float, state: State, *, is_new: bool, is_proposed: bool, is_usual: bool) -> None:
        """Count a trial.

        Args:
            seconds: That it took.
            state: What became of it.
            is_new: Whether it measured what was not known before.
            is_proposed: Whether it was the sampler's.
            is_usual: Whether it neither failed nor came after one that did.
        """
        self.every.append(seconds)
        if is_usual:
            self._usual.append(seconds)
        if is_new and state is not State.UNTIMED:
            self._measuring.append(seconds)
        if is_new and is_proposed:
            self._spent[state].append(seconds)

    def longest(self, default: float) -> float:
        """Of the latest usual ones."""
        return max(self._usual[-_N_LATEST:], default=default)

    def shortest_new(self, default: float) -> float:
        """Of those that were new and not for noise alone."""
        return min(self._measuring, default=default)

    @property
    def saved(self) -> float | None:
        """Time that the sampler's proposals would have taken beside what they took, had none been stopped early.

        As long as those take in the median that were measured to the end; None where there is no such one. Of this run
        alone where it was resumed.
        """
        complete, stopped = self._spent[State.COMPLETE], self._spent[State.REJECTED_EARLY]
        if not complete:
            return None
        return max(0.0, len(stopped) * statistics.median(complete) - sum(stopped))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What follows the trials.

    Attributes:
        n_samples: That the last measurement runs.
        size_bytes: Of the float model: what a delivered file may have.
        is_refined: Whether finalists are refined: that takes time, and two versions of each are compared then.
        n_finalists: Most of the candidates that are measured again.
    """

    n_samples: int
    size_bytes: int
    is_refined: bool = False
    n_finalists: int = N_COMPARED

    def seconds(
        self, evaluations: Sequence[Evaluation], costs: TrialCosts, deadline: Deadline, *, has_size: bool
    ) -> float:
        """What is kept for it.

        Args:
            evaluations: So far.
            costs: Of trials.
            deadline: Of the whole search.
            has_size: Whether a candidate that is slower than float may be delivered.
        """
        outcomes = [evaluation.outcome for evaluation in evaluations]
        measured = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
        likely = [found for found in measured if found.is_complete and (has_size or _is_faster(found))]
        most = most_finalists([found.quality.error_db for found in likely], is_refined=self.is_refined)
        n_finalists = min(len(likely) + 1, self.n_finalists, most)
        each_s = statistics.median([found.expected_s(costs.facts.float_s) for found in likely] or [costs.float_s])
        finish_s = deadline.finish_seconds(
            n_finalists,
            (costs.float_s + n_finalists * each_s) / (1 + n_finalists),
            costs.facts.file_costs(self.n_samples, costs.opening_s),
            self.size_bytes,
            n_evaluations=len(outcomes),
            is_refined=self.is_refined,
            is_rough=not any(e.is_quantized and isinstance(e.outcome, Measurement) for e in evaluations),
        )
        if self.is_refined and deadline.seconds is not None:
            finish_s = min(finish_s + REFINE_SHARE * deadline.seconds, MOST_SHARE * deadline.seconds)
        return finish_s


def _is_faster(found: Measurement) -> bool:
    """Than float, on a target."""
    return min(latency.ratio for latency in found.latency.values()) < 1
