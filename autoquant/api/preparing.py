"""What candidates are built from: the preprocessed model, its regions and statistics."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from autoquant.api import steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import N_FORM_SAMPLES, BenchFacts, Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.resumption import Earlier
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceDefinition
from autoquant.domain.statistics import Statistics
from autoquant.errors import ModelError
from autoquant.model.prepared import PreparedModel

__all__ = ["Preparing"]

_LOG = logging.getLogger("autoquant")
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
                statistics = self._calibrate(prepared, None, seconds=_CALIBRATION_SHARE * self._budget_s)
            else:
                statistics = self._calibrate(prepared, self.earlier.n_calibration_samples)
        if statistics.n_samples < len(samples):
            why = "as before, on" if self.earlier else "there was time for"
            self.notes.append(f"calibration: {why} {statistics.n_samples} of the {len(samples)} samples")
        return self._rounded(
            Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)
        )

    def in_best_form(self, plain: Ingredients, evaluator: IsolatedEvaluator, facts: BenchFacts) -> Ingredients:
        """The form that a search goes on with, loaded by the evaluator.

        It is the one whose best uniform recipe has the higher SNR on a few samples, or that of the earlier run. There
        is the plain one alone where the space wants nothing done for accuracy.

        Args:
            plain: What the evaluator has loaded.
            evaluator: Builds and runs the recipes.
            facts: Of the float model.
        """
        wanted = Form.EQUALISED if self.earlier is None else self.earlier.form
        if self.definition.accuracy is Accuracy.NONE or not plain.regions or wanted is Form.PLAIN:
            return plain
        self.tell("equalise")
        with self.deadline.phase("equalise"):
            n_recipes = self._n_recipes(evaluator.opening_s + N_FORM_SAMPLES * sum(facts.float_s.values()))
            if self.earlier is None and n_recipes == 0:
                self.notes.append("equalisation: there is no time for it")
                return plain
            found = steps.equalise(plain.prepared, plain.statistics)
            if not found.tensors:
                self.notes.append(f"equalisation: {found.note}")
                return plain
            statistics = self._calibrate(found.prepared, plain.statistics.n_samples)
            other = self._rounded(replace(plain, prepared=found.prepared, statistics=statistics, form=Form.EQUALISED))
            if self.earlier is not None:
                evaluator.load(other, has_plain_sums=evaluator.has_plain_sums)
                return other
            plain_db = evaluator.best_uniform_db(n_recipes)
            other_db = self._loaded_db(other, evaluator, n_recipes)
            is_better = other_db > plain_db
            self.notes.append(
                f"equalisation: {found.note}, which is{'' if is_better else ' not'} used: the best of {n_recipes}"
                f" uniform recipes has {other_db:.1f} dB with it and {plain_db:.1f} dB without"
            )
            if not is_better:
                evaluator.load(plain, has_plain_sums=evaluator.has_plain_sums)
            return other if is_better else plain

    def _n_recipes(self, recipe_s: float) -> int:
        """How many recipes there is time for in each form; none where there is none for another calibration either."""
        n_schemes = len(self.definition.schemes)
        if math.isinf(self._budget_s):
            return n_schemes
        if self.deadline.phases["calibrate"] > _LONG_SHARE * self._budget_s:
            return 0
        return min(n_schemes, int(_FORMS_SHARE * self._budget_s / (2 * recipe_s)))

    @staticmethod
    def _loaded_db(other: Ingredients, evaluator: IsolatedEvaluator, n_recipes: int) -> float:
        """SNR of another form's best recipe; minus infinity where it cannot be run."""
        try:
            evaluator.load(other, has_plain_sums=evaluator.has_plain_sums)
            return evaluator.best_uniform_db(n_recipes)
        except ModelError as error:
            _LOG.warning("the equalised form is not used: %s", error)
            return -math.inf

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
                self.data.calibration,
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

    @property
    def _budget_s(self) -> float:
        return math.inf if self.configuration.budget.seconds is None else self.configuration.budget.seconds
