"""``report.html``: one self-contained page, plotly.js included, that loads nothing from a network."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import PurePath
from statistics import quantiles

import jinja2
import plotly.offline

from autoquant.domain.front import Front, Member, RunRecord
from autoquant.domain.measurement import Evaluation, Failure, Latency, Measurement, Quality, SnrInterval
from autoquant.domain.metric import MetricValue
from autoquant.domain.region import Region
from autoquant.domain.scheme import FLOAT
from autoquant.domain.target import Target
from autoquant.report.ledger import ledger_view, signed_text
from autoquant.report.prices import decibel_prices
from autoquant.report.summary import (
    best_members,
    evaluations_sentence,
    headline,
    interval_text,
    objectives_sentence,
    quality_metric,
    ratio_text,
    schemes_text,
)

__all__ = ["report_html"]

_COLOURS = [
    "#a8cdf0",
    "#f6c58f",
    "#a9dcb0",
    "#e3b3d6",
    "#f2e08a",
    "#9fdcd8",
    "#f3aea6",
    "#c5bdf0",
    "#d3c3a5",
    "#c9e08d",
    "#b4c4d4",
    "#f0b7cb",
]
"""Light enough for dark text; every cell is lettered too, so that colour is never the only sign."""

_FLOAT_COLOUR = "#eef0f3"
_LONGEST_LABEL = 6
_N_QUANTILES = 50
"""Of fifty parts of the evaluations, the first and the last start outside the first view of the plot."""

_N_SHOWN = 15
"""Rows of each table of the ledger that are open; the others unfold."""

_REJECTED_MARKER = {"color": "#9aa6b4", "opacity": 0.7, "size": 6, "symbol": "circle-open", "line": {"width": 1}}
_EVALUATED_MARKER = {"color": "#7f93ab", "opacity": 0.5, "size": 6}

_Point = tuple[Evaluation, float, float]
"""An evaluation with its latency ratio and what the plot has upwards."""


@dataclass(frozen=True, slots=True)
class _SchemeKey:
    """A scheme in the legend of the regions: what its cells say and look like, and how many there are."""

    name: str
    label: str
    colour: str
    n_cells: int


@dataclass(frozen=True, slots=True)
class _Plot:
    """The front on one target, as plotly.js takes it."""

    target: str
    figure: Mapping[str, object]
    caption: str


@dataclass(frozen=True, slots=True)
class _Axis:
    """What the plot has upwards: SNR in dB, or in % how a metric compares with float where SNR is no objective."""

    metric: str | None

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
            return -100 * drops[self.metric] + 0.0 if self.metric in drops else None
        return quality.worst_db if math.isfinite(quality.worst_db) else None


def report_html(record: RunRecord) -> str:
    """Render the report of one search.

    Returns:
        A whole HTML document; text from the record is escaped, and the page's content policy forbids any request.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("autoquant.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "allow_nan": False}
    environment.filters |= {
        "bytes": _bytes_text,
        "file_name": lambda path: PurePath(path).name,
        "interval": interval_text,
        "number": _number_text,
        "percent": lambda value: _number_text(value, scale=100, form=".2f"),
        "decibels": _decibels_text,
        "operators": _operators_text,
        "plain": _plain_text,
        "ratio": ratio_text,
        "signed": signed_text,
        "snr": _snr_text,
    }
    front = record.front
    return environment.get_template("report.html.j2").render(
        record=record,
        front=front,
        headline=headline(record),
        objectives=objectives_sentence(front),
        demands=best_members(front),
        quantized=[member for member in front.members if member.quality is not None],
        ms_digits={target.name: _ms_digits(front, target) for target in front.targets},
        metrics=list(front.members[-1].metrics),
        plots=[_plot(record, target) for target in front.targets],
        schemes={key.name: key for key in _scheme_keys(front)},
        prices=decibel_prices(front),
        ledger=ledger_view(record),
        n_shown=_N_SHOWN,
        evaluations=evaluations_sentence(record.evaluations),
        failures=_failures(record.evaluations),
        most_work=max((region.work for region in record.regions), default=0.0) or 1.0,
        seconds=sum(record.phases.values()),
        plotly_js=plotly.offline.get_plotlyjs(),
    )


def _scheme_keys(front: Front) -> list[_SchemeKey]:
    counts = Counter(scheme for member in front.members for scheme in member.assignment.values())
    counts.pop(FLOAT, None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    is_short = all(len(name) <= _LONGEST_LABEL for name in names)
    keys = [
        _SchemeKey(name, name if is_short else _letters(i), _COLOURS[i % len(_COLOURS)], counts[name])
        for i, name in enumerate(names)
    ]
    return [*keys, _SchemeKey(FLOAT, "", _FLOAT_COLOUR, 0)]


def _letters(index: int) -> str:
    """A, B ... Z, AA, AB ...

    >>> _letters(0), _letters(27)
    ('A', 'AB')
    """
    return ("" if index < 26 else _letters(index // 26 - 1)) + chr(ord("A") + index % 26)


def _failures(evaluations: Iterable[Evaluation]) -> list[tuple[str, int]]:
    failures = (evaluation.outcome for evaluation in evaluations)
    found = Counter(f"{failure.stage}: {failure.reason}" for failure in failures if isinstance(failure, Failure))
    return found.most_common(10)


def _operators_text(region: Region) -> str:
    counts = Counter(region.op_types)
    return ", ".join(f"{n} {op_type}" if n > 1 else op_type for op_type, n in counts.most_common())


def _snr_text(member: Member) -> str:
    if member.quality is None:
        return "reference"
    return _worst_text(member.quality.worst_db)


def _worst_text(worst_db: float) -> str:
    return f"{worst_db:.1f} dB" if math.isfinite(worst_db) else "equal" if worst_db > 0 else "no signal"


def _decibels_text(found: SnrInterval) -> str:
    """Like ``41.2 dB (40.1 to 42.3)``."""
    low, high, text = found.low_db, found.high_db, _worst_text(found.worst_db)
    is_known = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    return f"{text} ({low:.1f} to {high:.1f})" if is_known else text


def _number_text(found: MetricValue, scale: float = 1, form: str = ".4g") -> str:
    """Like ``0.983 (0.96 to 0.99)``."""
    value, low, high = (format(scale * number + 0.0, form) for number in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})" if found.has_interval else value


def _bytes_text(size: int) -> str:
    if size < 1_000_000:
        return f"{size / 1e3:.1f} kB"
    return f"{size / 1e6:.1f} MB" if size < 1_000_000_000 else f"{size / 1e9:.2f} GB"


def _ms_digits(front: Front, target: Target) -> int:
    """Decimals that give the fastest member of a column three significant digits."""
    fastest = min(member.latency[target.name].median_ms for member in front.members)
    return min(max(2 - math.floor(math.log10(fastest)), 0), 6) if fastest > 0 else 3


def _plain_text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain_text(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain_text, value)) or "none"
    if value is None:
        return "not given"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _plot(record: RunRecord, target: Target) -> _Plot:
    axis = _Axis(quality_metric(record.front))
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
        _stairs_trace([member.latency[target.name].ratio for member in members], heights),
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
    return _Plot(target.name, {"data": data, "layout": _layout(*ranges, axis.title)}, caption)


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
        "text": [escape(member.id) if len(member.id) <= _LONGEST_LABEL else "" for member in members],
        "textposition": "top left",
        "textfont": {"color": "#1553a8", "size": 11},
        "hovertext": [
            f"<b>{escape(member.id)}</b><br>ratio {ratio_text(latency, 3)} ({interval_text(latency, 3)})<br>"
            f"{latency.median_ms:.3g} ms<br>SNR {_snr_text(member)}<br>{_metric_line(member, axis)}"
            + _hover_schemes(schemes_text(member.assignment, n_regions))
            for member, latency in zip(members, latencies, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "marker": {"color": "#1553a8", "size": 10, "line": {"color": "#ffffff", "width": 1.5}},
    }


def _metric_line(member: Member, axis: _Axis) -> str:
    height = axis.of_member(member)
    return "" if axis.metric is None or height is None else f"{axis.text(height)}<br>"


def _stairs_trace(ratios: Sequence[float], heights: Sequence[float]) -> dict[str, object]:
    """The least ratio that each demand can have: right along a member's height to the next member, then up."""
    steps: list[tuple[float, float]] = []
    for ratio, height in zip(ratios, heights, strict=True):
        if not steps or height > steps[-1][1]:
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


def _layout(x_range: tuple[float, float], y_range: tuple[float, float], y_title: str) -> dict[str, object]:
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
