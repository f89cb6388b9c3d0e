"""Providers that misbehave, for processes that are really started."""

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.api.evaluator import NO_RATIOS, Evaluated, Evaluator
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.domain.feed import Feed
from autoquant.domain.measurement import Footprint
from autoquant.domain.metric import MemberMetric, MetricValue, PartValues
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.target import Target
from autoquant.errors import MetricError
from autoquant.measurement.files import Compared, FileBench, FileBenchSetup
from autoquant.measurement.latency import REFERENCE, Outputs
from autoquant.qdq.own_errors import OwnErrors

__all__ = [
    "FailsOn",
    "FailsTogether",
    "FixedScorer",
    "Misbehaving",
    "MisbehavingSetup",
    "NeverRefines",
    "TellsCores",
    "crash",
    "eat_memory",
    "hang",
    "lack_memory",
]


def crash() -> None:
    """Read address 0."""
    ctypes.string_at(0)


def hang() -> None:
    """Much longer than anybody waits."""
    time.sleep(600)


def eat_memory() -> None:
    """Until nothing is left."""
    eaten = []
    while True:
        eaten.append(bytearray(50_000_000))


def lack_memory() -> None:
    """Fail for want of it."""
    raise MemoryError


_FAULTS = {"crash": crash, "hang": hang, "eat": eat_memory, "lack": lack_memory}


class Misbehaving(Evaluator):
    """An evaluator for which some assignments end badly, or taking profiles or computing errors does."""

    faults: Mapping[frozenset[tuple[RegionId, str]], str]
    profiling: str | None
    erring: str | None

    def own_errors(self, seconds: float) -> OwnErrors | None:
        if self.erring is not None:
            _FAULTS[self.erring]()
        return Evaluator.own_errors(self, seconds)

    def profile(self, seconds: float, most_s: float) -> LatencyPrior:
        if self.profiling is not None:
            _FAULTS[self.profiling]()
        return Evaluator.profile(self, seconds, most_s)

    def evaluate(
        self, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float] = NO_RATIOS
    ) -> Evaluated:
        fault = self.faults.get(frozenset(assignment.items()))
        if fault is not None:
            _FAULTS[fault]()
        return Evaluator.evaluate(self, assignment, n_rounds, least_ratios)


class NeverRefines:
    """A refiner, and what makes it, that never comes to an end."""

    def __init__(self, **_: object) -> None:
        pass

    def __call__(self) -> "NeverRefines":
        return self

    def refine(self, *_: object) -> None:
        hang()


@dataclass(frozen=True, slots=True, kw_only=True)
class MisbehavingSetup(EvaluatorSetup):
    """Makes one.

    Attributes:
        faults: ``crash``, ``hang`` or ``eat`` by assignment.
        profiling: One of them for taking profiles.
        own_errors: One of them for computing errors of regions.
    """

    faults: Mapping[frozenset[tuple[RegionId, str]], str] = field(default_factory=dict)
    profiling: str | None = None
    own_errors: str | None = None

    def __call__(self) -> Misbehaving:
        made = EvaluatorSetup.__call__(self)
        found = Misbehaving(made.bench, made.float_bytes)
        found.faults, found.profiling, found.erring = self.faults, self.profiling, self.own_errors
        return found


class FailsOn:
    """Makes a bench that crashes, hangs or eats memory when one file is opened."""

    def __init__(self, key: str, fault: str, setup: tuple[Path, Sequence[Feed], Sequence[Target], int]) -> None:
        self.key, self.fault = key, fault
        self.setup = FileBenchSetup(baseline=setup[0], feeds=setup[1], targets=setup[2], seed=setup[3])

    def __call__(self) -> FileBench:
        key, fault = self.key, self.fault

        class Failing(FileBench):
            def open(self, key_: str, path: Path) -> dict[str, Footprint]:
                if key_ == key:
                    _FAULTS[fault]()
                return FileBench.open(self, key_, path)

        return Failing(self.setup)


class FailsTogether:
    """Makes a bench that crashes or lacks memory where more than so many files, with the baseline, are open at once.

    It does so when they are opened, or when they are compared.
    """

    def __init__(
        self, method: str, most: int, fault: str, setup: tuple[Path, Sequence[Feed], Sequence[Target], int]
    ) -> None:
        self.method, self.most, self.fault = method, most, fault
        self.setup = FileBenchSetup(baseline=setup[0], feeds=setup[1], targets=setup[2], seed=setup[3])

    def __call__(self) -> FileBench:
        method, most, fault = self.method, self.most, self.fault

        class Failing(FileBench):
            def open(self, key: str, path: Path) -> dict[str, Footprint]:
                if method == "open" and len(self._opened[self.setup.targets[0].name]) >= most:
                    _FAULTS[fault]()
                return FileBench.open(self, key, path)

            def compare(self, target: str, samples: Sequence[int]) -> Compared:
                if method == "compare" and len(self._opened[target]) > most:
                    _FAULTS[fault]()
                return FileBench.compare(self, target, samples)

        return Failing(self.setup)


class FixedScorer:
    """Says how many samples it was given; the file ``third`` has no number."""

    REASON = "it has no number"

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.n_samples = names, 0

    def add(self, key: str, sample: int, reference: Outputs, candidate: Outputs) -> None:  # noqa: ARG002 - of the port
        self.n_samples += key == REFERENCE

    def scores(self, key: str) -> Mapping[str, MemberMetric]:
        if key == "third":
            raise MetricError(self.REASON)
        value = MetricValue(value=float(self.n_samples), n_samples=self.n_samples)
        both = PartValues(all=value, search=value)
        return {self.names[0]: MemberMetric(value=both, drop=both)}


class TellsCores(FixedScorer):
    """Fails, and says on which cores."""

    def scores(self, key: str) -> Mapping[str, MemberMetric]:  # noqa: ARG002 - of the port
        raise MetricError(f"on {os.sched_getaffinity(0)}")
