"""Built-in metrics, bound to the outputs and labels that they read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.metric import Accuracy, Agreement, Cosine, Metric
from autoquant.domain.mistakes import did_you_mean
from autoquant.errors import MetricError
from autoquant.metrics import scores

__all__ = ["BoundMetric", "bind", "check_labels"]

Array = npt.NDArray[np.generic]
Outputs = Sequence[Array]
BuiltIn = Cosine | Agreement | Accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundMetric:
    """A built-in metric that scores samples one by one.

    Attributes:
        source: Which one.
        positions: Of the outputs that it reads; only a cosine reads more than one.
        labels: Of all samples along axis 0; None where it compares with float.
    """

    source: BuiltIn
    positions: tuple[int, ...]
    labels: Array | None = None

    def score(self, sample: int, reference: Outputs, candidate: Outputs) -> tuple[float, float]:
        """Scores of the float model and of the candidate."""
        source, first = self.source, self.positions[0]
        if isinstance(source, Cosine):
            return 1.0, min(scores.cosine(reference[i], candidate[i]) for i in self.positions)
        if isinstance(source, Agreement):
            return 1.0, scores.agreement(reference[first], candidate[first], source.k, source.axis)
        assert self.labels is not None
        label = np.asarray(self.labels[sample])
        own, other = (scores.accuracy(outputs[first], label, source.axis) for outputs in (reference, candidate))
        return own, other


def bind(
    metric: Metric, source: BuiltIn, names: Sequence[str], outputs: Outputs, labels: Mapping[str, Array]
) -> BoundMetric:
    """Find what a metric reads.

    Args:
        metric: For messages.
        source: Its source.
        names: Of the model's outputs.
        outputs: Of the float model, for one sample.
        labels: Arrays by name, samples along axis 0, that sample first.

    Raises:
        MetricError: The model has no such output, the data no such label, or it is none that the metric can read.
    """
    where = f"metric '{metric.name}'"
    floats = [name for name, output in zip(names, outputs, strict=True) if output.dtype.kind == "f"]
    if isinstance(source, Cosine):
        chosen = [_output(where, source.output, names)] if source.output else floats
        if not chosen or not set(chosen) <= set(floats):
            advice = f" or choose one of {floats}" if floats else ", as this model has none"
            raise MetricError(f"{where}: a cosine needs a float output, take another metric{advice}")
        return BoundMetric(source=source, positions=tuple(names.index(name) for name in chosen))
    name = _output(where, source.output, names) if source.output else _only(where, floats or names)
    output = outputs[names.index(name)]
    if isinstance(source, Agreement):
        _check_classes(f"{where}: output '{name}'", output, source.axis, source.k)
        return BoundMetric(source=source, positions=(names.index(name),))
    label = _label(where, source.label, labels)
    _check_decisions(where, name, output, source.axis, label, np.asarray(labels[label][0]))
    return BoundMetric(source=source, positions=(names.index(name),), labels=labels[label])


def check_labels(labels: Mapping[str, Array], n_samples: int) -> None:
    """Refuse labels that are not one a sample.

    Raises:
        MetricError: An array holds another number of them.
    """
    for name, array in labels.items():
        if (n := len(np.atleast_1d(array))) != n_samples or array.ndim == 0:
            raise MetricError(f"labels '{name}': {n} of them for {n_samples} samples, give one a sample along axis 0")


def _output(where: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise MetricError(f"{where}: the model has no output '{name}'{_hint(name, names)}")
    return name


def _only(where: str, names: Sequence[str]) -> str:
    if len(names) > 1:
        raise MetricError(f"{where}: the model has several outputs, choose one of {', '.join(names)} with @OUTPUT")
    return names[0]


def _label(where: str, name: str, labels: Mapping[str, Array]) -> str:
    if not labels:
        raise MetricError(f"{where}: the data hold no labels, add an array 'label' with the class of each sample")
    if not name and len(labels) > 1 and "label" not in labels:
        raise MetricError(
            f"{where}: the data hold several labels, choose one of {', '.join(labels)} with accuracy.LABEL"
        )
    chosen = name or ("label" if "label" in labels else next(iter(labels)))
    if chosen not in labels:
        raise MetricError(f"{where}: the data hold no label '{chosen}'{_hint(chosen, labels)}")
    return chosen


def _check_classes(where: str, output: Array, axis: int, k: int) -> None:
    if output.dtype.kind != "f":
        raise MetricError(f"{where} holds {output.dtype.name} and no scores, choose a float output with @OUTPUT")
    if not -output.ndim <= axis < output.ndim:
        raise MetricError(f"{where} has {output.ndim} dimensions, so there are no classes along {axis}, change #{axis}")
    if output.shape[axis] <= k:
        raise MetricError(
            f"{where} has {output.shape[axis]} classes along axis {axis}, so one of {k} is always right,"
            " choose another axis with #AXIS, or a metric of your own as module:function"
        )


def _check_decisions(where: str, name: str, output: Array, axis: int, label_name: str, label: Array) -> None:
    is_scores = output.dtype.kind == "f"
    if is_scores:
        _check_classes(f"{where}: output '{name}'", output, axis, 1)
        if label.dtype.kind not in "iubf":
            raise MetricError(f"{where}: label '{label_name}' holds {label.dtype.name}, write classes as integers")
    n_decisions = output.size // output.shape[axis] if is_scores else output.size
    if n_decisions != label.size:
        raise MetricError(
            f"{where}: label '{label_name}' holds {label.size} values a sample, but output '{name}' of shape"
            f" {output.shape} decides on {n_decisions}, make them equal, or choose the axis of the classes with #AXIS"
        )


def _hint(word: str, known: Iterable[str]) -> str:
    known = list(known)
    return did_you_mean(word, known) or f", choose from {', '.join(known)}"
