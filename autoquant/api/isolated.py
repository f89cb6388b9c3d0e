"""The evaluator in a process of its own: a candidate that ends or stops its process costs one trial."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autoquant.api.evaluator import NO_RATIOS, BenchFacts, Evaluated
from autoquant.api.evaluator_setup import EvaluatorSetup
from autoquant.api.ingredients import Ingredients
from autoquant.api.steps.probing import Probed
from autoquant.domain.accuracy import Form
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.prior import Profiled
from autoquant.domain.region import Assignment
from autoquant.domain.rewrite import Rewrites
from autoquant.errors import ModelError, ProfileError, UsageError
from autoquant.isolation.process import Worker, WorkerLostError
from autoquant.measurement.latency import Timings
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.own_errors import OwnErrors
from autoquant.qdq.twins import Twins

__all__ = ["IsolatedEvaluator"]

_LOG = logging.getLogger("autoquant")
_PROFILE_PATIENCE_S = 10.0
"""So much longer than expected may profiles take."""
Key = frozenset[tuple[str, str]]


@dataclass(slots=True)
class IsolatedEvaluator:
    """Starts the process, and again after it was lost; an assignment that cost a process is not tried again.

    Attributes:
        setup: Makes the evaluator.
        trial_s: Seconds that a trial may take; None for no limit.
        memory_bytes: Data that the process may have.
        opening_s: Seconds that opening the last candidate took.
        loading_s: Seconds that sending the last form of the model took.
    """

    setup: EvaluatorSetup
    trial_s: float | None = None
    memory_bytes: int | None = None
    opening_s: float = 0.1
    loading_s: float = 0.0
    _worker: Worker = field(init=False)
    _ingredients: Ingredients | None = None
    _sent: dict[Form, tuple[int | None, Ingredients]] = field(default_factory=dict)
    _rewrites: Rewrites = frozenset()
    _known: dict[str, Measurement] = field(default_factory=dict)
    _lost: dict[Key, Failure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        affinity = self.setup.targets[0].affinity
        self._worker = Worker(self.setup, memory_bytes=self.memory_bytes, affinity=affinity)

    def start(self) -> None:
        """Begin to run the float model; nothing waits for it yet."""
        self._worker.start()

    def facts(self) -> BenchFacts:
        """Of the float model, once it was run.

        A process that is begun later measures on the samples that the first one had time for, however long it takes,
        and runs no others: on held-out ones the float model was tried.

        Raises:
            AutoquantError: It cannot be opened or run.
        """
        try:
            found: BenchFacts = self._own("facts")
        except (MemoryError, ModelError) as error:
            if self.memory_bytes is None or not _is_about_memory(error):
                raise
            raise UsageError(
                f"{self.setup.model}: {self.memory_bytes // 1_000_000} MB are not enough for the process that measures;"
                " give trials more memory, or use a larger machine"
            ) from error
        self.setup = self._worker.factory = replace(
            self.setup.pinned(found.n_samples), held_out=None, signal=found.signal
        )
        return found

    def load(self, ingredients: Ingredients, *, rewrites: Rewrites) -> None:
        """Take what candidates are built from; a form that the process has is not sent again.

        Args:
            ingredients: The preprocessed model, its regions and ranges.
            rewrites: Those that are used.
        """
        self._ingredients = ingredients
        if self._has(ingredients):
            self._own("use", ingredients.form, ingredients.definition, rewrites)
        else:
            self._send(rewrites, ())
        self._rewrites = rewrites

    def probe_rewrites(self, rewrites: Rewrites) -> Probed:
        """Measure which of these pay here, and build accordingly from then on."""
        probed: Probed
        self._rewrites, probed = self._own("probe_rewrites", rewrites)
        return probed

    def settle(self) -> None:
        """Forget the forms that are not in use."""
        self._own("settle")
        self._sent = {form: sent for form, sent in self._sent.items() if form is self.ingredients.form}

    def _has(self, ingredients: Ingredients) -> bool:
        """Whether the process that runs now has it, whatever the space."""
        pid, sent = self._sent.get(ingredients.form, (None, ingredients))
        same = (getattr(sent, part) is getattr(ingredients, part) for part in ("prepared", "statistics", "rounder"))
        return pid is not None and pid == self._worker.pid and all(same)

    def _send(self, rewrites: Rewrites, known: tuple[Measurement, ...], *, seconds: float | None = None) -> None:
        start = time.perf_counter()
        self._own("load", self.ingredients, rewrites, known, seconds=seconds)
        self.loading_s = time.perf_counter() - start
        self._sent[self.ingredients.form] = self._worker.pid, self.ingredients

    def compare(self, first: Candidate, second: Candidate, seconds: float, expected_s: float) -> Mapping[str, Timings]:
        """Latencies of the second candidate against the first, by target name; nothing needs to be loaded.

        Args:
            first: One.
            second: The other.
            seconds: For running them, roughly.
            expected_s: What the least number of rounds should take, with opening them.

        Raises:
            ModelError: onnxruntime refuses one of them.
            ProfileError: They ended the process, or hung.
        """
        limit = _PROFILE_PATIENCE_S + 3 * max(seconds, expected_s)
        found: Mapping[str, Timings] = self._profiling(
            "comparing two models", "compare", first, second, seconds, limit_s=limit
        )
        return found

    def uniform_db(self, seconds: float, n_most: int) -> list[float]:
        """See ``Evaluator.uniform_db``.

        Raises:
            ProfileError: A recipe ended the process, hung, or lacked memory; another process has nothing loaded.
        """
        what, limit = "running uniform recipes", _PROFILE_PATIENCE_S + 3 * seconds
        found: list[float] = self._profiling(what, "uniform_db", seconds, n_most, limit_s=limit)
        return found

    def errors_and_twins(self, seconds: float) -> tuple[OwnErrors, Twins] | None:
        """See ``Evaluator.errors_and_twins``.

        Raises:
            ProfileError: It ended the process, or hung.
        """
        what, limit = "computing the errors of regions", _PROFILE_PATIENCE_S + 3 * seconds
        found: tuple[OwnErrors, Twins] | None = self._profiling(what, "errors_and_twins", seconds, limit_s=limit)
        return found

    def profile(self, seconds: float, most_s: float) -> Profiled:
        """See ``profiling.profiled_prior``.

        Raises:
            ModelError: onnxruntime refuses a candidate.
            ProfileError: There is no time for profiles, or they cannot be had.
        """
        found: Profiled = self._profiling(
            "taking profiles", "profile", seconds, most_s, limit_s=_PROFILE_PATIENCE_S + most_s
        )
        return found

    def know(self, measured: Sequence[Measurement]) -> None:
        """Take what was measured before."""
        self._known = {one.digest: one for one in measured}
        if self._worker.is_running:
            self._own("know", tuple(measured))

    @property
    def pid(self) -> int | None:
        """Of the process, where there is one."""
        return self._worker.pid

    @property
    def ingredients(self) -> Ingredients:
        """What candidates are built from."""
        assert self._ingredients is not None
        return self._ingredients

    @property
    def rewrites(self) -> Rewrites:
        """How candidates are written."""
        return self._rewrites

    def evaluate(
        self, assignment: Assignment, n_rounds: int, least_ratios: Mapping[str, float] = NO_RATIOS, *, left_s: float
    ) -> Measurement | Failure | None:
        """Measure a candidate.

        Args:
            assignment: What to build.
            n_rounds: Timed rounds; with 0 its quality alone is measured.
            least_ratios: What its ratios can hardly be below, by target name; empty where that is unknown.
            left_s: Seconds after which nobody waits for it any more.

        Returns:
            None where ``left_s`` ended it.
        """
        key = frozenset(assignment.items())
        if key in self._lost:
            return self._lost[key]
        end = time.perf_counter() + left_s
        try:
            if not self._worker.is_running and not self._restart(left_s):
                return None
            left_s = end - time.perf_counter()
            limit = min(left_s, math.inf if self.trial_s is None else self.trial_s)
            found: Evaluated = self._worker.call(
                "evaluate", assignment, n_rounds, dict(least_ratios), seconds=None if math.isinf(limit) else limit
            )
        except WorkerLostError as lost:
            if lost.is_late and (self.trial_s is None or left_s < self.trial_s):
                return None
            reason = f"it took more than {self.trial_s:g} s" if lost.is_late else str(lost)
            _LOG.warning("the process that measures is started again: %s", reason)
            return self._lost.setdefault(key, Failure(stage="process", reason=reason))
        except MemoryError:
            return self._lost.setdefault(key, Failure(stage="process", reason="it needed more memory than there is"))
        self.opening_s = found.opening_s
        if isinstance(found.outcome, Measurement):
            self._known[found.outcome.digest] = found.outcome
        return found.outcome

    def close(self) -> None:
        """End the process."""
        self._worker.close()

    def _restart(self, left_s: float) -> bool:
        """Begin another process; whether there was time for it."""
        seconds = None if math.isinf(left_s) else left_s
        try:
            self._send(self._rewrites, tuple(self._known.values()), seconds=seconds)
        except WorkerLostError:  # late: a crash here is about the float model
            return False
        except MemoryError:  # it has nothing loaded
            self._worker.close()
            raise
        return True

    def _profiling(self, what: str, method: str, *arguments: object, limit_s: float) -> Any:
        """Calls without which a search goes on; ``what`` they do is said where they fail."""
        try:
            return self._worker.call(method, *arguments, seconds=None if math.isinf(limit_s) else limit_s)
        except WorkerLostError as lost:
            raise ProfileError(f"{what} ended the process that measures: {lost}") from lost
        except MemoryError as error:
            raise ProfileError(f"{what} needed more memory than there is") from error

    def _own(self, method: str, *arguments: object, seconds: float | None = None) -> Any:
        """Calls that involve the float model alone."""
        try:
            return self._worker.call(method, *arguments, seconds=seconds)
        except WorkerLostError as lost:
            if lost.is_late:
                raise
            names = ", ".join(target.name for target in self.setup.targets)
            raise ModelError(
                f"{self.setup.model}: running it on {names} failed, {lost}; try another execution provider or version"
            ) from lost


def _is_about_memory(error: Exception) -> bool:
    """Onnxruntime says it in words."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in ("bad_alloc", "Failed to allocate"))
