"""Opens the float model and tries the metrics on it, before anything is built."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoquant.api import steps
from autoquant.api.evaluator import Evaluator, ScoringTimes
from autoquant.domain.division import Division
from autoquant.domain.feed import Feed, Labels, Samples, joined_labels
from autoquant.domain.metric import Metric
from autoquant.domain.objective import DEFAULT_OBJECTIVES, NO_BOUNDS, Bounds, Objectives
from autoquant.domain.target import Target
from autoquant.errors import DataError
from autoquant.measurement.latency import Outputs
from autoquant.metrics.evaluator import MetricEvaluator
from autoquant.model.io import size_bytes_of

__all__ = ["EvaluatorSetup"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSetup:
    """Makes an evaluator, in whatever process it is called.

    Attributes:
        model: The float model's file.
        samples: Evaluation samples.
        targets: Where candidates are timed.
        seed: Of orders and resampling.
        held_out: Samples of the last measurement: the float model and its metrics are tried on them, and no candidate;
            None where there are none.
        seconds: For running the float model on the samples; those that there is no time for are left out.
        metrics: Tried on the float model before anything is built.
        has_drops: Whether candidates are scored too.
        objectives: What candidates are compared in; those with metrics need ``has_drops``.
        is_thorough: Whether the first candidates run every sample, also where there are many.
        bounds: What breaks them is never delivered, and beats no candidate.
        numbers: Outputs of integers that are numbers and no labels.
        signal: Of the float model's outputs, as ``Signal.mean``, from who has run the held-out samples; else empty.
    """

    model: Path
    samples: Samples
    targets: tuple[Target, ...]
    seed: int
    held_out: Samples | None = None
    seconds: float = math.inf
    metrics: tuple[Metric, ...] = ()
    has_drops: bool = False
    objectives: Objectives = DEFAULT_OBJECTIVES
    is_thorough: bool = False
    bounds: Bounds = NO_BOUNDS
    numbers: frozenset[str] = frozenset()
    signal: Sequence[float] = ()

    def pinned(self, n_samples: int) -> "EvaluatorSetup":
        """To measure on so many of the first samples, which there was time for before."""
        if n_samples >= len(self.samples):
            return replace(self, seconds=math.inf)
        samples, held_out = replace(self.samples, feeds=self.samples.feeds[:n_samples]), self.held_out
        if held_out is not None:
            feeds, labels = self._held_out(n_samples)
            held_out = replace(held_out, feeds=feeds, labels=labels)
        return replace(self, samples=samples, held_out=held_out, seconds=math.inf)

    def __call__(self) -> "Evaluator":
        """Open the float model and run it.

        Raises:
            DataError: An output of the float model holds NaN or infinity, or all of them are 0 or empty on all samples.
            MetricError: A metric doesn't fit the outputs or the labels, or fails on the float model.
        """
        bench = steps.open_bench(
            self.model,
            self.samples,
            targets=self.targets,
            seed=self.seed,
            seconds=self.seconds,
            numbers=self.numbers,
        )
        if self.is_thorough:
            bench.run_all_samples()
        held_out, held_out_labels = self._held_out(len(bench.feeds))
        with steps.running(self.model):
            held_out_names = () if self.held_out is None else self.held_out.names
            outputs = [found if self.metrics else () for found in bench.held_out_outputs(held_out, held_out_names)]
        if self.signal:
            bench.signal.hear(self.signal)
        if not bench.signal.total.any():
            raise DataError(
                f"{self.model}: every output is 0 or empty on all evaluation samples, so that no SNR can be said; give"
                " samples on which one is not"
            )
        float_bytes = size_bytes_of(self.model)
        if not self.metrics:
            return Evaluator(bench, float_bytes, self.objectives, bounds=self.bounds)
        labels = {name: array[: len(bench.feeds)] for name, array in self.samples.labels.items()}
        metrics = self._metrics(bench.names, bench.reference, bench.feeds, labels)
        metrics.evaluate(bench.reference, has_intervals=False)  # the first time takes longer
        reference = [*bench.reference, *outputs]
        both = joined_labels(labels, held_out_labels) if outputs else labels
        last = self._metrics(bench.names, reference, [*bench.feeds, *held_out], both)
        start = time.perf_counter()
        last.evaluate(reference, has_intervals=False)
        once_s = time.perf_counter() - start
        times = ScoringTimes(
            trial_s=once_s * len(bench.feeds) / len(reference) if self.has_drops else 0.0,
            file_s=(2 if outputs else 1) * last.n_evaluations * once_s,
        )
        return Evaluator(bench, float_bytes, self.objectives, metrics if self.has_drops else None, self.bounds, times)

    def _held_out(self, n_samples: int) -> tuple[Sequence[Feed], Labels]:
        """Those that the last measurement runs where there was time for so many others, with their labels."""
        if self.held_out is None:
            return (), {}
        whole = Division(n_search=len(self.samples), n_held_out=len(self.held_out))
        n_kept = whole.shortened(n_samples).n_held_out
        return self.held_out.feeds[:n_kept], {name: array[:n_kept] for name, array in self.held_out.labels.items()}

    def _metrics(
        self, names: Sequence[str], reference: Sequence[Outputs], feeds: Sequence[Feed], labels: Labels
    ) -> MetricEvaluator:
        return MetricEvaluator(
            metrics=self.metrics, names=names, reference=reference, feeds=feeds, labels=labels, seed=self.seed
        )
