"""Lines of the table of speeds: what was demanded, what was measured, how sure that is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Interval",
    "Line",
    "interval_of",
    "line_from",
    "milliseconds",
    "paired_ratio",
    "ratio_of_medians",
    "ratio_of_sums",
    "render_table",
]

Floats = npt.NDArray[np.float64]
N_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % bootstrap interval; both ends are the estimate where it was measured once."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table.

    Attributes:
        name: Unique.
        text: What was measured.
        bound: What was demanded.
        at_most: Whether ``bound`` is an upper bound, not a lower one.
        measured: The estimate.
        unit: Behind the numbers, such as ``x``.
        note: What else a reader should know.
    """

    name: str
    text: str
    bound: float
    at_most: bool
    measured: Interval
    unit: str
    note: str

    @property
    def holds(self) -> bool:
        """Whether the estimate meets the demand."""
        value = self.measured.value
        return value <= self.bound if self.at_most else value >= self.bound


def ratio_of_medians(numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0) -> Interval:
    """Of two independent samples, each resampled."""
    a, b = np.asarray(numerator, float), np.asarray(denominator, float)
    rng = np.random.default_rng(seed)
    medians = [np.median(rng.choice(x, (N_RESAMPLES, len(x))), axis=1) for x in (a, b)]
    return _interval(float(np.median(a) / np.median(b)), medians[0] / medians[1])


def paired_ratio(numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0) -> Interval:
    """Median of the ratios of pairs."""
    ratios = np.asarray(numerator, float) / np.asarray(denominator, float)
    return _resampled(len(ratios), lambda i: float(np.median(ratios[i])), seed)


def ratio_of_sums(numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0) -> Interval:
    """Sum over sum of pairs: a long pair counts for more."""
    a, b = np.asarray(numerator, float), np.asarray(denominator, float)
    return _resampled(len(a), lambda i: float(a[i].sum() / b[i].sum()), seed)


def interval_of(value: float) -> Interval:
    """Of a number that was measured once."""
    return Interval(value, value, value)


def _resampled(n: int, statistic: Callable[[npt.NDArray[np.int64]], float], seed: int) -> Interval:
    rng = np.random.default_rng(seed)
    return _interval(
        statistic(np.arange(n)), np.array([statistic(rng.integers(n, size=n)) for _ in range(N_RESAMPLES)])
    )


def _interval(value: float, resampled: Floats) -> Interval:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def render_table(lines: Iterable[Line]) -> str:
    """Markdown; the interval is left out where a line was measured once."""
    head = "| line | demand | measured | 95 % | holds | note |\n|---|---|---|---|---|---|\n"
    return head + "".join(_row(line) for line in lines)


def _row(line: Line) -> str:
    m = line.measured
    demand = f"{'at most' if line.at_most else 'at least'} {line.bound:g} {line.unit}"
    spread = "once" if m.low == m.high else f"{_number(m.low)} to {_number(m.high)}"
    holds = "yes" if line.holds else "**no**"
    return f"| {line.text} | {demand} | {_number(m.value)} {line.unit} | {spread} | {holds} | {line.note} |\n"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def milliseconds(seconds: Sequence[float]) -> str:
    """Median in ms, for notes."""
    return f"{_number(1e3 * float(np.median(np.asarray(seconds))))} ms"


def line_from(record: dict[str, Any]) -> Line:
    """The line that ``dataclasses.asdict`` made a record of."""
    return Line(**{**record, "measured": Interval(**record["measured"])})
