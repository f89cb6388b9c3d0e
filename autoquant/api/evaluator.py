"""Evaluates assignments: what a worker process does for a search."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.api import steps
from autoquant.domain.feed import Samples
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.region import Assignment, Region
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.domain.target import Target
from autoquant.measurement.bench import Bench, Progress
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder

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
        seconds: For running the float model on the samples; those that there is no time for are left out.
    """

    model: Path
    samples: Samples
    targets: tuple[Target, ...]
    seed: int
    seconds: float = math.inf

    def __call__(self) -> "Evaluator":
        """Open the float model and run it."""
        return Evaluator(
            steps.open_bench(self.model, self.samples, targets=self.targets, seed=self.seed, seconds=self.seconds)
        )


@dataclass(slots=True)
class Evaluator:
    """Builds and measures; a graph that was measured once is known."""

    bench: Bench
    _builder: Builder | None = None
    _regions: Sequence[Region] = ()
    _built: dict[str, Measurement | Failure] = field(default_factory=dict)
    _known: dict[str, Measurement] = field(default_factory=dict)

    def facts(self) -> BenchFacts:
        """Of the float model, timed anew: it may have been opened beside other work."""
        self.bench.time_float()
        return BenchFacts(float_s=self.bench.float_s, n_samples=len(self.bench.feeds))

    def load(self, ingredients: Ingredients, has_plain_sums: bool, known: Sequence[Measurement]) -> None:
        """Take what candidates are built from, and what was measured before."""
        self._builder = ingredients.builder(has_plain_sums=has_plain_sums)
        self._regions = ingredients.regions
        self._known = {measured.digest: measured for measured in known}

    def probe_forms(self) -> str | None:
        """See ``steps.probe_residual_norms``."""
        assert self._builder is not None
        return steps.probe_residual_norms(self._builder, self.bench)

    def evaluate(self, assignment: Assignment, n_rounds: int) -> Evaluated:
        """Build a candidate and measure it."""
        assert self._builder is not None
        try:
            candidate = self._builder.build(assignment)
        except (AssertionError, KeyError, ValueError) as error:
            return Evaluated(Failure(stage="build", reason=f"{type(error).__name__}: {error}"), self.bench.opening_s)
        if candidate.digest not in self._built:
            found = steps.measure(
                self.bench,
                candidate,
                assignment,
                self._regions,
                n_rounds=n_rounds,
                goes_on=self._may_join,
                known=self._known,
            )
            self._built[candidate.digest] = found
            if isinstance(found, Measurement):
                self._known[found.digest] = found
        return Evaluated(self._built[candidate.digest], self.bench.opening_s)

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
