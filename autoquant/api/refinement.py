"""Finalists with integers that took longer to find."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.api.data import SearchData
from autoquant.api.deadline import REFINE_SHARE, Deadline
from autoquant.api.finalists import Refine, Refined
from autoquant.api.ingredients import Ingredients
from autoquant.api.refiner import RefinerSetup
from autoquant.calibration.spread import spread
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import Assignment
from autoquant.domain.rewrite import Rewrites
from autoquant.errors import ModelError
from autoquant.isolation.process import Worker
from autoquant.measurement.roster import NO_MEMORY

__all__ = ["ENDED", "Refinement", "refine_of"]

ENDED = "refinement ended"
"""So begins what is said where it failed or the user wanted no more of it."""

_MOST_CALIBRATING, _MOST_JUDGED = 256, 32
"""Samples that are sent to the process."""
_PATIENCE_S, _LEAST_PATIENCE_S = 10.0, 2.0
"""As long again as there is time, within these bounds, may the process take before it is taken to hang."""
_LOOKING_S = 0.1
"""Between two looks at whether the user wants no more of it."""


def refine_of(
    ingredients: Ingredients,
    data: SearchData,
    deadline: Deadline,
    *,
    rewrites: Rewrites,
    memory_bytes: int | None,
    cache_folder: Path,
    is_ended: Callable[[], bool],
    notes: list[str],
) -> Refine | None:
    """What refines finalists; None where the level of accuracy is not ``full``, or all schemes are dynamic.

    Args:
        ingredients: What candidates are built from.
        data: That the search had time for.
        deadline: Of the search, a share of which is for this, and at most half of what is left.
        rewrites: Those that are used.
        memory_bytes: Data that the process may have.
        cache_folder: Where rounded weights and observed biases are kept.
        is_ended: Whether the user wants no more of it.
        notes: Gets a sentence where something could not be refined.
    """
    if ingredients.definition.accuracy is not Accuracy.FULL or not ingredients.definition.has_static:
        return None
    n_calibration = ingredients.statistics.n_samples
    seconds = min(REFINE_SHARE * deadline.limit_s, deadline.left / 2)
    end = deadline.elapsed + seconds
    judged = spread(data.search, _MOST_JUDGED, "search")
    setup = RefinerSetup(
        ingredients=ingredients,
        calibration=spread(data.calibration, min(n_calibration, _MOST_CALIBRATING), "calibration"),
        judged=tuple(judged.feeds),
        rewrites=rewrites,
        seconds=seconds,
        cache_folder=cache_folder,
        judged_names=judged.names,
    )

    return Refinement(
        Worker(setup, memory_bytes=memory_bytes),
        lambda: end - deadline.elapsed,
        notes=notes,
        is_ended=is_ended,
        left_alone=frozenset(scheme.name for scheme in ingredients.definition.schemes if scheme.is_dynamic),
    )


@dataclass(slots=True)
class Refinement:
    """Refines finalists in a process of its own; what goes wrong there costs the refinements that are still to come.

    Attributes:
        worker: Of a ``Refiner``.
        left: Seconds until nothing may be begun any more.
        notes: Gets a sentence where something could not be refined.
        is_ended: Whether the user wants no more of it; what runs then is ended, too.
        left_alone: Schemes of which nothing is refined.
        once_s: Seconds so far that another finalist will not take again.
    """

    worker: Worker
    left: Callable[[], float]
    notes: list[str]
    is_ended: Callable[[], bool] = lambda: False
    left_alone: frozenset[str] = frozenset()
    once_s: float = field(init=False, default=0.0)
    _is_over: bool = field(init=False, default=False)

    @property
    def is_over(self) -> bool:
        """Whether there is no time, the user wants no more of it, or it failed."""
        return self._is_over or self.left() <= 0 or self.is_ended()

    def __call__(self, assignment: Assignment) -> Refined | None:
        """The refined candidate; None where the time is over, nothing is quantized, or it cannot be done."""
        if self.is_over or self.left_alone.issuperset(assignment.values()):
            return None
        start, before_s = time.perf_counter(), self.once_s
        try:
            with self._watched():
                refined = self._refined(assignment)
        except ModelError as error:
            note = f"refinement: a finalist stays as it is: {error}"
            self.notes.extend([] if note in self.notes else [note])
            return None
        except Exception as error:  # whatever it is, the plain finalists are there
            self._is_over = True
            self.once_s = before_s + time.perf_counter() - start
            self.notes.append(f"{ENDED}, the other finalists stay as they are: {self._reason(error)}")
            return None
        if refined is not None:
            self.once_s += refined.once_s
        return refined

    def _refined(self, assignment: Assignment) -> Refined | None:
        start = time.perf_counter()
        if not self.worker.is_running:
            self.worker.ready(seconds=self._limit_s(self.left()))
            self.once_s += time.perf_counter() - start
        left_s = self.left()
        if left_s <= 0:
            return None
        refined: Refined
        refined, notes = self.worker.call("refine", assignment, left_s, seconds=self._limit_s(left_s))
        self.notes.extend(notes)
        return refined

    @staticmethod
    def _limit_s(left_s: float) -> float | None:
        return None if math.isinf(left_s) else left_s + min(_PATIENCE_S, max(_LEAST_PATIENCE_S, left_s))

    def _reason(self, error: Exception) -> str:
        if self.is_ended():
            return "the user wanted no more of it"
        return NO_MEMORY if isinstance(error, MemoryError) else str(error)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """End the process as soon as the user wants no more of it."""
        is_done = threading.Event()

        def watch() -> None:
            while not is_done.wait(_LOOKING_S):
                if self.is_ended():
                    self.worker.give_up()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            is_done.set()
            watcher.join()

    def close(self) -> None:
        """End the process."""
        self.worker.close()
