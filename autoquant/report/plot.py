"""The plot of a report: every evaluation, and the members of the front as a stair."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from statistics import quantiles

from autoquant.domain.front import Member, RunRecord
from autoquant.domain.measurement import Evaluation, Latency, Measurement, Quality
from autoquant.domain.objective import Goal
from autoquant.domain.target import Target
from autoquant.report.summary import interval_text, ratio_text, schemes_text
from autoquant.report.texts import LONGEST_LABEL, snr_text

__all__ = ["Plot", "plot_of"]


_N_QUANTILES = 50
"""Of fifty parts of the evaluations, the first and the last start outside the first view of the plot."""


_REJECTED_MARKER = {"color": "#9aa6b4", "opacity": 0.7, "size": 6, "symbol": "circle-open", "line": {"width": 1}}


_EVALUATED_MARKER = {"color": "#7f93ab", "opacity": 0.5, "size": 6}


_Point = tuple[Evaluation, float, float]
"""An evaluation with its latency ratio and what the plot has upwards."""


@dataclass(frozen=True, slots=True)
class Plot:
    """The front on one target, as plotly.js takes it."""

    target: str
    figure: Mapping[str, object]
    caption: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """What the plot has upwards: SNR in dB, or in % how a metric compares with float where SNR is no objective.

    Attributes:
        metric: That; None for SNR.
        sign: 1 where higher is better, else -1: such an axis has its low end above.
    """

    metric: str | None
    sign: int = 1

    @property
    def name(self) -> str:
        return "SNR" if self.metric is None else escape(self.metric)

    @property
    def title(self) -> str:
        return "SNR of the worst output, dB" if self.metric is None else f"{self.name} against float, %"

    @property
    def least_height(self) -> float:
        return 5.0 if self.metric is None else 1.0

    def of_member(self, member: Member) -> float | None:
        drops = {name: found.drop.all.value for name, found in member.metrics.items()}
        return None if member.quality is None else self._of(member.quality, drops)

    def of_measurement(self, measurement: Measurement) -> float | None:
        return self._of(measurement.quality, measurement.drops)

    def text(self, value: float) -> str:
        return f"SNR {value:.1f} dB" if self.metric is None else f"{self.name} {value:+.2f} %"

    def _of(self, quality: Quality, drops: Mapping[str, float]) -> float | None:
        """None where it is not known or not finite."""
        if self.metric is not None:
            return -100 * self.sign * drops[self.metric] + 0.0 if self.metric in drops else None
        return quality.worst_db if math.isfinite(quality.worst_db) else None


def plot_of(record: RunRecord, target: Target) -> Plot:
    """Of one target: what is upwards is the SNR, or the metric where that is the objective."""
    metric = record.front.quality_metric
    axis = _Axis(metric, -1 if metric and record.front.objectives[metric] is Goal.MINIMIZE else 1)
    members = sorted(
        (member for member in record.front.members if axis.of_member(member) is not None),
        key=lambda member: member.latency[target.name].ratio,
    )
    heights = [height for member in members if (height := axis.of_member(member)) is not None]
    points = list(_points(record.evaluations, target.name, axis))
    complete = [point for point in points if _is_complete(point[0])]
    rejected = [point for point in points if not _is_complete(point[0])]
    n_regions = len(record.regions)
    traces = [
        _points_trace("rejected early", rejected, n_regions, axis) | {"marker": _REJECTED_MARKER},
        _points_trace("evaluated", complete, n_regions, axis) | {"marker": _EVALUATED_MARKER},
        _stairs_trace([member.latency[target.name].ratio for member in members], heights, axis),
        _members_trace(members, target.name, n_regions, axis),
    ]
    latencies = [member.latency[target.name] for member in members]
    ranges = _ranges(latencies, heights, points, axis)
    data = [trace for trace in traces if trace["x"]]
    caption = (
        _caption(record.evaluations, points, ranges, axis)
        if data
        else f"No measured {axis.metric or 'SNR'} and latency to draw."
    )
    return Plot(target.name, {"data": data, "layout": _layout(ranges[0], ranges[1][:: axis.sign], axis.title)}, caption)


def _is_complete(evaluation: Evaluation) -> bool:
    return isinstance(evaluation.outcome, Measurement) and evaluation.outcome.is_complete


def _points(evaluations: Iterable[Evaluation], target: str, axis: _Axis) -> Iterable[_Point]:
    for evaluation in evaluations:
        outcome = evaluation.outcome
        if isinstance(outcome, Measurement) and target in outcome.latency:
            height = axis.of_measurement(outcome)
            if height is not None:
                yield evaluation, outcome.latency[target].ratio, height


def _points_trace(name: str, points: Sequence[_Point], n_regions: int, axis: _Axis) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [ratio for _, ratio, _ in points],
        "y": [height for _, _, height in points],
        "text": [
            f"<b>trial {evaluation.trial.number}</b>, {name}<br>ratio {ratio:.3f}<br>{axis.text(height)}<br>"
            + _hover_schemes(schemes_text(evaluation.trial.assignment, n_regions))
            for evaluation, ratio, height in points
        ],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _members_trace(members: Sequence[Member], target: str, n_regions: int, axis: _Axis) -> dict[str, object]:
    latencies = [member.latency[target] for member in members]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "on the front, 95 % interval",
        "x": [latency.ratio for latency in latencies],
        "y": [axis.of_member(member) for member in members],
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [latency.ratio_high - latency.ratio for latency in latencies],
            "arrayminus": [latency.ratio - latency.ratio_low for latency in latencies],
            "color": "#1553a8",
            "thickness": 1.5,
            "width": 4,
        },
        "text": [escape(member.id) if len(member.id) <= LONGEST_LABEL else "" for member in members],
        "textposition": "top left",
        "textfont": {"color": "#1553a8", "size": 11},
        "hovertext": [
            f"<b>{escape(member.id)}</b><br>ratio {ratio_text(latency, 3)} ({interval_text(latency, 3)})<br>"
            f"{latency.median_ms:.3g} ms<br>SNR {snr_text(member)}<br>{_metric_line(member, axis)}"
            + _hover_schemes(schemes_text(member.assignment, n_regions))
            for member, latency in zip(members, latencies, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": "#1553a8", "size": 10, "line": {"color": "#ffffff", "width": 1.5}},
    }


def _metric_line(member: Member, axis: _Axis) -> str:
    height = axis.of_member(member)
    return "" if axis.metric is None or height is None else f"{axis.text(height)}<br>"


def _stairs_trace(ratios: Sequence[float], heights: Sequence[float], axis: _Axis) -> dict[str, object]:
    """The least ratio that each demand can have: right along a member's height to the next member, then up."""
    steps: list[tuple[float, float]] = []
    for ratio, height in zip(ratios, heights, strict=True):
        if not steps or axis.sign * height > axis.sign * steps[-1][1]:
            steps.append((ratio, height))
    corners = [(right[0], left[1]) for left, right in pairwise(steps)]
    path = [point for pair in zip(steps, corners, strict=False) for point in pair] + steps[-1:]
    path += [(1.0, steps[-1][1])] if steps and steps[-1][0] < 1 else []
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "front",
        "x": [x for x, _ in path],
        "y": [y for _, y in path],
        "line": {"color": "#1553a8", "width": 1.5},
        "opacity": 0.45,
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _hover_schemes(text: str) -> str:
    return "<br>".join(escape(part) for part in text.split(", "))


def _ranges(
    latencies: Sequence[Latency], heights: Sequence[float], points: Sequence[_Point], axis: _Axis
) -> tuple[tuple[float, float], tuple[float, float]]:
    ratios = [end for latency in latencies for end in (latency.ratio_low, latency.ratio_high)]
    xs = [*ratios, *_central([ratio for _, ratio, _ in points]), 1.0]
    ys = [*heights, *_central([height for _, _, height in points])] or [0.0, 10 * axis.least_height]
    return _padded(min(xs), max(xs), 0.1), _padded(min(ys), max(ys), axis.least_height)


def _central(values: Sequence[float]) -> list[float]:
    if len(values) < _N_QUANTILES:
        return list(values)
    cuts = quantiles(values, n=_N_QUANTILES, method="inclusive")
    return [cuts[0], cuts[-1]]


def _padded(low: float, high: float, least: float) -> tuple[float, float]:
    pad = max(0.06 * (high - low), least / 2)
    return low - pad, high + pad


def _layout(x_range: Sequence[float], y_range: Sequence[float], y_title: str) -> dict[str, object]:
    axis = {"gridcolor": "#e8ebef", "zeroline": False, "linecolor": "#c3cad3", "ticks": "outside", "ticklen": 4}
    axis |= {"tickcolor": "#c3cad3", "title": {"standoff": 10}}
    float_line = {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "layer": "above"}
    float_label = {"x": 1, "yref": "paper", "y": 0, "text": "float", "showarrow": False, "xanchor": "left"}
    return {
        "xaxis": axis | {"title": {"text": "latency ratio against float", "standoff": 10}, "range": list(x_range)},
        "yaxis": axis | {"title": {"text": y_title, "standoff": 8}, "range": list(y_range)},
        "shapes": [float_line | {"line": {"color": "#5d6775", "width": 1.5, "dash": "dash"}}],
        "annotations": [float_label | {"yanchor": "bottom", "xshift": 3, "font": {"color": "#5d6775", "size": 13}}],
        "legend": {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "traceorder": "reversed"},
        "margin": {"l": 58, "r": 16, "t": 30, "b": 56},
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "color": "#333c48", "size": 13},
        "hoverlabel": {"align": "left", "bgcolor": "#ffffff", "bordercolor": "#c3cad3", "font": {"color": "#1c2430"}},
        "hovermode": "closest",
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "autosize": True,
    }


def _caption(
    evaluations: Sequence[Evaluation],
    points: Sequence[_Point],
    ranges: tuple[tuple[float, float], tuple[float, float]],
    axis: _Axis,
) -> str:
    (left, right), (bottom, top) = ranges
    n_outside = sum(not (left <= ratio <= right and bottom <= height <= top) for _, ratio, height in points)
    n_missing = sum(isinstance(evaluation.outcome, Measurement) for evaluation in evaluations) - len(points)
    up = "closer to the float model" if axis.metric is None else f"better in {axis.metric}"
    sentences = [f"Further left is faster, further up is {up}."]
    if n_outside:
        sentences.append(f"Outside the first view: {n_outside} of the evaluations; a double-click shows them.")
    if n_missing:
        missing = "finite SNR" if axis.metric is None else f"value of {axis.metric}"
        sentences.append(f"Not drawn, for want of a latency here or of a {missing}: {n_missing} of the evaluations.")
    return " ".join(sentences)
