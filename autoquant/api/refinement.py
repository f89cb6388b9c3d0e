"""Finalists with integers that took longer to find."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from autoquant.api import steps
from autoquant.api.deadline import REFINE_SHARE, Deadline
from autoquant.api.evaluator import Ingredients
from autoquant.api.finalists import Refine, Refined
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.feed import Samples
from autoquant.domain.region import Assignment
from autoquant.domain.scheme import Rounding
from autoquant.errors import AutoquantError
from autoquant.qdq.builder import Builder
from autoquant.rounding.rounded import RoundedWeights

__all__ = ["Refinement", "refine_of"]

_ROUNDING_SHARE = 0.5
"""Of the time, for the weights of all finalists; the rest is for the biases of each."""
_BIASES_SHARE = 0.1
"""Of the time, for the biases of one finalist."""


def refine_of(
    ingredients: Ingredients,
    samples: Samples,
    deadline: Deadline,
    *,
    has_plain_sums: bool,
    is_ended: Callable[[], bool],
    notes: list[str],
) -> Refine | None:
    """What refines finalists; None where the level of accuracy is not ``full``.

    Args:
        ingredients: What candidates are built from.
        samples: Calibration samples.
        deadline: Of the search, a share of which is for this, and at most half of what is left.
        has_plain_sums: What probing the forms gave.
        is_ended: Whether the user wants no more of it.
        notes: Gets a sentence where something could not be refined.
    """
    if ingredients.definition.accuracy is not Accuracy.FULL:
        return None
    seconds = min(REFINE_SHARE * deadline.limit_s, deadline.left / 2)
    end = deadline.elapsed + seconds

    def left() -> float:
        return 0.0 if is_ended() else end - deadline.elapsed

    return Refinement(ingredients, samples, has_plain_sums, seconds, left, notes)


@dataclass(slots=True)
class Refinement:
    """Rounds weights with error feedback, then takes off what each operator's mean still drifts by.

    The order is that of the papers: a bias makes up for what rounding left. Both look at calibration samples alone.

    Attributes:
        ingredients: What candidates are built from.
        samples: Calibration samples.
        has_plain_sums: What probing the forms gave.
        seconds: For all finalists.
        left: Seconds until nothing may be begun any more.
        notes: Gets a sentence where something could not be refined.
    """

    ingredients: Ingredients
    samples: Samples
    has_plain_sums: bool
    seconds: float
    left: Callable[[], float]
    notes: list[str]
    _made: tuple[Builder, RoundedWeights] | None = field(init=False, default=None)
    _has_failed: bool = field(init=False, default=False)

    def __call__(self, assignment: Assignment) -> Refined | None:
        """The refined candidate; None where the time is over, nothing is quantized, or it cannot be done."""
        if self._has_failed or not assignment or self.left() <= 0:
            return None
        try:
            with steps.running(self.ingredients.prepared.source):
                return self._refined(assignment)
        except (AutoquantError, np.linalg.LinAlgError) as error:
            self._has_failed = True
            self.notes.append(f"refinement ended, the other finalists stay as they are: {error}")
            return None

    def _refined(self, assignment: Assignment) -> Refined:
        builder, rounder = self._builder()
        seconds = max(0.0, min(_BIASES_SHARE * self.seconds, self.left()))
        shifts = steps.observe_shifts(self.ingredients.prepared, builder, assignment, self.samples, seconds=seconds)
        done = ((f"rounding {Rounding.GPTQ}", bool(rounder.integers)), ("bias observed", bool(shifts)))
        return Refined(
            candidate=builder.build(assignment, shifts), algorithms=tuple(name for name, is_done in done if is_done)
        )

    def _builder(self) -> tuple[Builder, RoundedWeights]:
        """Made at the first call: a search without finalists rounds nothing."""
        if self._made is None:
            found = self.ingredients
            schemes = tuple(replace(scheme, rounding=Rounding.GPTQ) for scheme in found.definition.schemes)
            space = replace(found.definition, schemes=schemes)
            parts = found.prepared, found.regions, found.statistics
            rounder = steps.round_weights(*parts, self.samples, space=space, seconds=_ROUNDING_SHARE * self.seconds)
            if rounder.unfinished:
                self.notes.append(f"refinement: there was no time to round {len(rounder.unfinished)} weights")
            builder = steps.builder_of(*parts, space=space, rounder=rounder)
            builder.write_plain_sums(self.has_plain_sums)
            self._made = builder, rounder
        return self._made
