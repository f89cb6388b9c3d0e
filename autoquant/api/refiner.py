"""Refines finalists: what a worker process does at the end of a search."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.api import steps
from autoquant.api.finalists import Refined
from autoquant.api.ingredients import Ingredients
from autoquant.api.steps.biases import Shifts
from autoquant.domain.counted import counted
from autoquant.domain.feed import Feed, Samples
from autoquant.domain.region import Assignment, TensorName
from autoquant.domain.rewrite import Rewrites
from autoquant.domain.scheme import DType, Rounding, Scheme
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError
from autoquant.measurement.bench import Bench
from autoquant.model.numbers import number_outputs
from autoquant.qdq.builder import Builder
from autoquant.qdq.candidate import Candidate
from autoquant.rounding.rounded import Rounded, RoundedWeights

__all__ = ["Refiner", "RefinerSetup"]

_FIRST = Rounding.GPTQ
_COSTLY = (Rounding.ADAQUANT, Rounding.ADAROUND)
"""By what they win for their time, the best first."""
_ROUNDING_SHARE = 0.5
"""Of the time that is left, for the weights of all finalists by one rounding; biases take time for each of them."""
_LEFT_SHARE = 0.5
"""Of the time, which a costly rounding has to leave: more finalists come before more versions of the first ones."""
_COSTLY_TIMES = 6.0
"""As long as the first rounding, a costly one takes at most; 1.6 to 5.3 times on the models of ``reports/accuracy``."""
_BIASES_SHARE = 0.1
"""Of the time, for the biases of one version of a finalist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinerSetup:
    """Makes a refiner, in whatever process it is called.

    Attributes:
        ingredients: What candidates are built from.
        calibration: Samples by which weights are rounded and biases are corrected.
        judged: Samples on which roundings are compared: of the search, so that the held-out ones stay new to all.
        rewrites: Those that are used.
        seconds: For all finalists.
        cache_folder: Where rounded weights and observed biases are kept; None keeps nothing.
        judged_names: What messages call the samples of ``judged``; their places by default.
    """

    ingredients: Ingredients
    calibration: Samples
    judged: Sequence[Feed]
    rewrites: Rewrites
    seconds: float
    cache_folder: Path | None = None
    judged_names: Sequence[str] = ()

    def __call__(self) -> "Refiner":
        """A refiner that has done nothing so far."""
        return Refiner(self)


@dataclass(slots=True)
class Refiner:
    """Rounds weights, then takes off what each operator's mean still drifts by, and compares roundings.

    The order is that of the papers: a bias makes up for what rounding left. Both look at calibration samples alone.
    Weights are rounded once for all finalists, when the first one needs it.

    Attributes:
        setup: What it was made from.
        first_s: Seconds that the first version of the first finalist took; 0 before.
        once_s: Seconds so far in what is done once for all finalists.
        judging_s: Seconds that comparing a version took the last time; 0 before.
    """

    setup: RefinerSetup
    first_s: float = 0.0
    judging_s: float = 0.0
    once_s: float = 0.0
    _failed: set[Rounding] = field(default_factory=set)
    _late: set[Rounding] = field(default_factory=set)
    _rounded: dict[Rounding, RoundedWeights] = field(default_factory=dict)
    _builders: dict[Rounding, Builder] = field(default_factory=dict)
    _bench: Bench | None = None
    _notes: list[str] = field(default_factory=list)

    def refine(self, assignment: Assignment, left_s: float) -> tuple[Refined, Sequence[str]]:
        """The refined candidate of the highest SNR where there is time to compare, and sentences for the user.

        Args:
            assignment: Of the finalist.
            left_s: Seconds until nothing may be begun any more.

        Raises:
            ModelError: onnxruntime refuses a candidate.
            DataError: What weights are multiplied with is not finite.
        """
        self._notes, before_s = [], self.once_s
        start = time.perf_counter()
        end = start + left_s
        with steps.running(self.setup.ingredients.prepared.source):
            best = self._version(assignment, _FIRST, end)
            self.first_s = self.first_s or time.perf_counter() - start
            best = self._best(best, assignment, end)
        return replace(best, once_s=self.once_s - before_s), self._notes

    def _best(self, first: Refined, assignment: Assignment, end: float) -> Refined:
        """The best of the first version and the costly ones that there is time for; one that fails is not one."""
        best, best_db, source = first, math.nan, self.setup.ingredients.prepared.source
        for rounding in self._costly:
            needed_s = 0.0 if rounding in self._builders else _COSTLY_TIMES * self.first_s
            if rounding in self._failed:
                continue
            if end - time.perf_counter() - needed_s - self.judging_s < _LEFT_SHARE * self.setup.seconds:
                self._say_late(rounding)
                continue
            try:
                with steps.running(source):
                    if math.isnan(best_db):
                        best_db = self._snr_db(first.candidate)
                    other = self._version(assignment, rounding, end)
                    other_db = self._snr_db(other.candidate)
            except (AutoquantError, np.linalg.LinAlgError, MemoryError) as error:
                self._failed.add(rounding)
                reason = str(error) or "there is no memory"
                self._notes.append(f"refinement: {rounding} is left out, the other roundings stay: {reason}")
                continue
            if other_db > best_db:
                best, best_db = other, other_db
        return best

    def _say_late(self, rounding: Rounding) -> None:
        """Once for each that no finalist had."""
        if rounding not in self._builders and rounding not in self._late:
            self._late.add(rounding)
            self._notes.append(f"refinement: there was no time to try {rounding}; give more time")

    @property
    def _costly(self) -> Sequence[Rounding]:
        """Without those that would learn scales, where none is free."""
        schemes = [scheme for scheme in self.setup.ingredients.definition.schemes if not scheme.is_dynamic]
        has_free_scales = any(scheme.weight.has_free_scales for scheme in schemes)
        return [rounding for rounding in _COSTLY if rounding is not Rounding.ADAQUANT or has_free_scales]

    def _version(self, assignment: Assignment, rounding: Rounding, end: float) -> Refined:
        builder = self._builder(rounding, _ROUNDING_SHARE * max(0.0, end - time.perf_counter()))
        seconds = max(0.0, min(_BIASES_SHARE * self.setup.seconds, end - time.perf_counter()))
        prepared, calibration = self.setup.ingredients.prepared, self.setup.calibration
        shifts = steps.observe_shifts(
            prepared, builder, assignment, calibration, seconds=seconds, cache_folder=self.setup.cache_folder
        )
        candidate = builder.build(assignment, shifts)
        roundings = sorted(f"rounding {each}" for each in self._given(rounding, candidate))
        return Refined(candidate=candidate, algorithms=(*roundings, *_corrected(shifts, builder, assignment)))

    def _given(self, rounding: Rounding, candidate: Candidate) -> set[Rounding]:
        """What gave a candidate's integers: where there was no time for what was asked for, the first one did."""
        asked = self._rounded[rounding]
        found = set(candidate.roundings) - (set() if asked.found else {rounding})
        return found | {_FIRST} if candidate.roundings and asked.unfinished else found

    def _builder(self, rounding: Rounding, seconds: float) -> Builder:
        if rounding not in self._builders:
            start = time.perf_counter()
            found = self.setup.ingredients
            schemes = tuple(_rounded_by(rounding, scheme) for scheme in found.definition.schemes)
            space = replace(found.definition, schemes=schemes)
            static = replace(space, schemes=tuple(_without_dynamic_rounding(scheme) for scheme in schemes))
            parts = found.prepared, found.regions, found.statistics
            rounded = steps.round_weights(
                *parts, self.setup.calibration, space=static, seconds=seconds, cache_folder=self.setup.cache_folder
            )
            if rounded.late:
                self._notes.append(
                    f"refinement: there was no time to round {counted(len(rounded.late), 'weight')} by {rounding}"
                )
            if rounded.note is not None and rounding is _FIRST:
                self._notes.append(f"refinement: {rounded.note}")
            self._rounded[rounding] = rounded
            self._builders[rounding] = steps.builder_of(*parts, space=space, rounder=self._rounder)
            self._builders[rounding].write(self.setup.rewrites)
            self.once_s += time.perf_counter() - start
        return self._builders[rounding]

    def _rounder(
        self,
        weight: TensorName,
        scale: npt.NDArray[np.float32],
        zero_point: npt.NDArray[np.generic],
        dtype: DType,
        rounding: Rounding,
    ) -> Rounded | None:
        """What the rounding that is asked for gave, or else the first one; of dynamic regions what trials have."""
        grid, trials = (weight, scale, zero_point, dtype), self.setup.ingredients.rounder
        found = self._rounded[rounding](*grid, rounding) or self._rounded[_FIRST](*grid, _FIRST)
        return found or (None if trials is None else trials(*grid, rounding))

    def _snr_db(self, candidate: Candidate) -> float:
        start = time.perf_counter()
        if self._bench is None:
            prepared, names = self.setup.ingredients.prepared, self.setup.judged_names
            numbers = number_outputs(prepared.graph.model)
            self._bench = Bench(prepared.source, [Target()], self.setup.judged, sample_names=names, numbers=numbers)
            self.once_s += time.perf_counter() - start
        opened = self._bench.opener.open(*candidate.parts)
        found = self._bench.untimed_quality(opened, len(self.setup.judged)).worst_db
        self.judging_s = time.perf_counter() - start
        return found


def _corrected(shifts: Shifts, builder: Builder, assignment: Assignment) -> list[str]:
    """How biases are corrected: one sample, or no time for more, leaves the shifts that are expected of all."""
    if not shifts:
        return []
    expected = builder.expected_shifts(assignment)
    is_observed = any(not np.array_equal(shift, expected[name]) for name, shift in shifts.items())
    return ["bias observed" if is_observed else "bias mean"]


def _without_dynamic_rounding(scheme: Scheme) -> Scheme:
    return replace(scheme, rounding=Rounding.NEAREST) if scheme.is_dynamic else scheme


def _rounded_by(rounding: Rounding, scheme: Scheme) -> Scheme:
    """As asked; what has no scales to learn by the first rounding, and what is dynamic stays."""
    if scheme.is_dynamic:
        return scheme
    is_free = rounding is not Rounding.ADAQUANT or scheme.weight.has_free_scales
    return replace(scheme, rounding=rounding if is_free else _FIRST)
