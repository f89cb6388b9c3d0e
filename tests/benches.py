"""Measurements of files that misbehave, for processes that are really started."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoquant.domain.feed import Feed
from autoquant.domain.measurement import Footprint
from autoquant.domain.metric import MemberMetric, MetricValue, PartValues
from autoquant.domain.target import Target
from autoquant.errors import MetricError
from autoquant.measurement.files import Compared, FileBench, FileBenchSetup
from autoquant.measurement.latency import REFERENCE, Outputs
from tests.faults import FAULTS

__all__ = ["FailsOn", "FailsTogether", "FixedScorer", "TellsCores"]


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
                    FAULTS[fault]()
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
                    FAULTS[fault]()
                return FileBench.open(self, key, path)

            def compare(self, target: str, samples: Sequence[int]) -> Compared:
                if method == "compare" and len(self._opened[target]) > most:
                    FAULTS[fault]()
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
