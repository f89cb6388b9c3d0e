"""Evaluators that misbehave, for processes that are really started."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoquant.api.evaluator import NO_RATIOS, Evaluated, Evaluator
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.domain.prior import Profiled
from autoquant.domain.region import Assignment, RegionId
from autoquant.measurement.latency import Timings
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins
from tests.faults import FAULTS

__all__ = ["Misbehaving", "MisbehavingSetup"]


class Misbehaving(Evaluator):
    """An evaluator for which some assignments end badly, or what comes before them does."""

    faults: Mapping[frozenset[tuple[RegionId, str]], str]
    profiling: str | None
    erring: str | None
    comparing: str | None

    def errors_and_twins(self, seconds: float) -> tuple[OwnErrors, Twins] | None:
        if self.erring is not None:
            FAULTS[self.erring]()
        return Evaluator.errors_and_twins(self, seconds)

    def compare(self, first: Candidate, second: Candidate, seconds: float) -> Mapping[str, Timings]:
        if self.comparing is not None:
            FAULTS[self.comparing]()
        return Evaluator.compare(self, first, second, seconds)

    def profile(self, seconds: float, most_s: float) -> Profiled:
        if self.profiling is not None:
            FAULTS[self.profiling]()
        return Evaluator.profile(self, seconds, most_s)

    def evaluate(
        self, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float] = NO_RATIOS
    ) -> Evaluated:
        fault = self.faults.get(frozenset(assignment.items()))
        if fault is not None:
            FAULTS[fault]()
        return Evaluator.evaluate(self, assignment, n_rounds, least_ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class MisbehavingSetup(EvaluatorSetup):
    """Makes one.

    Attributes:
        faults: ``crash``, ``hang`` or ``eat`` by assignment.
        profiling: One of them for taking profiles.
        own_errors: One of them for computing errors of regions.
        comparing: One of them for comparing candidates.
    """

    faults: Mapping[frozenset[tuple[RegionId, str]], str] = field(default_factory=dict)
    profiling: str | None = None
    own_errors: str | None = None
    comparing: str | None = None

    def __call__(self) -> Misbehaving:
        made = EvaluatorSetup.__call__(self)
        found = Misbehaving(made.bench, made.float_bytes)
        found.faults, found.profiling = self.faults, self.profiling
        found.erring, found.comparing = self.own_errors, self.comparing
        return found
