"""What candidates are built from: the preprocessed model, its regions and statistics."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from autoquant.api import steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData
from autoquant.api.deadline import Deadline
from autoquant.api.evaluator import N_FORM_SAMPLES, BenchFacts
from autoquant.api.filling import fastest, filled, fillings_of
from autoquant.api.floats import float_sentences
from autoquant.api.ingredients import Ingredients
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.resumption import Earlier
from autoquant.api.sentences import (
    calibration_sentences,
    joined_sentences,
    left_out_sentences,
    unbounded_sentences,
)
from autoquant.api.steps.probing import LEAST_RACED
from autoquant.calibration.spread import spread
from autoquant.domain.accuracy import Accuracy, Form
from autoquant.domain.counted import counted, enumerated
from autoquant.domain.sampler import SamplerName
from autoquant.domain.scheme import Rounding
from autoquant.domain.space import SpaceDefinition
from autoquant.errors import ModelError, OutputError, ProfileError
from autoquant.graph.likeness import keeps_outputs
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.masks import masked
from autoquant.rewrites.filled import Filling

__all__ = ["Preparing"]

_Form = tuple[Form, bool]
"""Of the float model, and whether biases are corrected where the space says nothing of them."""

_CALIBRATION_SHARE = 0.15
_FORMS_SHARE = 0.05
"""Of the budget, for the recipes by which forms are compared."""
_FORM_PATIENCE_S, _FORM_PATIENCE = 1.0, 3.0
"""No recipe of another form is begun later than this and so many times what the first form took."""
_LEAST_GAIN_DB, _MOST_DB = 1.0, 60.0
"""Less may be chance: where a model has few outputs, errors cancel or add up from recipe to recipe."""
_LEAST_EXPONENT = 2
"""Channels that differ by a factor of two at most gain nothing that could be told from chance."""
_LONG_SHARE = 0.1
"""Of the budget: another form is not tried where making and sending it should take more."""
_EQUALISING_SHARE = 0.5
"""Of a calibration, so long does equalising take, roughly."""
_RACED_SHARE, _MOST_RACED_S = 0.015, 2.0
"""Of the budget, and seconds, for comparing two candidates."""
_ERRORS_SHARE = 0.05
"""Of the budget, for the errors of what regions quantize."""
_ROUNDING_SHARE = 0.1
"""Of the budget, for rounding the weights of one form where schemes ask for more than the nearest integers."""


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
        """Preprocess, partition, calibrate.

        Raises:
            UsageError: No candidate can be as small as demanded.
        """
        asked, samples = self.configuration, self.data.calibration
        self.tell("preprocess")
        with self.deadline.phase("preprocess"):
            eps = {target.ep for target in asked.targets}
            prepared = steps.prepare(asked.model, self.data.everything, dims=asked.dims, eps=eps)
            definition = steps.expressible(self.definition, prepared)
            regions = steps.find_regions(prepared, space=definition, n_regions=asked.n_regions)
            if regions:
                asked.demands.check_size(steps.least_bytes(prepared, regions, definition))
            self.notes.extend(prepared.notes)
            self.notes.extend(left_out_sentences(self.definition, definition))
            self.notes.extend(float_sentences(prepared.graph, regions) if regions else [])
        self.tell("calibrate")
        with self.deadline.phase("calibrate"):
            statistics = steps.calibrate(
                prepared,
                samples,
                space=definition,
                cache_folder=asked.cache,
                seconds=math.inf if self.earlier else self.deadline.part(_CALIBRATION_SHARE),
                n_samples=self.earlier.n_calibration_samples if self.earlier else None,
            )
        self.notes.extend(calibration_sentences(statistics.n_samples, len(samples), is_again=bool(self.earlier)))
        self.notes.extend(unbounded_sentences(masked(prepared.graph, statistics)))
        self.notes.extend(joined_sentences(prepared.graph, statistics))
        return Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=definition)

    def filled(self, plain: Ingredients, evaluator: IsolatedEvaluator, facts: BenchFacts) -> Ingredients:
        """With channels filled up where that is faster here, or as the earlier run did.

        Args:
            plain: As the model has its channels.
            evaluator: Compares latencies.
            facts: Of the float model.
        """
        asked = self.configuration
        if self.earlier is not None:
            found = None if self.earlier.filling is None else filled(plain, self.earlier.filling, asked.n_regions)
            if found is None or found.filling is None:
                return plain
            self.notes.append(f"{_filled_up(found.filling)}, as before")
            return self._compared(found)
        if not plain.regions or asked.counts_size:
            return plain
        with self.deadline.phase("fill"):
            if self.deadline.leaves_out("channels filled up to whole blocks"):
                return plain
            others = fillings_of(plain, asked.n_regions)
            each_s = 2 * (facts.opening_s + (1 + LEAST_RACED) * sum(facts.float_s.values()))
            expected_s, most_s = 2 * len(others) * each_s, _LONG_SHARE * asked.budget.limit_s
            if expected_s > most_s:
                reason = f"it should take {expected_s:.1f} s, more than {_LONG_SHARE:.0%} of the budget"
                self.notes.append(f"channels are not tried filled up to whole blocks: {reason}")
                return plain
            return self._fastest(plain, list(others.values()), evaluator, each_s) if others else plain

    def _fastest(
        self, plain: Ingredients, others: Sequence[Ingredients], evaluator: IsolatedEvaluator, each_s: float
    ) -> Ingredients:
        """Of models with filled channels and the plain one; comparing two takes ``each_s`` seconds at least."""
        self.tell("fill")
        seconds = min(_MOST_RACED_S, _RACED_SHARE * self.configuration.budget.limit_s)
        best, gain = fastest(
            plain, others, lambda one, other: evaluator.compare(one, other, seconds, each_s), self.notes
        )
        if gain is None:
            return plain
        try:
            best = self._compared(best)
        except ModelError as error:
            self.notes.append(f"channels stay as they are: {error}")
            return plain
        if not _keeps_outputs(best.prepared):
            difference = f"the outputs of the float model would differ ({best.prepared.difference_db:.1f} dB)"
            self.notes.append(f"channels stay as they are: {difference}")
            return plain
        assert best.filling is not None
        self.notes.append(f"{_filled_up(best.filling)}: {gain}")
        return best

    def _compared(self, changed: Ingredients) -> Ingredients:
        """With the difference of its outputs from those of the user's file."""
        return replace(changed, prepared=steps.compared(changed.prepared, self.data.everything))

    def in_best_form(self, first: Ingredients, evaluator: IsolatedEvaluator, facts: BenchFacts) -> Ingredients:
        """The form that a search goes on with, loaded by the evaluator.

        It is the one in which the uniform recipes gain most on a few samples: with channels balanced or as they are,
        with biases corrected where the space says nothing of them or not; or that of the earlier run. Where there is no
        time to compare, biases are corrected: that has hardly ever lost, and often won much (decision 0018). There is
        the first one alone where the space wants nothing done for accuracy.

        Args:
            first: What the evaluator has loaded.
            evaluator: Builds and runs the recipes.
            facts: Of the float model.

        Raises:
            OutputError: The form of the earlier run is not found again.
        """
        if self.definition.accuracy is Accuracy.NONE or not first.regions:
            return first
        self.tell("equalise")
        forms = self._forms(first, evaluator.loading_s)
        if self.earlier is not None:
            chosen = _earlier_form(self.earlier, forms)
        elif self._has_time_for(forms, facts):
            with self.deadline.phase("compare forms"):
                chosen = self._best(forms, evaluator)
        else:
            chosen = forms.get((first.form, True), forms[first.form, False])
            self.notes.extend(
                ["biases are corrected untried: that has hardly ever lost"] if chosen.has_mean_biases else []
            )
        evaluator.load(chosen, rewrites=evaluator.rewrites)
        evaluator.settle()
        return chosen

    def with_own_errors(self, chosen: Ingredients, evaluator: IsolatedEvaluator) -> Ingredients:
        """The same with errors of what regions quantize, and schemes that do so alike, for the sampler that uses them.

        Args:
            chosen: What the evaluator has loaded.
            evaluator: Keeps the ranges that it chooses for that.
        """
        if not chosen.regions or self.configuration.sampler is not SamplerName.STRUCTURE:
            return chosen
        if self.deadline.leaves_out("errors of what regions quantize"):
            return chosen
        with self.deadline.phase("errors"):
            found, reason = None, "there was no time"
            try:
                found = evaluator.errors_and_twins(_ERRORS_SHARE * self.configuration.budget.limit_s)
            except ProfileError as error:
                evaluator.load(chosen, rewrites=evaluator.rewrites)  # another process has nothing
                reason = str(error)
        if found is None:
            self.notes.append(f"noise is expected from each region's share of the arithmetic alone: {reason}")
            return chosen  # schemes that are alike by their ranges stay apart, too: each graph is measured once anyway
        return replace(chosen, own_errors=found[0], twins=found[1])

    def _has_time_for(self, forms: Mapping[_Form, Ingredients], facts: BenchFacts) -> bool:
        """Whether there are several, and there is, to compare them by a recipe each."""
        if len(forms) == 1:
            return False
        others = ", ".join(_name(form) for form in list(forms)[1:])
        if self.deadline.leaves_out(f"a comparison with {others}"):
            return False
        expected_s = len(forms) * (facts.opening_s + N_FORM_SAMPLES * sum(facts.float_s.values()))
        if expected_s > _FORMS_SHARE * self.configuration.budget.limit_s:
            reason = f"it should take {expected_s:.1f} s, more than {_FORMS_SHARE:.0%} of the budget"
            self.notes.append(f"there is no time for a comparison with {others}: {reason}")
            return False
        return True

    def _forms(self, first: Ingredients, loading_s: float) -> dict[_Form, Ingredients]:
        """All that differ; the plain one without corrected biases comes first."""
        models = [first]
        if self.earlier is None or self.earlier.form is Form.EQUALISED:
            other, note = self._equalised(first, loading_s)
            self.notes.extend([] if note is None else [f"equalisation: {note}"])
            models += [] if other is None else [self.rounded(other)]
        definitions = {False: first.definition.uncorrected(), True: first.definition}
        if definitions[False] == definitions[True]:
            del definitions[True]
        return {
            (model.form, has_mean_biases): replace(model, definition=definition, has_mean_biases=has_mean_biases)
            for has_mean_biases, definition in definitions.items()
            for model in models
        }

    def _equalised(self, plain: Ingredients, loading_s: float) -> tuple[Ingredients | None, str | None]:
        """The other form and what was done, or none and why, or neither where that is said elsewhere."""
        budget_s = self.configuration.budget.limit_s
        phases = self.deadline.phases
        expected_s = (1 + _EQUALISING_SHARE) * phases["calibrate"] + phases.get("round", 0.0) + loading_s
        with self.deadline.phase("equalise"):
            if self.earlier is None and self.deadline.leaves_out("equalisation"):
                return None, None
            if self.earlier is None and expected_s > _LONG_SHARE * budget_s:
                share = f"{_LONG_SHARE:.0%} of the budget"
                return None, f"there is no time for it: it should take {expected_s:.1f} s, more than {share}"
            found = steps.equalise(plain.prepared, plain.statistics)
            if not found.tensors:
                return None, found.note
            if self.earlier is None and found.largest_exponent < _LEAST_EXPONENT:
                return None, f"{found.note}, which is too little to be tried"
            prepared = steps.compared(found.prepared, self.data.everything)
            if self.earlier is None and not _keeps_outputs(prepared):
                return None, f"the outputs of the float model would differ ({prepared.difference_db:.1f} dB)"
            seconds = math.inf if self.earlier else _LONG_SHARE * budget_s
            statistics = steps.recalibrate(
                prepared,
                self.data.calibration,
                plain.statistics,
                found.tensors,
                cache_folder=self.configuration.cache,
                seconds=seconds,
            )
            if statistics is None:
                return None, "there was no time for another calibration"
            is_equal = prepared.difference_db == math.inf
            kept = (
                "its float outputs are equal" if is_equal else f"its float outputs keep {prepared.difference_db:.1f} dB"
            )
            note = f"{found.note}; {kept}"
            return replace(plain, prepared=prepared, statistics=statistics, form=Form.EQUALISED), note

    def _best(self, forms: Mapping[_Form, Ingredients], evaluator: IsolatedEvaluator) -> Ingredients:
        """The form with the highest mean gain of the uniform recipes; the first one where that is too little."""
        (first, chosen), *others = forms.items()
        n_schemes = len(chosen.definition.schemes)
        seconds = _FORMS_SHARE / len(forms) * self.configuration.budget.limit_s
        gains: dict[_Form, float] = {}
        try:
            evaluator.load(chosen, rewrites=evaluator.rewrites)
            start = self.deadline.elapsed
            before = evaluator.uniform_db(seconds, n_schemes)
            most_s = _FORM_PATIENCE_S + _FORM_PATIENCE * (self.deadline.elapsed - start)
            for form, other in others:
                evaluator.load(other, rewrites=evaluator.rewrites)
                gains[form] = _mean_gain(before, evaluator.uniform_db(most_s, len(before)))
        except (ModelError, ProfileError) as error:
            self.notes.append(f"forms of the model are not compared any further: {error}")
        best = max(gains, key=lambda form: gains[form], default=first)
        if gains.get(best, 0.0) < _LEAST_GAIN_DB:
            best = first
        if gains:
            compared = ", ".join(f"{_name(form)} {gain:+.1f} dB" for form, gain in gains.items())
            n_samples = min(N_FORM_SAMPLES, len(self.data.search))
            self.notes.append(
                f"{counted(len(before), 'uniform recipe')} on {counted(n_samples, 'sample')}, gains on average:"
                f" {compared}; the search goes on with: {_name(best)}"
            )
        return forms[best]

    def rounded(self, plain: Ingredients) -> Ingredients:
        """With the weights of schemes that do not round them to the nearest integers."""
        if all(scheme.rounding is Rounding.NEAREST for scheme in plain.definition.schemes):
            return plain
        self.tell("round")
        is_known = self.earlier is not None and self.earlier.form is plain.form
        with self.deadline.phase("round"):
            rounder = steps.round_weights(
                plain.prepared,
                plain.regions,
                plain.statistics,
                spread(self.data.calibration, plain.statistics.n_samples, "calibration"),
                space=plain.definition,
                seconds=math.inf if is_known else _ROUNDING_SHARE * self.configuration.budget.limit_s,
                without=self.earlier.unrounded if self.earlier is not None and is_known else (),
                cache_folder=self.configuration.cache or steps.user_cache(),
            )
        if rounder.late:
            why = "as before" if is_known else f"as there was no time in {_ROUNDING_SHARE:.0%} of the budget"
            self.notes.append(
                f"weights of the {plain.form} form are rounded to the nearest integers in some formats or all, {why}:"
                f" {enumerated(rounder.late)}"
            )
        if rounder.note is not None and rounder.note not in self.notes:
            self.notes.append(rounder.note)
        return replace(plain, rounder=rounder)


def _filled_up(filling: Filling) -> str:
    tightly = ", with no more of them in what a Concat joins" if filling.is_tight else ""
    return f"channels are filled up with zeros to multiples of {filling.multiple}{tightly}"


def _keeps_outputs(prepared: PreparedModel) -> bool:
    return keeps_outputs(prepared.graph.model, prepared.difference_db, from_halves=prepared.from_halves)


def _mean_gain(before: Sequence[float], after: Sequence[float]) -> float:
    """Of SNRs, those beyond 60 dB counting as such; 0 without any that is finite on both sides.

    Args:
        before: Of the recipes in the first form.
        after: Of those that there was time for in another form.
    """
    gains = [
        max(min(b, _MOST_DB), -_MOST_DB) - max(min(a, _MOST_DB), -_MOST_DB)
        for a, b in zip(before, after, strict=False)
        if min(a, b) > -math.inf
    ]
    return statistics.mean(gains) if gains else 0.0


def _earlier_form(earlier: Earlier, forms: Mapping[_Form, Ingredients]) -> Ingredients:
    found = forms.get((earlier.form, earlier.has_mean_biases)) or forms.get((earlier.form, False))
    if found is None:
        raise OutputError(
            f"the earlier run went on with the {earlier.form} form of the model, which is not found again here; begin"
            " another run in another folder"
        )
    return found


def _name(form: _Form) -> str:
    parts = [str(form[0])] if form[0] is not Form.PLAIN else []
    return " with ".join([*parts, *(["corrected biases"] if form[1] else [])]) or str(Form.PLAIN)
