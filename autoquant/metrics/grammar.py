"""How metrics and limits are spelled.

A metric is ``[NAME=]SOURCE``, and SOURCE is one of

======================================  ==========================================================================
``cosine[@OUTPUT]``                     cosine similarity with float
``topK[@OUTPUT][#AXIS]``                how often float's class is among the K highest scores: ``top1``, ``top5``
``accuracy[.LABEL][@OUTPUT][#AXIS]``    how often the highest score is that of the label
``module:function[:min]``               the user's own, importable from the current folder; ``:min``: lower is better
======================================  ==========================================================================

AXIS is that of the classes, the last one by default; ``#1`` for the images of a segmentation model. LABEL is the name
of an array of the data. Without NAME a metric is called as it is spelled, and the user's own like its function.
"""

import re
from collections.abc import Iterable

from autoquant.domain.metric import Accuracy, Agreement, Cosine, Custom, Direction, Metric, MetricSource, default_name
from autoquant.domain.mistakes import did_you_mean
from autoquant.errors import MetricError, UsageError

__all__ = ["parse_drop", "parse_metric", "parse_metrics"]

_FORMS = "cosine, top1, top5, accuracy or module:function"
_NAME = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_CUSTOM = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(?::(.+))?")
_BUILT_IN = re.compile(r"([^.@#]*)(?:\.([^@#]+))?(?:@(.+?))?(?:#(-?\d+))?", re.DOTALL)


def parse_metrics(texts: Iterable[str]) -> tuple[Metric, ...]:
    """The metrics of a search.

    Raises:
        MetricError: One is spelled wrong, or two have one name.
    """
    metrics: dict[str, Metric] = {}
    for text in texts:
        metric = parse_metric(text)
        if metric.name in metrics:
            raise MetricError(
                f"metric '{text}': the name '{metric.name}' is taken, give it one of its own: NAME={metric.source}"
            )
        metrics[metric.name] = metric
    return tuple(metrics.values())


def parse_metric(text: str) -> Metric:
    """A metric as the user spells it; ``parse_metric(str(metric)) == metric``.

    >>> parse_metric("ocr=tasks:edit_distance:min").direction
    <Direction.LOWER: 'min'>

    Raises:
        MetricError: It is spelled wrong.
    """
    named = _NAME.fullmatch(text)
    name, spelled = named.groups() if named else ("", text)
    if custom := _CUSTOM.fullmatch(spelled):
        module, function, direction = custom.groups()
        source = Custom(module=module, function=function)
        return Metric(name=name or default_name(source), source=source, direction=_direction(text, direction))
    built_in = _built_in(text, spelled)
    return Metric(name=name or default_name(built_in), source=built_in)


def parse_drop(text: str) -> float:
    """The largest drop that is allowed, as ``MetricResult.drop`` counts it.

    >>> parse_drop("0.5%"), parse_drop("0.02")
    (0.005, 0.02)

    Raises:
        UsageError: It is no share below 1, nor from 0 to 100 %.
    """
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*", text)
    drop = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= drop <= 1:
        raise UsageError(f"drop '{text}': this is no number from 0 to 1, give a share such as 0.5% or 0.005")
    if found and not found[2] and drop == 1:
        raise UsageError(f"drop '{text}': this may be 1% or 100%, write which")
    return drop


def _direction(text: str, spelled: str | None) -> Direction:
    try:
        return Direction(spelled or Direction.HIGHER)
    except ValueError:
        raise MetricError(
            f"metric '{text}': the direction '{spelled}' is unknown, end with :min where lower is better"
        ) from None


def _built_in(text: str, spelled: str) -> MetricSource:
    found = _BUILT_IN.fullmatch(spelled)
    kind, label, output, axis = found.groups() if found else (spelled, None, None, None)
    if kind == "accuracy":
        return Accuracy(label=label or "", output=output or "", axis=int(axis or -1))
    if re.fullmatch(r"top[1-9]\d*", kind) and not label:
        return Agreement(k=int(kind[3:]), output=output or "", axis=int(axis or -1))
    if kind == "cosine" and not label and not axis:
        return Cosine(output=output or "")
    raise MetricError(f"metric '{text}': {_what_is_wrong(kind, label, axis)}")


def _what_is_wrong(kind: str, label: str | None, axis: str | None) -> str:
    if label and re.fullmatch(r"cosine|top[1-9]\d*", kind):
        return f"'{kind}' compares with the float model and takes no label, leave '.{label}' out"
    if kind == "cosine":
        return f"'cosine' is over all values and takes no axis, leave '#{axis}' out"
    if re.fullmatch(r"top\d*|topk", kind):
        return "how many of the highest scores count is missing, write a number from 1 such as top5"
    meant = did_you_mean(kind, ["cosine", "top1", "top5", "accuracy"])
    return f"'{kind}' is unknown{meant or f', choose from {_FORMS}'}"
