"""What a metric is, and what it says of a model."""

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "Accuracy",
    "Agreement",
    "Cosine",
    "Custom",
    "Direction",
    "MemberMetric",
    "Metric",
    "MetricResult",
    "MetricSource",
    "MetricValue",
    "PartValues",
    "default_name",
]


class Direction(StrEnum):
    """Which values of a metric are better."""

    HIGHER = "max"
    LOWER = "min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """Cosine similarity with the float model's output.

    Attributes:
        output: Name of a float output; empty for all of them, of which the worst counts in each sample.
    """

    output: str = ""

    def __str__(self) -> str:
        return f"cosine{_at(self.output)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How often the float model's class is among the candidate's ``k`` highest scores.

    Attributes:
        k: At least 1.
        output: Name of the output with the scores; empty for the only float output.
        axis: Of the classes.
    """

    k: int
    output: str = ""
    axis: int = -1

    def __str__(self) -> str:
        return f"top{self.k}{_at(self.output)}{_along(self.axis)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """How often the class with the highest score is that of the label.

    Attributes:
        label: Name of the array of classes; empty for ``label``, or for the only one.
        output: Name of the output with the scores, or with the classes where it holds integers; empty for the only one.
        axis: Of the classes.
    """

    label: str = ""
    output: str = ""
    axis: int = -1

    def __str__(self) -> str:
        label = f".{self.label}" if self.label else ""
        return f"accuracy{label}{_at(self.output)}{_along(self.axis)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """A function of the user's own.

    Attributes:
        module: Importable from the current folder.
        function: Its name in the module.
    """

    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


MetricSource = Cosine | Agreement | Accuracy | Custom
"""Where the number comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What is measured of the outputs of a model; ``str`` gives the spelling that ``metrics.grammar`` reads.

    Attributes:
        name: In tables and messages; unique among the metrics of a search.
        source: Where the number comes from.
        direction: Which values are better; always ``HIGHER`` for the built-in sources.
    """

    name: str
    source: MetricSource
    direction: Direction = Direction.HIGHER

    def __str__(self) -> str:
        direction = ":min" if self.direction is Direction.LOWER else ""
        name = "" if self.name == default_name(self.source) else f"{self.name}="
        return f"{name}{self.source}{direction}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """A number over samples and how far to trust it.

    Attributes:
        value: Over all the samples, finite.
        low: Lower end of the 95 % interval over samples; ``-inf`` where it is unknown.
        high: Upper end; ``inf`` where it is unknown.
        n_samples: Behind the number.
    """

    value: float
    n_samples: int
    low: float = -math.inf
    high: float = math.inf

    @property
    def has_interval(self) -> bool:
        """Whether the interval is known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """What a metric says of a candidate beside the float model, both on the same samples.

    ``drop`` is how much worse the candidate is: float - candidate where higher is better, candidate - float where lower
    is, divided by ``max(1, |float|)``. So it is in absolute points where float's value lies within [-1, 1], as every
    share does (0.005 is half a percentage point), and relative to float's value beyond; negative where the candidate is
    better. Its interval is paired: of the differences, sample by sample.

    Attributes:
        candidate: The candidate's value.
        reference: The float model's value; exactly 1 for the built-in metrics that compare with it.
        drop: How much worse the candidate is.
    """

    candidate: MetricValue
    reference: MetricValue
    drop: MetricValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PartValues:
    """One number on each part of the evaluation data.

    Attributes:
        all: On both parts together.
        search: On the samples that the search compared candidates on.
        held_out: On the samples that only the last measurement saw; None where there are none or too few.
    """

    all: MetricValue
    search: MetricValue
    held_out: MetricValue | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetric:
    """What a metric says of a delivered model.

    Attributes:
        value: The model's own.
        drop: How much worse than float it is, as in ``MetricResult``.
    """

    value: PartValues
    drop: PartValues


def default_name(source: MetricSource) -> str:
    """How a metric is called that was given no name: as it is spelled, and the user's own like its function."""
    return source.function if isinstance(source, Custom) else str(source)


def _at(output: str) -> str:
    return f"@{output}" if output else ""


def _along(axis: int) -> str:
    return "" if axis == -1 else f"#{axis}"
