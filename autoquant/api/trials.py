"""The trials of a search: how each is evaluated, when it ends."""

import logging
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoquant.api.deadline import MOST_SHARE, N_COMPARED, REFINE_SHARE, Deadline, most_finalists
from autoquant.api.evaluator import BenchFacts
from autoquant.api.first_trials import Key, key_of, probes, recipes_and_warm_start, with_known_kernels
from autoquant.domain.measurement import Evaluation, Failure, Measurement, State
from autoquant.domain.region import Assignment, Region, RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import DataError, ModelError, OutputError, SamplerError, TargetError
from autoquant.measurement.bench import N_FIRST, N_TELLING
from autoquant.measurement.conditions import Watch
from autoquant.measurement.costs import TIMING_S
from autoquant.study.outlook import Outlook
from autoquant.study.study import Study

__all__ = ["SearchProgress", "TrialEvaluator", "Trials"]

_LOG = logging.getLogger("autoquant")
_PROBE_SHARE = 0.25
_LOOK_EVERY = 10
_MOST_FLAT = 3
"""So many looks in a row at a plateau end a search."""
_FEW_TRIALS = 3
_MANY_TRIALS, _FEW_ROUNDS = 40, 4
"""Where there is time for fewer trials, they have fewer rounds."""
_MOST_REPEATED = 100
"""So many trials in a row that run graphs known already, or fail, end a search by the structure sampler."""


class TrialEvaluator(Protocol):
    """What answers trials; ``autoquant.api.isolated`` has the one that measures."""

    @property
    def opening_s(self) -> float:
        """Seconds that opening a candidate takes."""

    def evaluate(
        self, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float], *, left_s: float
    ) -> Measurement | Failure | None:
        """The outcome, of its quality alone where there are no rounds; None where there was no time for one.

        Raises:
            DataError, ModelError, TargetError: It was lost and cannot be begun again.
        """


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands.

    Attributes:
        phase: What it is doing.
        seconds_left: Of the budget; None without one.
        n_evaluations: Different candidates measured so far.
        best: Lowest ratio so far at 30, 40 and 50 dB.
    """

    phase: str
    seconds_left: float | None
    n_evaluations: int
    best: dict[int, float]


@dataclass(slots=True)
class Trials:
    """Runs trials until the time, the trials or the user say stop.

    Attributes:
        study: What is asked and told.
        evaluator: Builds and measures them.
        facts: Of the float model.
        n_final_samples: That the last measurement runs.
        regions: The partition.
        space: Their choices.
        deadline: Of the whole search.
        on_progress: Told after every trial.
        size_bytes: Of the float model: what a delivered file may have.
        is_structured: Whether the sampler wants probes, and repeats itself only where nothing else is left. Generic
            samplers do so whenever they like: their search ends early only when every assignment was evaluated.
        has_probes: Whether such a sampler gets them.
        first: What is tried right after the uniform recipes.
        is_refined: Whether finalists are refined: that takes time, and two versions of each are compared then.
        has_prior: Whether latencies are known so far that probes need not be timed: what one region saves is less than
            what its borders cost, and says little of what it saves among others.
        n_finalists: Most of the candidates that are measured again.
        least_ratios: What the latency ratios of an assignment can hardly be below, by target; empty where nothing is
            known of them.
        twins: By region, schemes that quantize it as another one does, with the name of that one.
        watch: Of what disturbs them.
        outlook: What the sampler still expects to gain, where it knows.
    """

    study: Study
    evaluator: TrialEvaluator
    facts: BenchFacts
    n_final_samples: int
    regions: Sequence[Region]
    space: SearchSpace
    deadline: Deadline
    on_progress: Callable[[SearchProgress], None]
    size_bytes: int
    is_structured: bool = True
    has_probes: bool = True
    first: Sequence[Assignment] = ()
    is_refined: bool = False
    has_prior: bool = False
    n_finalists: int = N_COMPARED
    least_ratios: Callable[[Assignment], Sequence[float]] = lambda _: ()
    twins: Mapping[RegionId, Mapping[str, str]] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    outlook: Callable[[], Outlook | None] = lambda: None
    n_rounds: int = field(init=False)
    _known: dict[str, State] = field(default_factory=dict)
    _asked: set[Key] = field(default_factory=set)
    _untimed: set[Key] = field(default_factory=set)
    _best: dict[int, float] = field(default_factory=lambda: {30: 1.0, 40: 1.0, 50: 1.0})
    _seconds: list[float] = field(default_factory=list)
    _usual: list[float] = field(default_factory=list)
    _measuring: list[float] = field(default_factory=list)
    _spent: dict[State, list[float]] = field(default_factory=lambda: {state: [] for state in State})
    _n_earlier: int = 0
    _n_repeated: int = 0
    _n_failed: int = 0
    _n_flat: int = 0

    def __post_init__(self) -> None:
        self.n_rounds = max(6, min(16, round(0.25 / (2 * self._round_s))))
        for evaluation in self.study.evaluations:
            self._remember(evaluation)
        self._n_earlier = len(self.study.evaluations)

    @property
    def n_evaluations(self) -> int:
        """Different candidates that were measured, timed or not."""
        return len(self._known)

    @property
    def seconds_saved(self) -> float | None:
        """Time that the sampler's proposals would have taken beside what they took, had none been stopped early.

        As long as those take in the median that were measured to the end; None where there is no such one. Of this run
        alone where it was resumed.
        """
        complete, stopped = self._spent[State.COMPLETE], self._spent[State.REJECTED_EARLY]
        if not complete:
            return None
        return max(0.0, len(stopped) * statistics.median(complete) - sum(stopped))

    def run(self, n_trials: int | None) -> str:
        """Evaluate until a budget ends; the uniform recipes come first, then a warm start, then the sampler.

        The structure sampler has one-region probes between them. A generic one has none: they are a way to learn a
        model that it does not have, while recipes are what anybody would try.

        Returns:
            Why it ended: ``"time"``, ``"trials"``, ``"exhausted"``, ``"stopped"``, ``"failing"``, ``"plateau"``,
            ``"interrupted"``, ``"lost"`` or ``"sampler"``.

        Raises:
            AutoquantError: The process that measures was lost and cannot be begun again, or the sampler cannot
                go on, before anything was measured.
        """
        try:
            return self._run(n_trials) if self.regions else self._run_float()
        except KeyboardInterrupt:
            return "interrupted"
        except (DataError, ModelError, OutputError, SamplerError, TargetError) as error:
            if not any(e.is_quantized and isinstance(e.outcome, Measurement) for e in self.study.evaluations):
                raise
            _LOG.error("%s", error)
            return "sampler" if isinstance(error, SamplerError) else "lost"

    def _run(self, n_trials: int | None) -> str:
        n_done, is_short = 0, not self._has_many
        if is_short:
            self.n_rounds = _FEW_ROUNDS
        self._enqueue_first(n_trials, is_short=is_short)
        probed = not (self.is_structured and self.has_probes)
        while n_trials is None or n_done < n_trials:
            if not probed and self.study.n_enqueued == 0:
                self._enqueue_probes(math.inf if n_trials is None else n_trials - n_done)
                probed = True
            if done := self._nothing_left():
                return done
            if self._left < 1.2 * max(self._usual[-5:], default=self.first_seconds) or not self._trial():
                return "time"
            n_done += 1
        return "trials"

    def _run_float(self) -> str:
        """One trial of the preprocessed model: folding alone may pay."""
        if not self.study.evaluations:
            self._trial({})
        return "exhausted"

    def measure(self, assignment: Assignment) -> Evaluation | None:
        """One trial of this assignment; None where there was no time for it."""
        return self.study.evaluations[-1] if self._trial(assignment) else None

    @property
    def _left(self) -> float:
        """Seconds for trials: what is left without the last measurement."""
        outcomes = [e.outcome for e in self.study.evaluations]
        likely = [m for m in outcomes if isinstance(m, Measurement) and m.is_complete and self._may_be_finalist(m)]
        most = most_finalists([found.quality.error_db for found in likely], is_refined=self.is_refined)
        n_finalists, float_s = min(len(likely) + 1, self.n_finalists, most), sum(self.facts.float_s.values())
        each_s = statistics.median([found.latency_s for found in likely] or [float_s])
        finish_s = self.deadline.finish_seconds(
            n_finalists,
            (float_s + n_finalists * each_s) / (1 + n_finalists),
            self.facts.file_costs(self.n_final_samples, self.evaluator.opening_s),
            self.size_bytes,
            n_evaluations=len(outcomes),
            is_refined=self.is_refined,
            is_rough=not any(e.is_quantized and isinstance(e.outcome, Measurement) for e in self.study.evaluations),
        )
        if self.is_refined and self.deadline.seconds is not None:
            finish_s = min(finish_s + REFINE_SHARE * self.deadline.seconds, MOST_SHARE * self.deadline.seconds)
        return self.deadline.left - finish_s

    def _may_be_finalist(self, found: Measurement) -> bool:
        return self.study.objectives.has_size or min(latency.ratio for latency in found.latency.values()) < 1

    @property
    def first_seconds(self) -> float:
        """What the first trial takes, roughly: it runs every sample that may be telling, some of them timed."""
        opening_s = self.facts.reading_seconds(self.evaluator.opening_s)
        float_s = sum(self.facts.float_s.values())
        running_s = self.facts.n_samples * float_s + self.n_rounds * (2 * self._round_s - float_s)
        return opening_s + running_s + self.facts.scoring.trial_s

    @property
    def _round_s(self) -> float:
        """Of the float model or a candidate about as fast, on every target."""
        return sum(max(seconds, TIMING_S) for seconds in self.facts.float_s.values())

    @property
    def _has_many(self) -> bool:
        """Whether there is time for many trials, which run few samples once it is known which tell most."""
        n_run = min(N_TELLING, self.facts.n_samples)
        scoring_s = self.facts.scoring.trial_s * n_run / self.facts.n_samples
        running_s = n_run * sum(self.facts.float_s.values()) + 2 * self.n_rounds * self._round_s
        return self._left >= _MANY_TRIALS * (self.evaluator.opening_s + running_s + scoring_s)

    def _trial(self, assignment: Assignment | None = None) -> bool:
        """Ask, evaluate, tell; False where the time was over before there was an outcome."""
        start, is_proposed = self.deadline.elapsed, assignment is None and self.study.n_enqueued == 0
        trial = self.study.ask() if assignment is None else self.study.ask_for(assignment)
        key = self._key(trial.assignment)
        n_rounds = 0 if key in self._untimed else self.n_rounds
        self._untimed.discard(key)
        least = self.least_ratios(trial.assignment) if assignment is None else ()
        by_target = dict(zip(self.facts.float_s, least, strict=False))
        outcome = self.evaluator.evaluate(trial.assignment, n_rounds, by_target, left_s=self._left)
        if outcome is None:
            return False
        evaluation = Evaluation(trial=trial, outcome=outcome)
        try:
            self.study.tell(evaluation)
        except SamplerError:  # it is kept all the same
            self._remember(evaluation)
            raise
        is_new = self._remember(evaluation)
        has_failed, follows_failure = isinstance(outcome, Failure), self._n_failed > 0
        self._n_failed = 0 if is_new else self._n_failed + has_failed
        self._n_repeated = 0 if is_new else self._n_repeated + (not has_failed)
        self._seconds.append(self.deadline.elapsed - start)
        if not (has_failed or follows_failure):
            self._usual.append(self._seconds[-1])
        if is_new and outcome.state is not State.UNTIMED:
            self._measuring.append(self._seconds[-1])
        if is_new and is_proposed:
            self._spent[outcome.state].append(self._seconds[-1])
        self._note(evaluation)
        self.watch.look()
        return True

    def _remember(self, evaluation: Evaluation) -> bool:
        """Whether it measured what was not known before."""
        outcome = evaluation.outcome
        if outcome.state is not State.UNTIMED:
            self._asked.add(self._key(self._distinct(evaluation.trial.assignment)))
        if isinstance(outcome, Failure) or self._known.get(outcome.digest) is outcome.state:
            return False
        self._known[outcome.digest] = outcome.state
        if outcome.is_complete:
            ratio = max(latency.ratio for latency in outcome.latency.values())
            met = (demand for demand in self._best if outcome.quality.worst_db >= demand)
            self._best.update({demand: min(self._best[demand], ratio) for demand in met})
        return True

    def _key(self, assignment: Assignment) -> Key:
        return key_of(assignment, self.space)

    def _distinct(self, assignment: Assignment) -> Assignment:
        """With one name for all schemes that quantize a region alike."""
        return {region: self.twins.get(region, {}).get(name, name) for region, name in assignment.items()}

    def _enqueue_first(self, n_trials: int | None, *, is_short: bool) -> None:
        """Where there is time for few trials a recipe comes first; those with the kernels of another are not timed."""
        has_few = n_trials == 1 or self._left <= _FEW_TRIALS * self.first_seconds
        has_untimed = is_short and self.is_structured and n_trials is None and not has_few
        asked = {self._key(assignment) for assignment in self.first}
        untimed = {self._key(twin) for twin in with_known_kernels(self.space)} - asked if has_untimed else set()
        for assignment in recipes_and_warm_start(self.space, self.first, is_recipe_first=has_few):
            if self.study.enqueue(assignment) and self._key(assignment) in untimed:
                self._untimed.add(self._key(assignment))

    def _enqueue_probes(self, n_left: float) -> None:
        """As many as their share of time and trials allows."""
        room = _PROBE_SHARE * min(self._left, 1e6) / max(self._probe_seconds, 1e-3)
        n_most = int(min(room, _PROBE_SHARE * n_left))
        for probe in probes(self.space, self.study.evaluations, n_earlier=self._n_earlier, n_most=n_most):
            if self.study.enqueue(probe) and self.has_prior:
                self._untimed.add(self._key(probe))

    @property
    def _probe_seconds(self) -> float:
        if self.has_prior:
            return self.evaluator.opening_s + N_FIRST * sum(self.facts.float_s.values())
        return min(self._measuring, default=self.first_seconds)

    def _nothing_left(self) -> str | None:
        """Why further trials would find nothing."""
        if self.is_structured and self._n_repeated + self._n_failed >= _MOST_REPEATED:
            return "failing" if self._n_failed > self._n_repeated else "exhausted"
        if self._is_exhausted():
            return "exhausted"
        if self.study.has_stopped:
            return "stopped"
        return "plateau" if self._is_plateau() else None

    def _is_plateau(self) -> bool:
        """Whether what the next minute is expected to gain is less than noise lets show, and was for a while."""
        if self.study.n_enqueued or len(self._seconds) % _LOOK_EVERY:
            return False
        found = self.outlook()
        if found is None or not self._seconds:
            return False
        n_minute = 60 / max(statistics.median(self._seconds[-_LOOK_EVERY:]), 1e-3)
        self._n_flat = self._n_flat + 1 if found.next_gain * n_minute < found.noise else 0
        return self._n_flat >= _MOST_FLAT

    def _is_exhausted(self) -> bool:
        n_assignments = 1
        for region, names in self.space.choices.items():
            n_assignments *= len(names) - len(self.twins.get(region, {}))
            if n_assignments > len(self._asked):
                return False
        return self.study.n_enqueued == 0

    def _note(self, evaluation: Evaluation) -> None:
        outcome = evaluation.outcome
        if isinstance(outcome, Failure):
            _LOG.warning("trial %d failed at %s: %s", evaluation.trial.number, outcome.stage, outcome.reason)
        else:
            ratio = max((latency.ratio for latency in outcome.latency.values()), default=None)
            snr = outcome.quality.worst_db
            timed = "not timed" if ratio is None else f"ratio {ratio:.3f}"
            _LOG.info("trial %d: %s, %.2f dB, %.3f s", evaluation.trial.number, timed, snr, self._seconds[-1])
        left = None if self.deadline.seconds is None else self.deadline.left
        self.on_progress(SearchProgress("search", left, self.n_evaluations, dict(self._best)))
