"""Evaluates assignments: what a worker process does for a search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoquant.api import steps
from autoquant.api.profiling import profiled_prior
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.metric import Metric
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment, Region
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import Target
from autoquant.errors import MetricError
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench, Progress
from autoquant.metrics.evaluator import MetricEvaluator
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.space.resolve import resolve
from autoquant.study.surrogate import Layout

__all__ = ["BenchFacts", "Evaluated", "Evaluator", "EvaluatorSetup", "Ingredients"]

_SNR_MARGIN_DB = 1.5
_RATIO_MARGIN = 0.04
"""A candidate whose ratio comes from two rounds is dropped only when it is beaten by this much; more rounds, less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchFacts:
    """What is known of the float model once it was run.

    Attributes:
        float_s: Seconds of one inference, by target name.
        n_samples: Evaluation samples that there was time for.
    """

    float_s: Mapping[str, float]
    n_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """What candidates are built from."""

    prepared: PreparedModel
    regions: Sequence[Region]
    statistics: Statistics
    definition: SpaceDefinition

    def builder(self, *, has_plain_sums: bool = False) -> Builder:
        """A new builder; ``has_plain_sums`` is what probing the forms gave."""
        found = steps.builder_of(self.prepared, self.regions, self.statistics, space=self.definition)
        found.write_plain_sums(has_plain_sums)
        return found

    def layout(self) -> Layout:
        """Regions, schemes and borders as the study sees them."""
        space = resolve(self.definition, self.regions)
        work = {region.id: region.work for region in self.regions}
        return Layout.of(space.choices, space.schemes, tuple(borders(self.prepared.graph, self.regions)), work)


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An outcome, and the seconds that opening the candidate took."""

    outcome: Measurement | Failure
    opening_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSetup:
    """Makes an evaluator, in whatever process it is called.

    Attributes:
        model: The float model's file.
        samples: Evaluation samples.
        targets: Where candidates are timed.
        seed: Of orders and resampling.
        held_out: Samples of the last measurement: the float model is tried on them, and no candidate.
        seconds: For running the float model on the samples; those that there is no time for are left out.
        metrics: Tried on the float model before anything is built.
        has_drops: Whether candidates are scored too.
    """

    model: Path
    samples: Samples
    targets: tuple[Target, ...]
    seed: int
    held_out: Sequence[Feed] = ()
    seconds: float = math.inf
    metrics: tuple[Metric, ...] = ()
    has_drops: bool = False

    def __call__(self) -> "Evaluator":
        """Open the float model and run it.

        Raises:
            MetricError: A metric doesn't fit the outputs or the labels, or fails on the float model.
        """
        bench = steps.open_bench(self.model, self.samples, targets=self.targets, seed=self.seed, seconds=self.seconds)
        if len(bench.feeds) == len(self.samples):
            with steps.running(self.model):
                bench.check(self.held_out)
        if not self.metrics:
            return Evaluator(bench)
        metrics = MetricEvaluator(
            metrics=self.metrics,
            names=bench.names,
            reference=bench.reference,
            feeds=bench.feeds,
            labels={name: array[: len(bench.feeds)] for name, array in self.samples.labels.items()},
            seed=self.seed,
        )
        metrics.evaluate(bench.reference, has_intervals=False)
        return Evaluator(bench, metrics if self.has_drops else None)


@dataclass(slots=True)
class Evaluator:
    """Builds and measures; a graph that was measured once is known.

    Attributes:
        bench: The float model.
        metrics: By which candidates are scored on the samples that they run; None for no scores.
    """

    bench: Bench
    metrics: MetricEvaluator | None = None
    _builder: Builder | None = None
    _ingredients: Ingredients | None = None
    _built: dict[str, Measurement | Failure] = field(default_factory=dict)
    _known: dict[str, Measurement] = field(default_factory=dict)

    def facts(self) -> BenchFacts:
        """Of the float model, timed anew: it may have been opened beside other work."""
        self.bench.time_float()
        return BenchFacts(float_s=self.bench.float_s, n_samples=len(self.bench.feeds))

    def load(self, ingredients: Ingredients, has_plain_sums: bool, known: Sequence[Measurement]) -> None:
        """Take what candidates are built from, and what was measured before."""
        self._builder = ingredients.builder(has_plain_sums=has_plain_sums)
        self._ingredients = ingredients
        self.know(known)

    def know(self, measured: Sequence[Measurement]) -> None:
        """Take what was measured before; candidates that run the same graphs are not run again."""
        self._known = {one.digest: one for one in measured}

    def probe_forms(self) -> str | None:
        """See ``steps.probe_residual_norms``."""
        assert self._builder is not None
        return steps.probe_residual_norms(self._builder, self.bench)

    def profile(self, seconds: float, most_s: float) -> LatencyPrior:
        """See ``profiling.profiled_prior``."""
        found = self._ingredients
        assert self._builder is not None
        assert found is not None
        return profiled_prior(
            self.bench, self._builder, found.prepared.graph, found.regions, found.layout(), (seconds, most_s)
        )

    def evaluate(self, assignment: Assignment, n_rounds: int) -> Evaluated:
        """Build a candidate and measure it."""
        assert self._builder is not None
        try:
            candidate = self._builder.build(assignment)
        except (AssertionError, KeyError, ValueError) as error:
            return Evaluated(Failure(stage="build", reason=f"{type(error).__name__}: {error}"), self.bench.opening_s)
        if candidate.digest not in self._built:
            found = self._measured(candidate, assignment, n_rounds)
            self._built[candidate.digest] = found
            if isinstance(found, Measurement):
                self._known[found.digest] = found
        return Evaluated(self._built[candidate.digest], self.bench.opening_s)

    def _measured(self, candidate: Candidate, assignment: Assignment, n_rounds: int) -> Measurement | Failure:
        assert self._ingredients is not None
        meter = None if self.metrics is None else self.metrics.meter()
        found = steps.measure(
            self.bench,
            candidate,
            assignment,
            self._ingredients.regions,
            n_rounds=n_rounds,
            goes_on=self._may_join,
            known=self._known,
            observe=meter.add if meter else lambda *_: None,
        )
        if meter is None or isinstance(found, Failure) or found.digest in self._known:
            return found
        try:
            results = meter.results(has_intervals=False)
        except MetricError as error:
            return Failure(stage="metric", reason=str(error))
        n_all = len(self.bench.feeds)
        return replace(
            found,
            drops={name: result.drop.value * result.drop.n_samples / n_all for name, result in results.items()},
        )

    def _may_join(self, progress: Progress) -> bool:
        """Whether a candidate could still join the front: nothing known beats it by more than the margins."""
        snr = progress.quality.worst_db
        margin = _RATIO_MARGIN * math.sqrt(2 / progress.n_rounds)
        if min(progress.ratios.values()) > 1 + margin:
            return False
        return not any(
            known.is_complete
            and known.quality.worst_db >= snr + _SNR_MARGIN_DB
            and all(known.latency[name].ratio_high <= ratio - margin / 2 for name, ratio in progress.ratios.items())
            for known in self._known.values()
        )
