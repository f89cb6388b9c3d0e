"""Finalists with integers that took longer to find."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from autoquant.api import steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.deadline import N_FINALISTS, Deadline
from autoquant.api.evaluator import Ingredients
from autoquant.api.finalists import Refined
from autoquant.api.refiner import RefinerSetup
from autoquant.api.rehearsal import Rehearsal, Rehearsed
from autoquant.calibration.batches import select
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import Assignment
from autoquant.front.selection import choose_finalists
from autoquant.isolation.process import Worker
from autoquant.model.io import size_bytes_of

__all__ = ["Refinement", "rehearsal_of"]

_MOST_CALIBRATING, _MOST_JUDGED = 256, 32
"""Samples that are sent to the process."""
_PATIENCE_S, _LEAST_PATIENCE_S = 10.0, 2.0
"""As long again as there is time, within these bounds, may the process take before it is taken to hang."""
_LOOKING_S = 0.1
"""Between two looks at whether the user wants no more of it."""


def rehearsal_of(
    asked: Configuration,
    ingredients: Ingredients,
    data: SearchData,
    deadline: Deadline,
    *,
    has_plain_sums: bool,
    memory_bytes: Callable[[], int | None],
    is_ended: Callable[[], bool],
) -> Rehearsal | None:
    """What refines finalists, in time; None where the level of accuracy is not ``full``, or all schemes are dynamic.

    Args:
        asked: What the user wants.
        ingredients: What candidates are built from.
        data: That the search had time for.
        deadline: Of the search.
        has_plain_sums: What probing the forms gave.
        memory_bytes: Data that a process may have when it is begun.
        is_ended: Whether the user wants no more trials.
    """
    if ingredients.definition.accuracy is not Accuracy.FULL or not ingredients.definition.has_static:
        return None
    n_calibration = min(ingredients.statistics.n_samples, _MOST_CALIBRATING)
    left_alone = frozenset(scheme.name for scheme in ingredients.definition.schemes if scheme.is_dynamic)

    def begin(seconds: float, is_ended: Callable[[], bool], notes: list[str]) -> Refinement:
        setup = RefinerSetup(
            ingredients=ingredients,
            calibration=select(data.calibration, range(n_calibration), "calibration"),
            judged=tuple(data.search.feeds[:_MOST_JUDGED]),
            has_plain_sums=has_plain_sums,
            seconds=seconds,
            cache_folder=asked.cache or steps.user_cache(),
        )
        worker, end = Worker(setup, memory_bytes=memory_bytes()), deadline.elapsed + seconds
        return Refinement(worker, lambda: end - deadline.elapsed, notes=notes, is_ended=is_ended, left_alone=left_alone)

    choose = partial(
        choose_finalists,
        limit=N_FINALISTS,
        float_bytes=size_bytes_of(asked.model),
        objectives=asked.objectives,
        bounds=asked.bounds,
    )
    return Rehearsal(deadline=deadline, begin=begin, choose=choose, is_ended=is_ended)


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
        refined: Refined | None = self._asked("refine", assignment)
        if refined is not None:
            self.once_s += refined.once_s
        return refined

    def rehearse(self, assignment: Assignment) -> Rehearsed | None:
        """What refining a candidate takes and wins; None as for a finalist."""
        rehearsed: Rehearsed | None = self._asked("rehearse", assignment)
        return rehearsed

    def _asked(self, method: str, assignment: Assignment) -> Any:
        if self.is_over or self.left_alone.issuperset(assignment.values()):
            return None
        start, before_s = time.perf_counter(), self.once_s
        try:
            with self._watched():
                return self._called(method, assignment)
        except Exception as error:  # whatever it is, the plain finalists are there
            self._is_over = True
            self.once_s = before_s + time.perf_counter() - start
            self.notes.append(f"refinement ended, the other finalists stay as they are: {self._reason(error)}")
            return None

    def _called(self, method: str, assignment: Assignment) -> Any:
        start = time.perf_counter()
        if not self.worker.is_running:
            self.worker.ready(seconds=self._limit_s(self.left()))
            self.once_s += time.perf_counter() - start
        left_s = self.left()
        if left_s <= 0:
            return None
        found, notes = self.worker.call(method, assignment, left_s, seconds=self._limit_s(left_s))
        self.notes.extend(notes)
        return found

    @staticmethod
    def _limit_s(left_s: float) -> float | None:
        return None if math.isinf(left_s) else left_s + min(_PATIENCE_S, max(_LEAST_PATIENCE_S, left_s))

    def _reason(self, error: Exception) -> str:
        if self.is_ended():
            return "the user wanted no more of it"
        return "there is not enough memory" if isinstance(error, MemoryError) else str(error)

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
