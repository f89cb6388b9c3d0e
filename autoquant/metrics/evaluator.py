"""Metrics of candidates beside the float model."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.domain.metric import Accuracy, Cosine, Custom, Direction, Metric, MetricResult, MetricValue
from autoquant.errors import MetricError
from autoquant.metrics import custom, intervals
from autoquant.metrics.binding import BoundMetric, bind, check_labels

__all__ = ["MetricEvaluator", "MetricMeter"]

Array = npt.NDArray[np.generic]
Floats = npt.NDArray[np.float64]
Outputs = Sequence[Array]

_DIGITS = 12
"""Of drops: a sample of a hundred that is wrong is 0.01 worse, not what is left of 1 - 0.99."""


@dataclass(slots=True)
class MetricEvaluator:
    """Metrics over one set of samples, and what the float model gives on it; it may be pickled.

    Raises:
        MetricError: On construction, where a metric does not fit the outputs or the labels, or cannot be imported.

    Attributes:
        metrics: With different names.
        names: Of the model's outputs.
        reference: Outputs of the float model, by sample, in the order of ``names``.
        feeds: By sample.
        labels: Arrays by name, samples along axis 0.
        seed: Of resampling.
    """

    metrics: Sequence[Metric]
    names: Sequence[str]
    reference: Sequence[Outputs]
    feeds: Sequence[Feed]
    labels: Mapping[str, Array]
    seed: int = 0
    _bound: dict[str, BoundMetric] = field(default_factory=dict)
    _known: dict[tuple[str, tuple[int, ...]], float | Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert len(self.reference) == len(self.feeds) > 0
        check_labels(self.labels, len(self.reference))
        for metric in self.metrics:
            if isinstance(metric.source, Custom):
                custom.load(metric, metric.source)
            else:
                self._bound[metric.name] = bind(metric, metric.source, self.names, self.reference[0], self.labels)

    @property
    def holds_outputs(self) -> bool:
        """Whether a meter keeps the outputs of all its samples, which a function of the user's own needs."""
        return any(isinstance(metric.source, Custom) for metric in self.metrics)

    @property
    def n_evaluations(self) -> int:
        """How often metrics with intervals are computed over the samples; known once the float model was evaluated."""
        has_one_for_all = any(not isinstance(value, np.ndarray) for value in self._known.values())
        return 1 + len(intervals.jackknife_groups(len(self.reference), self.seed)) if has_one_for_all else 1

    def meter(self) -> "MetricMeter":
        """What takes the samples of one candidate."""
        return MetricMeter(self)

    def evaluate(self, candidate: Iterable[Outputs], *, has_intervals: bool = True) -> dict[str, MetricResult]:
        """The metrics of a candidate over all samples, by name.

        Args:
            candidate: Its outputs, by sample.
            has_intervals: False where only the values are wanted, which is cheaper.

        Raises:
            MetricError: A function of the user's own raises, or returns no finite numbers.
        """
        meter = self.meter()
        for sample, (_, outputs) in enumerate(zip(self.reference, candidate, strict=True)):
            meter.add(sample, outputs)
        return meter.results(has_intervals=has_intervals)

    def bound(self, metric: Metric) -> BoundMetric:
        """A built-in metric."""
        return self._bound[metric.name]

    def float_value(self, metric: Metric, source: Custom, samples: Sequence[int]) -> float | Floats:
        """The user's own metric of the float model on some samples, or its score of each; computed once.

        Raises:
            MetricError: The function raises, or returns no finite numbers.
        """
        key = metric.name, tuple(samples)
        if key not in self._known:
            self._known[key] = self.value(metric, source, samples, [self.reference[i] for i in samples])
        return self._known[key]

    def value(
        self, metric: Metric, source: Custom, samples: Sequence[int], outputs: Sequence[Outputs]
    ) -> float | Floats:
        """The user's own metric of outputs, one an entry of ``samples``, or its score of each.

        Raises:
            MetricError: The function raises, or returns no finite numbers.
        """
        labels: dict[str, Array | Sequence[Array]] = {
            name: _read_only(array[np.asarray(samples)]) for name, array in self.labels.items()
        }
        for position, name in enumerate(self.names):
            labels[f"{custom.FLOAT_PREFIX}{name}"] = [_read_only(self.reference[i][position]) for i in samples]
        by_name = [dict(zip(self.names, map(_read_only, arrays), strict=True)) for arrays in outputs]
        feeds = [{name: _read_only(array) for name, array in self.feeds[i].items()} for i in samples]
        return custom.call(metric, custom.load(metric, source), by_name, feeds, labels)


@dataclass(slots=True)
class MetricMeter:
    """Takes the samples of one candidate, in any order; all of them or some.

    Attributes:
        evaluator: The metrics and the float model.
    """

    evaluator: MetricEvaluator
    _scores: dict[str, dict[int, tuple[float, float]]] = field(default_factory=dict)
    _held: dict[int, Outputs] = field(default_factory=dict)
    _different: set[int] = field(default_factory=set)

    def add(self, sample: int, outputs: Outputs) -> None:
        """Count one sample; built-in metrics are computed at once, for others the arrays are kept, not copied."""
        reference = self.evaluator.reference[sample]
        for metric in self.evaluator.metrics:
            if not isinstance(metric.source, Custom):
                score = self.evaluator.bound(metric).score(sample, reference, outputs)
                self._scores.setdefault(metric.name, {})[sample] = score
        self._held[sample] = outputs if self.evaluator.holds_outputs else ()
        if not all(_is_equal(a, b) for a, b in zip(reference, outputs, strict=True)):
            self._different.add(sample)

    def results(self, *, has_intervals: bool = True) -> dict[str, MetricResult]:
        """The metrics over the samples so far, at least one, by name; see ``result``."""
        return {metric.name: self.result(metric, has_intervals=has_intervals) for metric in self.evaluator.metrics}

    def result(self, metric: Metric, *, has_intervals: bool = True) -> MetricResult:
        """One of the metrics over the samples so far, at least one.

        A candidate whose outputs are those of the float model, bit by bit, has a drop of 0 in [0, 0].

        Args:
            metric: Which one.
            has_intervals: False where only the values are wanted, which is cheaper.

        Raises:
            MetricError: A function of the user's own raises, or returns no finite numbers.
        """
        assert self._held
        if isinstance(metric.source, Custom):
            return self._custom(metric, metric.source, has_intervals)
        return self._built_in(metric, has_intervals)

    def _built_in(self, metric: Metric, has_intervals: bool) -> MetricResult:
        pairs = self._scores[metric.name]
        own, other = np.array([pairs[sample] for sample in sorted(pairs)]).T
        if isinstance(metric.source, Accuracy):
            return self._scored(metric, own, other, has_intervals)
        return self._compared(other, isinstance(metric.source, Cosine), has_intervals)

    def _compared(self, scores: Floats, is_cosine: bool, has_intervals: bool) -> MetricResult:
        """Of a metric that compares with the float model, whose own value is 1 by definition."""
        n, exact = len(scores), _exactly(1.0, len(scores))
        if not self._different:
            return MetricResult(candidate=exact, reference=exact, drop=_exactly(0.0, n))
        interval_of = intervals.mean_interval if is_cosine else intervals.share_interval
        candidate = _mean(scores, interval_of(scores, self.evaluator.seed) if has_intervals else None)
        drop = _mean(1 - scores, (1 - candidate.high, 1 - candidate.low))
        return MetricResult(candidate=candidate, reference=exact, drop=_rounded(drop))

    def _scored(
        self, metric: Metric, own: Floats, other: Floats, has_intervals: bool, *, are_shares: bool = True
    ) -> MetricResult:
        """Of a metric that scores each sample of either model, with what may be the share that is right."""
        seed, interval_of = self.evaluator.seed, intervals.share_interval if are_shares else intervals.mean_interval
        reference, candidate = (
            _mean(scores, interval_of(scores, seed) if has_intervals else None) for scores in (own, other)
        )
        if not self._different:
            return MetricResult(candidate=candidate, reference=reference, drop=_exactly(0.0, len(own)))
        scale = max(1.0, abs(reference.value))
        better, worse = (own, other) if metric.direction is Direction.HIGHER else (other, own)
        differences = (better - worse) / scale
        interval = None
        if has_intervals and are_shares:
            interval = intervals.drop_interval(better / scale, worse / scale, seed)
        elif has_intervals:
            interval = intervals.mean_interval(differences, seed)
        drop = _mean(differences, interval)
        return MetricResult(candidate=candidate, reference=reference, drop=_rounded(drop))

    def _custom(self, metric: Metric, source: Custom, has_intervals: bool) -> MetricResult:
        samples = sorted(self._held)
        own, other = self._pair(metric, source, samples)
        if isinstance(own, np.ndarray) and isinstance(other, np.ndarray):
            return self._scored(metric, own, other, has_intervals, are_shares=_are_shares(metric, own, other))
        groups = intervals.jackknife_groups(len(samples), self.evaluator.seed) if has_intervals else []
        replicates = [self._replicate(metric, source, [samples[i] for i in kept]) for kept in groups]
        return self._at_once(metric, np.array([(np.mean(own), np.mean(other)), *replicates]), len(samples))

    def _at_once(self, metric: Metric, values: Floats, n_samples: int) -> MetricResult:
        """Of a metric that sees all samples at once.

        Args:
            metric: Which one.
            values: Of float and of the candidate over all samples, then without each group, shape (1 + groups, 2).
            n_samples: Behind the first of them.
        """
        own, other = values.T
        sign = 1.0 if metric.direction is Direction.HIGHER else -1.0
        drops = sign * (own - other) / np.maximum(1.0, np.abs(own))
        return MetricResult(
            candidate=_jackknifed(other, n_samples),
            reference=_jackknifed(own, n_samples),
            drop=_rounded(_jackknifed(drops, n_samples)) if self._different else _exactly(0.0, n_samples),
        )

    def _pair(self, metric: Metric, source: Custom, samples: Sequence[int]) -> tuple[float | Floats, float | Floats]:
        own = self.evaluator.float_value(metric, source, samples)
        if not self._different.intersection(samples):
            return own, own
        return own, self.evaluator.value(metric, source, samples, [self._held[i] for i in samples])

    def _replicate(self, metric: Metric, source: Custom, samples: Sequence[int]) -> tuple[float, float]:
        """As ``_pair``; NaN where the function has no value on fewer samples, so that the interval is unknown."""
        try:
            own, other = self._pair(metric, source, samples)
        except MetricError:
            return math.nan, math.nan
        return float(np.mean(own)), float(np.mean(other))


def _mean(scores: Floats, interval: tuple[float, float] | None) -> MetricValue:
    low, high = interval or (-math.inf, math.inf)
    return MetricValue(value=float(scores.mean()), low=low, high=high, n_samples=len(scores))


def _rounded(drop: MetricValue) -> MetricValue:
    value, low, high = (round(number, _DIGITS) for number in (drop.value, drop.low, drop.high))
    return replace(drop, value=value, low=low, high=high)


def _exactly(value: float, n_samples: int) -> MetricValue:
    return MetricValue(value=value, low=value, high=value, n_samples=n_samples)


def _jackknifed(values: Floats, n_samples: int) -> MetricValue:
    """Of the value over all samples, which is the first, and those without each group."""
    low, high = intervals.jackknife_interval(float(values[0]), values[1:].tolist())
    return MetricValue(value=float(values[0]), low=low, high=high, n_samples=n_samples)


def _read_only(array: Array) -> Array:
    """A view: what a function of the user's own changed would be changed for everybody."""
    view = array.view()
    view.flags.writeable = False
    return view


def _is_equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _are_shares(metric: Metric, own: Floats, other: Floats) -> bool:
    """Whether scores may be shares of what is right; errors that are 0 throughout may be of any unit."""
    return metric.direction is Direction.HIGHER or np.array_equal(np.unique((own, other)), (0, 1))
