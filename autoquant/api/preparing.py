"""What candidates are built from: the preprocessed model, its regions and statistics."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from autoquant.api import steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import N_FORM_SAMPLES, Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.resumption import Earlier
from autoquant.calibration.batches import select
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.errors import ModelError, ProfileError
from autoquant.model.prepared import PreparedModel

__all__ = ["Preparing"]

_CALIBRATION_SHARE = 0.25
_FORMS_SHARE = 0.05
"""Of the budget, for the recipes by which forms are compared."""
_LONG_SHARE = 0.1
"""Of the budget: a calibration that took more is not done a second time, for another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparing:
    """The stages before candidates; adds to ``notes``.

    Attributes:
        configuration: What the user asks for.
        definition: The space.
        data: Samples.
        deadline: Of all stages.
        earlier: The run that is gone on with.
        notes: Sentences that the user should read.
        tell: Told the name of each stage.
    """

    configuration: Configuration
    definition: SpaceDefinition
    data: SearchData
    deadline: Deadline
    earlier: Earlier | None
    notes: list[str]
    tell: Callable[[str], None]

    def ingredients(self) -> Ingredients:
        """Preprocess, partition, calibrate."""
        asked, definition, samples = self.configuration, self.definition, self.data.calibration
        self.tell("preprocess")
        with self.deadline.phase("preprocess"):
            prepared = steps.prepare(asked.model, self.data.everything, dims=asked.dims)
            regions = steps.find_regions(prepared, space=definition, n_regions=asked.n_regions)
            self.notes.extend(prepared.notes)
        self.tell("calibrate")
        with self.deadline.phase("calibrate"):
            if self.earlier is None:
                statistics = self._calibrate(
                    prepared, None, seconds=_CALIBRATION_SHARE * self.configuration.budget.limit_s
                )
            else:
                statistics = self._calibrate(prepared, self.earlier.n_calibration_samples)
        if statistics.n_samples < len(samples):
            why = "as before, on" if self.earlier else "there was time for"
            self.notes.append(f"calibration: {why} {statistics.n_samples} of the {len(samples)} samples")
        return self._rounded(
            Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
        )

    def in_best_form(self, plain: Ingredients, evaluator: IsolatedEvaluator) -> Ingredients:
        """The form that a search goes on with, loaded by the evaluator.

        It is the one whose best uniform recipe has the higher SNR on a few samples, or that of the earlier run. There
        is the plain one alone where the space wants nothing done for accuracy.

        Args:
            plain: What the evaluator has loaded.
            evaluator: Builds and runs the recipes.
        """
        wanted = Form.EQUALISED if self.earlier is None else self.earlier.form
        if self.definition.accuracy is Accuracy.NONE or not plain.regions or wanted is Form.PLAIN:
            return plain
        self.tell("equalise")
        other, note = self._equalised(plain)
        if other is None:
            self.notes.append(f"equalisation: {note}")
            return plain
        other = self._rounded(other)
        with self.deadline.phase("equalise"):
            if self.earlier is None:
                return self._better(plain, other, note, evaluator)
            evaluator.load(other, has_plain_sums=evaluator.has_plain_sums)
            return other

    def _equalised(self, plain: Ingredients) -> tuple[Ingredients | None, str]:
        """The other form and what was done, or none and why."""
        with self.deadline.phase("equalise"):
            budget_s = self.configuration.budget.limit_s
            if self.earlier is None and self.deadline.phases["calibrate"] > _LONG_SHARE * budget_s:
                return None, "there is no time for another calibration"
            found = steps.equalise(plain.prepared, plain.statistics)
            if not found.tensors:
                return None, found.note
            seconds = math.inf if self.earlier else _LONG_SHARE * budget_s
            n_samples = plain.statistics.n_samples
            statistics = self._calibrate(found.prepared, n_samples, seconds=seconds)
            if statistics.n_samples < n_samples:
                return None, "there was no time for another calibration"
            return replace(plain, prepared=found.prepared, statistics=statistics, form=Form.EQUALISED), found.note

    def _better(self, plain: Ingredients, other: Ingredients, note: str, evaluator: IsolatedEvaluator) -> Ingredients:
        """The form whose best uniform recipe has the higher SNR; the plain one where the other one cannot be run."""
        seconds = _FORMS_SHARE / 2 * self.configuration.budget.limit_s
        try:
            plain_db, n = evaluator.best_uniform_db(seconds, len(self.definition.schemes))
            evaluator.load(other, has_plain_sums=evaluator.has_plain_sums)
            other_db, _ = evaluator.best_uniform_db(math.inf, n)
        except (ModelError, ProfileError) as error:
            self.notes.append(f"equalisation: {note}, which is not used: {error}")
            evaluator.load(plain, has_plain_sums=evaluator.has_plain_sums)
            return plain
        is_better = other_db > plain_db
        compared = f"of {n} uniform recipes on {N_FORM_SAMPLES} samples the best has {other_db:.1f} dB with it and"
        self.notes.append(
            f"equalisation: {note}, which is{'' if is_better else ' not'} used: {compared} {plain_db:.1f} dB without"
            if max(other_db, plain_db) > -math.inf
            else f"equalisation: {note}, which is not used: no uniform recipe runs"
        )
        if not is_better:
            evaluator.load(plain, has_plain_sums=evaluator.has_plain_sums)
        return other if is_better else plain

    def _rounded(self, plain: Ingredients) -> Ingredients:
        """With the weights of schemes that do not round them to the nearest integers."""
        if all(scheme.rounding is Rounding.NEAREST for scheme in self.definition.schemes):
            return plain
        self.tell("round")
        with self.deadline.phase("round"):
            rounder = steps.round_weights(
                plain.prepared,
                plain.regions,
                plain.statistics,
                select(self.data.calibration, range(plain.statistics.n_samples), "calibration"),
                space=self.definition,
            )
        return replace(plain, rounder=rounder)

    def _calibrate(self, prepared: PreparedModel, n_samples: int | None, *, seconds: float = math.inf) -> Statistics:
        return steps.calibrate(
            prepared,
            self.data.calibration,
            space=self.definition,
            cache_folder=self.configuration.cache,
            seconds=seconds,
            n_samples=n_samples,
        )
