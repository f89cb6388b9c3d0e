"""``report.html``: one self-contained page, plotly.js included, that loads nothing from a network."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from autoquant.domain.front import Front, RunRecord
from autoquant.domain.measurement import Evaluation, Failure, SnrInterval
from autoquant.domain.metric import MetricValue
from autoquant.domain.region import Region
from autoquant.domain.scheme import FLOAT
from autoquant.domain.target import Target
from autoquant.report.ledger import ledger_view, signed_text
from autoquant.report.plot import plot_of
from autoquant.report.prices import decibel_prices
from autoquant.report.summary import (
    asked_db,
    bytes_text,
    evaluations_sentence,
    headline,
    interval_text,
    objectives_sentence,
    ratio_text,
)
from autoquant.report.texts import LONGEST_LABEL, snr_text, worst_text

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

_N_SHOWN = 15
"""Rows of each table of the ledger that are open; the others unfold."""


@dataclass(frozen=True, slots=True)
class _SchemeKey:
    """A scheme in the legend of the regions: what its cells say and look like, and how many there are."""

    name: str
    label: str
    colour: str
    n_cells: int


def report_html(record: RunRecord) -> str:
    """Render the report of one search.

    Returns:
        A whole HTML document; text from the record is escaped, and the page's content policy forbids any request.
    """
    import jinja2
    import plotly.offline

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("autoquant.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"sort_keys": True, "allow_nan": False}
    environment.filters |= {
        "bytes": bytes_text,
        "file_name": lambda path: PurePath(path).name,
        "interval": interval_text,
        "number": _number_text,
        "percent": lambda value: _number_text(value, scale=100, form=".2f"),
        "decibels": _decibels_text,
        "operators": _operators_text,
        "plain": _plain_text,
        "ratio": ratio_text,
        "signed": signed_text,
        "snr": snr_text,
    }
    front = record.front
    return environment.get_template("report.html.j2").render(
        record=record,
        front=front,
        headline=headline(record),
        objectives=objectives_sentence(front),
        demands=front.best_members(asked_db=asked_db(record)),
        quantized=[member for member in front.members if member.quality is not None],
        ms_digits={target.name: _ms_digits(front, target) for target in front.targets},
        metrics=list(front.members[-1].metrics),
        plots=[plot_of(record, target) for target in front.targets],
        schemes={key.name: key for key in _scheme_keys(front)},
        prices=decibel_prices(front),
        ledger=ledger_view(record),
        n_shown=_N_SHOWN,
        evaluations=evaluations_sentence(record.evaluations, record.n_earlier),
        failures=_failures(record.evaluations),
        most_work=max((region.work for region in record.regions), default=0.0) or 1.0,
        seconds=sum(record.phases.values()),
        plotly_js=plotly.offline.get_plotlyjs(),
    )


def _scheme_keys(front: Front) -> list[_SchemeKey]:
    counts = Counter(scheme for member in front.members for scheme in member.assignment.values())
    counts.pop(FLOAT, None)
    names = sorted(counts, key=lambda name: (-counts[name], name))
    is_short = all(len(name) <= LONGEST_LABEL for name in names)
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


def _decibels_text(found: SnrInterval) -> str:
    """Like ``41.2 dB (40.1 to 42.3)``."""
    low, high, text = found.low_db, found.high_db, worst_text(found.worst_db)
    is_known = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
    return f"{text} ({low:.1f} to {high:.1f})" if is_known else text


def _number_text(found: MetricValue, scale: float = 1, form: str = ".4g") -> str:
    """Like ``0.983 (0.96 to 0.99)``."""
    value, low, high = (format(scale * number + 0.0, form) for number in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})" if found.has_interval else value


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
