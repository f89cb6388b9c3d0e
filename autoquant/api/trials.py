"""The trials of a search: how each is evaluated, when it ends."""

import logging
import math
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import BenchFacts
from autoquant.api.first_trials import (
    Key,
    key_of,
    one_of_each_kind,
    probes,
    recipes_and_warm_start,
    with_known_kernels,
    without_ends,
)
from autoquant.api.trial_times import Finish, TrialCosts, TrialTimes
from autoquant.domain.front import DEMANDS_DB
from autoquant.domain.measurement import Evaluation, Failure, Measurement, State
from autoquant.domain.region import Assignment, Region, RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import DataError, ModelError, OutputError, SamplerError, TargetError
from autoquant.measurement.conditions import Watch
from autoquant.study.outlook import Outlook
from autoquant.study.study import Study

__all__ = ["SearchProgress", "TrialEvaluator", "Trials"]

_LOG = logging.getLogger("autoquant")
_PROBE_SHARE = 0.25
_LOOK_EVERY = 10
_LEAST_GAIN = 1e-4
"""Of the mean saving, in the next minute: less is nothing even where no member has noise yet, as nothing is allowed."""
_MOST_FLAT = 3
"""So many looks in a row at a plateau end a search."""
_FIRST_SHARE = 0.1
"""Of the budget, which the search may take longer so that one candidate is evaluated: without any all was in vain. A
preprocessed model that is likely to be much faster may so too: of few trials it may be the only one with a high SNR."""
_FEW_TRIALS = 3
_MANY_TRIALS = 40
"""Where there is time for fewer trials, they have fewer rounds."""
_TRIALS_WITH_RECIPES = 8
"""Where there is time for fewer, most recipes are left to the sampler, and the preprocessed model mostly is."""
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
        regions: The partition.
        space: Their choices.
        deadline: Of the whole search.
        on_progress: Told after every trial.
        finish: What follows them.
        is_structured: Whether the sampler wants probes, and repeats itself only where nothing else is left. Generic
            samplers do so whenever they like: their search ends early only when every assignment was evaluated.
        has_probes: Whether such a sampler gets them.
        first: What is tried right after the uniform recipes.
        ends: Regions without which the best recipe is tried before probes.
        is_float_faster: Whether the preprocessed model is likely to be much faster than the user's.
        has_prior: Whether latencies are known so far that probes need not be timed: what one region saves is less than
            what its borders cost, and says little of what it saves among others.
        least_ratios: What the latency ratios of an assignment can hardly be below, by target; empty where nothing is
            known of them.
        twins: By region, schemes that write the same of it as another one, maybe float, with the name of that one.
        watch: Of what disturbs them.
        outlook: What the sampler still expects to gain, where it knows.
        error: What ended them, where that was one.
    """

    study: Study
    evaluator: TrialEvaluator
    facts: BenchFacts
    regions: Sequence[Region]
    space: SearchSpace
    deadline: Deadline
    on_progress: Callable[[SearchProgress], None]
    finish: Finish
    is_structured: bool = True
    has_probes: bool = True
    first: Sequence[Assignment] = ()
    ends: Collection[RegionId] = ()
    is_float_faster: bool = False
    has_prior: bool = False
    least_ratios: Callable[[Assignment], Sequence[float]] = lambda _: ()
    twins: Mapping[RegionId, Mapping[str, str]] = field(default_factory=dict)
    watch: Watch = field(default_factory=Watch)
    outlook: Callable[[], Outlook | None] = lambda: None
    error: str = ""
    n_rounds: int = field(init=False)
    _known: dict[str, State] = field(default_factory=dict)
    _asked: set[Key] = field(default_factory=set)
    _untimed: set[Key] = field(default_factory=set)
    _best: dict[int, float] = field(default_factory=lambda: dict.fromkeys(DEMANDS_DB, 1.0))
    _times: TrialTimes = field(default_factory=TrialTimes)
    _n_earlier: int = 0
    _n_repeated: int = 0
    _n_failed: int = 0
    _n_flat: int = 0

    def __post_init__(self) -> None:
        self.n_rounds = self._costs.n_rounds
        for evaluation in self.study.evaluations:
            self._remember(evaluation)
        self._n_earlier = len(self.study.evaluations)

    @property
    def n_evaluations(self) -> int:
        """Different candidates that were measured, timed or not."""
        return len(self._known)

    @property
    def seconds_saved(self) -> float | None:
        """By stopping the sampler's proposals early, see ``TrialTimes``."""
        return self._times.saved

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
            self.error = str(error)
            _LOG.error("%s", error)
            return "sampler" if isinstance(error, SamplerError) else "lost"

    def _run(self, n_trials: int | None) -> str:
        n_done = 0
        n_likely = self._left / self._costs.later_seconds(self.n_rounds)
        if n_likely < _MANY_TRIALS:
            self.n_rounds = self._costs.few_rounds
        self._enqueue_first(n_trials, n_likely)
        probed = not (self.is_structured and self.has_probes)
        while n_trials is None or n_done < n_trials:
            if not probed and self.study.n_enqueued == 0:
                self._enqueue_probes(math.inf if n_trials is None else n_trials - n_done)
                probed = True
            if done := self._nothing_left():
                return done
            if self.missing_s > 0 or not self._trial():
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
    def _costs(self) -> TrialCosts:
        return TrialCosts(self.facts, self.evaluator.opening_s)

    @property
    def first_seconds(self) -> float:
        """What the first trial takes, roughly."""
        return self._costs.first_seconds(self.n_rounds)

    @property
    def missing_s(self) -> float:
        """Seconds without which another trial would not end in time; 0 or less where there is time for it."""
        return 1.2 * self._times.longest(self.first_seconds) - self._left

    @property
    def _left(self) -> float:
        """Seconds for trials: what is left without what follows them, and a little more for what must not miss."""
        has_size = self.study.objectives.has_size
        finish_s = self.finish.seconds(self.study.evaluations, self._costs, self.deadline, has_size=has_size)
        found = {evaluation.is_quantized for evaluation in self.study.evaluations}
        is_missing = True not in found or (self.is_float_faster and False not in found)
        return self.deadline.left - finish_s + (_FIRST_SHARE * self.deadline.limit_s if is_missing else 0.0)

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
        seconds, is_usual = self.deadline.elapsed - start, not (has_failed or follows_failure)
        self._times.count(seconds, outcome.state, is_new=is_new, is_proposed=is_proposed, is_usual=is_usual)
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

    def _enqueue_first(self, n_trials: int | None, n_likely: float) -> None:
        """Where time is short recipes come first, of the same kernels one; the others of these are not timed then.

        Args:
            n_trials: Most trials.
            n_likely: As many as there is time for, roughly.
        """
        is_short = n_likely < _MANY_TRIALS
        has_few = n_trials == 1 or self._left <= _FEW_TRIALS * self.first_seconds
        has_untimed = is_short and self.is_structured and n_trials is None and not has_few
        asked = {self._key(assignment) for assignment in self.first}
        untimed = {self._key(twin) for twin in with_known_kernels(self.space)} - asked if has_untimed else set()
        if n_likely < _TRIALS_WITH_RECIPES and self.is_structured and n_trials is None:
            first = one_of_each_kind(self.space, self.regions, self.first, is_float_faster=self.is_float_faster)
        else:
            first = recipes_and_warm_start(
                self.space,
                self.regions,
                self.first,
                is_short=is_short or has_few,
                is_float_faster=self.is_float_faster,
            )
        for assignment in first:
            if self.study.enqueue(assignment) and self._key(assignment) in untimed:
                self._untimed.add(self._key(assignment))

    def _enqueue_probes(self, n_left: float) -> None:
        """The best recipe without its ends, and as many probes as their share of time and trials allows."""
        for inner in without_ends(self.space, self.study.evaluations, self.regions, self.ends):
            self.study.enqueue(inner)
        each_s = self._costs.untimed_seconds if self.has_prior else self._times.shortest_new(self.first_seconds)
        room = _PROBE_SHARE * min(self._left, 1e6) / max(each_s, 1e-3)
        n_most = int(min(room, _PROBE_SHARE * n_left))
        for probe in probes(self.space, self.study.evaluations, n_earlier=self._n_earlier, n_most=n_most):
            if self.study.enqueue(probe) and self.has_prior:
                self._untimed.add(self._key(probe))

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
        seconds = self._times.every
        if self.study.n_enqueued or len(seconds) % _LOOK_EVERY:
            return False
        found = self.outlook()
        if found is None or not seconds:
            return False
        n_minute = 60 / max(statistics.median(seconds[-_LOOK_EVERY:]), 1e-3)
        self._n_flat = self._n_flat + 1 if found.next_gain * n_minute < max(found.noise, _LEAST_GAIN) else 0
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
            _LOG.info("trial %d: %s, %.2f dB, %.3f s", evaluation.trial.number, timed, snr, self._times.every[-1])
        left = None if self.deadline.seconds is None else self.deadline.left
        self.on_progress(SearchProgress("search", left, self.n_evaluations, dict(self._best)))
