"""Finalists with integers that took longer to find."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoquant.api import steps
from autoquant.api.deadline import REFINE_SHARE, Deadline
from autoquant.api.evaluator import Ingredients
from autoquant.api.finalists import Refine, Refined
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import Rounding
from autoquant.qdq.builder import Builder

__all__ = ["refine_of"]

_ROUNDING_SHARE = 0.5
"""Of the time, for the weights of all finalists; the rest is for the biases of each."""
_BIASES_SHARE = 0.1
"""Of the time, for the biases of one finalist."""


def refine_of(ingredients: Ingredients, samples: Samples, deadline: Deadline, has_plain_sums: bool) -> Refine:
    """What refines finalists; nothing where the level of accuracy is not ``full``.

    Args:
        ingredients: What candidates are built from.
        samples: Calibration samples.
        deadline: Of the search, a share of which is for this.
        has_plain_sums: What probing the forms gave.
    """
    if ingredients.definition.accuracy is not Accuracy.FULL:
        return lambda _: None
    seconds = REFINE_SHARE * (math.inf if deadline.seconds is None else deadline.seconds)
    end = deadline.elapsed + seconds
    return _Refinement(ingredients, samples, has_plain_sums, seconds, lambda: end - deadline.elapsed)


@dataclass(slots=True)
class _Refinement:
    """Rounds weights with error feedback, then takes off what each operator's mean still drifts by.

    The order is that of the papers: a bias makes up for what rounding left. Both look at calibration samples alone.

    Attributes:
        ingredients: What candidates are built from.
        samples: Calibration samples.
        has_plain_sums: What probing the forms gave.
        seconds: For all finalists.
        left: Seconds until nothing may be begun any more.
    """

    ingredients: Ingredients
    samples: Samples
    has_plain_sums: bool
    seconds: float
    left: Callable[[], float]
    _builder: Builder = field(init=False)

    def __post_init__(self) -> None:
        found = self.ingredients
        schemes = tuple(replace(scheme, rounding=Rounding.GPTQ) for scheme in found.definition.schemes)
        space = replace(found.definition, schemes=schemes)
        parts = found.prepared, found.regions, found.statistics
        rounder = steps.round_weights(*parts, self.samples, space=space, seconds=_ROUNDING_SHARE * self.seconds)
        self._builder = steps.builder_of(*parts, space=space, rounder=rounder)
        self._builder.write_plain_sums(self.has_plain_sums)

    def __call__(self, assignment: Assignment) -> Refined | None:
        """The refined candidate; None where the time is over or nothing is quantized."""
        seconds = min(_BIASES_SHARE * self.seconds, self.left())
        if seconds <= 0 or not assignment:
            return None
        shifts = steps.observe_shifts(
            self.ingredients.prepared, self._builder, assignment, self.samples, seconds=seconds
        )
        return Refined(
            candidate=self._builder.build(assignment, shifts),
            algorithms=(f"rounding {Rounding.GPTQ}", "bias observed"),
        )
