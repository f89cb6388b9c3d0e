"""Evaluates assignments: what a worker process does for a search."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from autoquant.api import steps
from autoquant.api.ingredients import Ingredients
from autoquant.api.profiling import profiled_prior
from autoquant.api.steps.probing import Probed
from autoquant.domain.accuracy import Form
from autoquant.domain.measurement import Failure, Measurement, State
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Objectives, standing_of
from autoquant.domain.prior import Profiled
from autoquant.domain.reason import one_line
from autoquant.domain.region import Assignment
from autoquant.domain.rewrite import Rewrites
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.target import Target
from autoquant.errors import MetricError, ProfileError
from autoquant.measurement.bench import Bench, Progress
from autoquant.measurement.costs import FileCosts
from autoquant.measurement.latency import Timings
from autoquant.metrics.evaluator import MetricEvaluator, MetricMeter
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins
from autoquant.space.resolve import resolve

__all__ = ["NO_RATIOS", "N_FORM_SAMPLES", "BenchFacts", "Evaluated", "Evaluator", "ScoringTimes"]

_LOG = logging.getLogger("autoquant")
NO_RATIOS: Mapping[str, float] = MappingProxyType({})
"""Nothing is known of a candidate's latency."""
N_FORM_SAMPLES = 8
"""On which forms of the float model are compared."""
_SNR_MARGIN_DB, _SNR_ERRORS = 1.5, 2.0
"""A candidate is behind another in SNR by this much, or so many standard deviations of the estimate."""
_RATIO_MARGIN = 0.04
"""A candidate whose ratio comes from two rounds is dropped only when it is beaten by this much; more rounds, less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTimes:
    """What metrics take.

    Attributes:
        trial_s: Seconds in a trial.
        file_s: Seconds that a file takes in the last measurement, with intervals, on one target.
    """

    trial_s: float = 0.0
    file_s: float = 0.0


NO_SCORING = ScoringTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFacts:
    """What is known of the float model once it was run.

    Attributes:
        float_s: Seconds of one inference, by target name.
        n_samples: Evaluation samples that there was time for.
        opening_s: Seconds that opening its file takes on all targets.
        scoring: What metrics take.
        silent: Outputs that are 0 on all samples, held-out ones too, so that nothing judges them.
        signal: Mean of each output over them, as ``Signal.mean``.
        dominated: Outputs of whose power one sample holds most, as ``Signal.dominated``.
        numberless: Outputs that hold NaN or infinity somewhere, as ``Signal.numberless``.
        numbers: Outputs of integers that have an SNR, as ``Signal.numbers``.
    """

    float_s: Mapping[str, float]
    n_samples: int
    opening_s: float
    scoring: ScoringTimes = NO_SCORING
    silent: Sequence[str] = ()
    signal: Sequence[float] = ()
    dominated: Mapping[str, float] = field(default_factory=dict)
    numberless: Mapping[str, float] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()

    def reading_seconds(self, candidate_s: float) -> float:
        """What opening a candidate's file may take, where opening it from memory takes ``candidate_s``."""
        return max(candidate_s, self.opening_s)

    def file_costs(self, n_samples: int, candidate_opening_s: float) -> FileCosts:
        """What each file takes in the last measurement, whatever its latency."""
        return FileCosts(
            n_samples=n_samples,
            opening_s=self.reading_seconds(candidate_opening_s),
            scoring_s=len(self.float_s) * self.scoring.file_s,
            n_targets=len(self.float_s),
            is_beside=[*self.float_s] == [Target().name],
        )


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An outcome, and the seconds that opening the candidate took."""

    outcome: Measurement | Failure
    opening_s: float


@dataclass(slots=True)
class Evaluator:
    """Builds and measures; a graph that was measured once is known.

    Attributes:
        bench: The float model.
        float_bytes: Size of its file.
        objectives: What candidates are compared in.
        metrics: By which candidates are scored on the samples that they run; None for no scores.
        bounds: What breaks them beats no candidate.
        scoring: What metrics take.
    """

    bench: Bench
    float_bytes: int
    objectives: Objectives = DEFAULT_OBJECTIVES
    metrics: MetricEvaluator | None = None
    bounds: Bounds = NO_BOUNDS
    scoring: ScoringTimes = NO_SCORING
    _builder: Builder | None = None
    _ingredients: Ingredients | None = None
    _forms: dict[Form, Ingredients] = field(default_factory=dict)
    _built: dict[str, Measurement | Failure] = field(default_factory=dict)
    _known: dict[str, Measurement] = field(default_factory=dict)

    def facts(self) -> BenchFacts:
        """Of the float model, timed anew: it may have been opened beside other work."""
        self.bench.time_float()
        self.bench.time_opening()
        return BenchFacts(
            float_s=self.bench.float_s,
            n_samples=len(self.bench.feeds),
            opening_s=self.bench.float_opening_s,
            scoring=self.scoring,
            silent=self.bench.signal.silent,
            signal=self.bench.signal.mean,
            dominated=self.bench.signal.dominated,
            numberless=self.bench.signal.numberless,
            numbers=self.bench.signal.numbers,
        )

    def load(self, ingredients: Ingredients, rewrites: Rewrites, known: Sequence[Measurement]) -> None:
        """Take what candidates are built from, and what was measured before."""
        self._forms[ingredients.form] = ingredients
        self.use(ingredients.form, ingredients.definition, rewrites)
        self.know(known)

    def use(self, form: Form, definition: SpaceDefinition, rewrites: Rewrites) -> None:
        """Build candidates of this space from what was loaded in this form."""
        self._ingredients = replace(self._forms[form], definition=definition)
        self._builder = self._ingredients.builder(rewrites)

    def settle(self) -> None:
        """Forget the forms that are not in use."""
        assert self._ingredients is not None
        self._forms = {self._ingredients.form: self._ingredients}

    def know(self, measured: Sequence[Measurement]) -> None:
        """Take what was measured before; candidates that run the same graphs are not run again."""
        self._known = {one.digest: one for one in measured}

    def probe_rewrites(self, rewrites: Rewrites) -> tuple[Rewrites, Probed]:
        """Those of them that pay here, which are used from then on, and what was found."""
        assert self._builder is not None
        assert self._ingredients is not None
        recipe = self._ingredients.first_recipe()
        probed = steps.probe_rewrites(self._builder, None if recipe is None else recipe[1], self.bench, rewrites)
        return self._builder.rewrites, probed

    def compare(self, first: Candidate, second: Candidate, seconds: float) -> Mapping[str, Timings]:
        """See ``steps.race``."""
        return steps.race(self.bench, first, second, seconds)

    def uniform_db(self, seconds: float, n_most: int) -> list[float]:
        """SNRs of the first uniform recipes on a few samples, minus infinity where one doesn't run; nothing is timed.

        Dynamic ones, which take no corrected biases, only where no region may take others.

        Args:
            seconds: No recipe is begun after them, apart from the first.
            n_most: Recipes.
        """
        found = self._ingredients
        assert self._builder is not None
        assert found is not None
        end, space = time.perf_counter() + seconds, resolve(found.definition, found.regions)
        measured: list[float] = []
        taken = [scheme for scheme in found.definition.schemes if space.uniform(scheme.name)]
        for scheme in ([scheme for scheme in taken if not scheme.is_dynamic] or taken)[:n_most]:
            if measured and time.perf_counter() > end:
                break
            try:
                candidate = self._builder.build(space.uniform(scheme.name))
                opened = self.bench.opener.open(*candidate.parts)
                measured.append(self.bench.untimed_quality(opened, N_FORM_SAMPLES).worst_db)
            except Exception as error:  # onnxruntime raises its own types from run
                _LOG.warning("the uniform recipe %s doesn't run: %s", scheme.name, error)
                measured.append(-math.inf)
        return measured

    def errors_and_twins(self, seconds: float) -> tuple[OwnErrors, Twins] | None:
        """See ``steps.own_errors`` and ``steps.twins_of``, which compares the ranges that are chosen for them.

        Raises:
            ProfileError: They cannot be computed.
        """
        found = self._ingredients
        assert self._builder is not None
        assert found is not None
        planner = self._builder.planner
        try:
            errors = steps.own_errors(planner, found.regions, found.statistics, found.definition, seconds=seconds)
            twins = None if errors is None else steps.twins_of(found.prepared, found.regions, found.definition, planner)
        except Exception as error:  # a fault of ours must not end the search
            raise ProfileError(f"{type(error).__name__}: {one_line(error)}") from error
        return None if errors is None or twins is None else (errors, twins)

    def profile(self, seconds: float, most_s: float) -> Profiled:
        """See ``profiling.profiled_prior``."""
        found = self._ingredients
        assert self._builder is not None
        assert found is not None
        return profiled_prior(
            self.bench, self._builder, found.prepared.graph, found.regions, found.layout(), (seconds, most_s)
        )

    def evaluate(
        self, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float] = NO_RATIOS
    ) -> Evaluated:
        """Build a candidate and measure it.

        Args:
            assignment: What to build.
            n_rounds: Timed rounds; with 0 its quality alone is measured, which is no answer where it is to be timed.
            least_ratios: What its ratios can hardly be below, by target name; empty where that is unknown.
        """
        assert self._builder is not None
        try:
            candidate = self._builder.build(assignment)
        except MemoryError:
            raise
        except Exception as error:  # a fault of ours must not end the search
            _LOG.warning("a candidate cannot be built", exc_info=True)
            return Evaluated(
                Failure(stage="build", reason=f"{type(error).__name__}: {error}"), self.bench.opener.seconds
            )
        found = self._built.get(candidate.digest)
        if found is None or (isinstance(found, Measurement) and not self._is_answer(found, n_rounds)):
            found = self._measured(candidate, assignment, n_rounds, least_ratios)
            self._built[candidate.digest] = found
            if isinstance(found, Measurement):
                self._known[found.digest] = found
        return Evaluated(found, self.bench.opener.seconds)

    def _measured(
        self, candidate: Candidate, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float]
    ) -> Measurement | Failure:
        assert self._ingredients is not None
        meter = None if self.metrics is None else self.metrics.meter()
        known = {d: one for d, one in self._known.items() if self._is_answer(one, n_rounds)}
        found = steps.measure(
            self.bench,
            candidate,
            assignment,
            self._ingredients.regions,
            n_rounds=n_rounds,
            goes_on=lambda progress: self._may_join(progress, candidate.size_bytes, meter, least_ratios),
            known=known,
            observe=meter.add if meter else lambda *_: None,
        )
        if meter is None or isinstance(found, Failure) or found.digest in known:
            return found
        try:
            return replace(found, drops=self._drops(meter))
        except MetricError as error:  # which some functions raise on the few samples that untimed candidates run
            return Failure(stage="metric", reason=str(error)) if found.latency else found

    def _is_answer(self, known: Measurement, n_rounds: int) -> bool:
        """Whether it says what is asked of a candidate now; before it was resumed, a search may have asked for less."""
        return not n_rounds or (known.state is not State.UNTIMED and self.bounds.knows(known.drops))

    def _drops(self, meter: MetricMeter) -> dict[str, float]:
        """Over all samples, if the candidate is as good as float on those that it did not run so far."""
        n_all = len(self.bench.feeds)
        results = meter.results(has_intervals=False)
        return {name: result.drop.value * result.drop.n_samples / n_all for name, result in results.items()}

    def _may_join(
        self, progress: Progress, size_bytes: int, meter: MetricMeter | None, least_ratios: Mapping[str, float]
    ) -> bool:
        """Whether a candidate could still join the front: nothing known beats it, and it may be better than float.

        To be beaten is to be behind one known candidate in every objective, and in nothing else: an SNR that is no
        objective stops nobody. SNR and ratios have to be behind by a margin, as they are estimates; before anything was
        timed, the least that a ratio may be has to be behind. Sizes are exact. A drop counts as it will be stored: as
        if the candidate is as good as float on all samples that it has not run, so that those still to come can't make
        it look better than it does (this is exact for scores that cannot beat float's, such as ``top1`` and
        ``cosine``). A function of the user's own that has no value on the few samples so far stops nobody either.

        A candidate that is slower than float by the margin on every target goes on only where the size is an objective
        and it is smaller.
        """
        is_smaller = self.objectives.has_size and size_bytes < self.float_bytes
        if min(progress.ratios.values(), default=0.0) > 1 + _margin(progress) and not is_smaller:
            return False
        ahead = self._ahead(progress, size_bytes, least_ratios)
        if not ahead or not self.objectives.metrics:
            return not ahead
        assert meter is not None
        try:
            drops = self._drops(meter)
        except MetricError:
            return True
        names = [metric.name for metric in self.objectives.metrics]
        return not any(all(known.drops[name] <= drops[name] for name in names) for known in ahead)

    def _ahead(self, progress: Progress, size_bytes: int, least_ratios: Mapping[str, float]) -> list[Measurement]:
        """Known candidates that beat one in all objectives that are no metrics."""
        if progress.ratios:
            least_ratios = {name: ratio - _margin(progress) / 2 for name, ratio in progress.ratios.items()}
        return [
            known
            for known in self._known.values()
            if known.is_complete
            and self.bounds.knows(known.drops)
            and self.bounds.keeps(standing_of(known))
            and not (self.objectives.has_snr and known.quality.worst_db < _least_db(progress, known))
            and not (self.objectives.has_size and known.size_bytes > size_bytes)
            and _is_faster(known, least_ratios)
        ]


def _least_db(progress: Progress, known: Measurement) -> float:
    """SNR from which on a known candidate is ahead of another one."""
    scatter_db = math.hypot(progress.quality.error_db, known.quality.error_db)
    return progress.quality.worst_db + max(_SNR_MARGIN_DB, _SNR_ERRORS * progress.snr_error_db, scatter_db)


def _margin(progress: Progress) -> float:
    """By how much a ratio has to be beaten; infinite before anything was timed."""
    return _RATIO_MARGIN * math.sqrt(2 / progress.n_rounds) if progress.n_rounds else math.inf


def _is_faster(known: Measurement, ratios: Mapping[str, float]) -> bool:
    """Whether it was shown on every target; never where nothing is known of the ratios."""
    return bool(ratios) and all(known.latency[name].ratio_high <= ratio for name, ratio in ratios.items())
