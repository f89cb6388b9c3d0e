"""Finalists with integers that took longer to find."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from autoquant.api.data import SearchData
from autoquant.api.deadline import REFINE_SHARE, Deadline
from autoquant.api.evaluator import Ingredients
from autoquant.api.finalists import Refine, Refined
from autoquant.api.refiner import RefinerSetup
from autoquant.calibration.batches import select
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import Assignment
from autoquant.isolation.process import Worker

__all__ = ["Refinement", "refine_of"]

_MOST_CALIBRATING, _MOST_JUDGED = 256, 32
"""Samples that are sent to the process."""
_PATIENCE_S = 10.0
"""So much longer, and twice as long as there is time, may the process take before it is taken to hang."""


def refine_of(
    ingredients: Ingredients,
    data: SearchData,
    n_search: int,
    deadline: Deadline,
    *,
    has_plain_sums: bool,
    memory_bytes: int | None,
    is_ended: Callable[[], bool],
    notes: list[str],
) -> Refine | None:
    """What refines finalists; None where the level of accuracy is not ``full``.

    Args:
        ingredients: What candidates are built from.
        data: Of the search.
        n_search: Evaluation samples that the search had time for.
        deadline: Of the search, a share of which is for this, and at most half of what is left.
        has_plain_sums: What probing the forms gave.
        memory_bytes: Data that the process may have.
        is_ended: Whether the user wants no more of it.
        notes: Gets a sentence where something could not be refined.
    """
    if ingredients.definition.accuracy is not Accuracy.FULL:
        return None
    n_calibration = ingredients.statistics.n_samples
    seconds = min(REFINE_SHARE * deadline.limit_s, deadline.left / 2)
    end = deadline.elapsed + seconds
    setup = RefinerSetup(
        ingredients=ingredients,
        calibration=select(data.calibration, range(min(n_calibration, _MOST_CALIBRATING)), "calibration"),
        judged=tuple(data.search.feeds[: min(n_search, _MOST_JUDGED)]),
        has_plain_sums=has_plain_sums,
        seconds=seconds,
    )

    def left() -> float:
        return 0.0 if is_ended() else end - deadline.elapsed

    return Refinement(Worker(setup, memory_bytes=memory_bytes), left, notes)


@dataclass(slots=True)
class Refinement:
    """Refines finalists in a process of its own; what goes wrong there costs the refinements that are still to come.

    Attributes:
        worker: Of a ``Refiner``.
        left: Seconds until nothing may be begun any more.
        notes: Gets a sentence where something could not be refined.
    """

    worker: Worker
    left: Callable[[], float]
    notes: list[str]
    _has_failed: bool = field(init=False, default=False)

    def __call__(self, assignment: Assignment) -> Refined | None:
        """The refined candidate; None where the time is over, nothing is quantized, or it cannot be done."""
        left_s = self.left()
        if self._has_failed or not assignment or left_s <= 0:
            return None
        limit_s = None if math.isinf(left_s) else _PATIENCE_S + 2 * left_s
        try:
            refined: Refined
            refined, notes = self.worker.call("refine", assignment, left_s, seconds=limit_s)
        except Exception as error:  # whatever it is, the plain finalists are there
            self._has_failed = True
            reason = "there is not enough memory" if isinstance(error, MemoryError) else str(error)
            self.notes.append(f"refinement ended, the other finalists stay as they are: {reason}")
            return None
        self.notes.extend(notes)
        return refined

    def close(self) -> None:
        """End the process."""
        self.worker.close()
