"""Metrics of the files that the last measurement compares."""

import pickle
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.division import Division
from autoquant.domain.feed import Feed
from autoquant.domain.metric import MemberMetric, Metric, MetricResult, PartValues
from autoquant.errors import MetricError
from autoquant.measurement.latency import REFERENCE, Outputs
from autoquant.metrics.evaluator import MetricEvaluator, MetricMeter

__all__ = ["FileScorer", "FileScorerSetup"]

_HELD_BYTES = 1 << 24
"""Outputs of a file beyond this many wait on disk: functions of the user's own need those of all samples at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileScorerSetup:
    """Makes a scorer in the process that runs the files.

    Attributes:
        metrics: With different names.
        feeds: Samples, those that the search saw first.
        labels: Arrays by name, in the same order.
        division: Which samples the search saw.
        seed: Of resampling.
    """

    metrics: Sequence[Metric]
    feeds: Sequence[Feed]
    labels: Mapping[str, npt.NDArray[np.generic]]
    division: Division
    seed: int

    def __call__(self, names: Sequence[str]) -> "FileScorer":
        """For a model whose outputs have these names."""
        return FileScorer(self, names)


@dataclass(slots=True)
class FileScorer:
    """Keeps the outputs of files until their metrics are asked for."""

    setup: FileScorerSetup
    names: Sequence[str]
    _reference: list[Outputs] = field(default_factory=list)
    _spools: dict[str, IO[bytes]] = field(default_factory=dict)
    _evaluator: MetricEvaluator | None = None

    def add(self, key: str, sample: int, reference: Outputs, candidate: Outputs) -> None:
        """Count one sample of a file; samples come in order."""
        if sample == len(self._reference):
            self._reference.append(reference)
        if key != REFERENCE:
            if key not in self._spools:
                self._spools[key] = tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES)  # noqa: SIM115 - until scored
            pickle.dump(candidate, self._spools[key], protocol=pickle.HIGHEST_PROTOCOL)

    def scores(self, key: str) -> Mapping[str, MemberMetric]:
        """Metrics by name over the samples so far; those of a file are asked for once.

        Raises:
            MetricError: A function of the user's own fails.
        """
        evaluator = self._evaluator or self._open()
        parts = {"all": evaluator.meter(), "search": evaluator.meter(), "held_out": evaluator.meter()}
        division, n_held_out = self.setup.division, 0
        for sample, outputs in enumerate(self._outputs(key)):
            n_held_out += sample in division.held_out
            for meter in (parts["all"], parts["search" if sample in division.search else "held_out"]):
                meter.add(sample, outputs)
        return _member_metrics(parts, has_held_out=n_held_out > 0)

    def _open(self) -> MetricEvaluator:
        n = len(self._reference)
        self._evaluator = MetricEvaluator(
            metrics=self.setup.metrics,
            names=self.names,
            reference=self._reference,
            feeds=self.setup.feeds[:n],
            labels={name: array[:n] for name, array in self.setup.labels.items()},
            seed=self.setup.seed,
        )
        return self._evaluator

    def _outputs(self, key: str) -> Iterator[Outputs]:
        if key == REFERENCE:
            yield from self._reference
            return
        with self._spools.pop(key) as spool:
            spool.seek(0)
            for _ in self._reference:
                outputs: Any = pickle.load(spool)
                yield outputs


def _results_if_any(meter: MetricMeter) -> Mapping[str, MetricResult]:
    """Without functions of the user's own that have no number for so few samples."""
    found: dict[str, MetricResult] = {}
    for metric in meter.evaluator.metrics:
        with suppress(MetricError):
            found[metric.name] = meter.result(metric)
    return found


def _member_metrics(parts: Mapping[str, MetricMeter], *, has_held_out: bool) -> dict[str, MemberMetric]:
    both = parts["all"].results()
    search = parts["search"].results() if has_held_out else both
    held_out = _results_if_any(parts["held_out"]) if has_held_out else {}
    found = {}
    for name in both:
        other = held_out.get(name)
        found[name] = MemberMetric(
            value=PartValues(
                all=both[name].candidate, search=search[name].candidate, held_out=other.candidate if other else None
            ),
            drop=PartValues(all=both[name].drop, search=search[name].drop, held_out=other.drop if other else None),
        )
    return found
