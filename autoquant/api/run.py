"""What a search and another demand on it share: the stages up to the trials, and what is found out on the way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from autoquant.api import sentences
from autoquant.api.checking import Checked
from autoquant.api.configuration import Configuration
from autoquant.api.deadline import Deadline
from autoquant.api.documents import configuration_document, ingredients_document
from autoquant.api.evaluator import BenchFacts
from autoquant.api.floats import nothing_to_quantize, outside_sentences
from autoquant.api.folder import RunFolder, writing
from autoquant.api.ingredients import Ingredients
from autoquant.api.interrupts import Interrupts
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.preparing import Preparing
from autoquant.api.resumption import Earlier, read_earlier
from autoquant.api.setups import evaluator_setup
from autoquant.api.steps.probing import probing_seconds, takes_candidates
from autoquant.api.trial_times import Finish
from autoquant.api.trials import SearchProgress, Trials
from autoquant.domain.accuracy import Accuracy
from autoquant.domain.prior import LatencyPrior, Profiled
from autoquant.domain.region import Assignment
from autoquant.domain.rewrite import IN_WORDS, LARGER, Rewrite, Rewrites
from autoquant.domain.space import SearchSpace
from autoquant.errors import ModelError, OutputError, ProfileError, UsageError
from autoquant.graph.regions import ends as ends_of
from autoquant.runtime.available import available_memory_bytes
from autoquant.runtime.environment import describe_environment
from autoquant.space.resolve import resolve
from autoquant.study.layout import Layout
from autoquant.study.samplers import BaseSampler, is_structured, least_ratios_of, make_sampler, outlook_of
from autoquant.study.standing import Interest
from autoquant.study.study import Study

__all__ = ["OnProgress", "Opened", "Run"]

OnProgress = Callable[[SearchProgress], None]
_PROFILE_S, _PROFILE_SHARE = 3.0, 0.02
"""For running what is profiled, and the share of the budget."""
_MOST_PROFILE_S, _MOST_PROFILE_SHARE = 30.0, 0.05
"""For opening it too, and running it a few times: there are no profiles where that should take longer."""
_MEMORY_SHARE = 0.9
"""Of what is available, for the process that measures."""
_MUCH_FASTER = 0.9
"""Ratio of a few inferences below which the preprocessed model is worth an early trial: they scatter by a tenth."""
_LATE_REWRITES_SHARE = 0.1
"""Of the budget: where much of it is gone, rewrites are probed if that takes no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The float model was run: candidates can be built and measured."""

    evaluator: IsolatedEvaluator
    ingredients: Ingredients
    facts: BenchFacts


@dataclass(slots=True)
class Run:
    """One search, stage by stage.

    Attributes:
        configuration: What the user asks for.
        checked: What that names.
        deadline: Of all stages.
        on_progress: Told where it stands.
        interrupts: Presses of Ctrl-C, which are counted while there is something to keep.
        notes: Sentences that the user should read.
        float_ratio: What these make of the float model's latency, where that was measured.
        earlier: The run whose study is gone on with or learned from.
        resolved: For ``run.json``, where the trials of this run were solved for.
        n_learned_from: Evaluations of the run that it was solved from.
    """

    configuration: Configuration
    checked: Checked
    deadline: Deadline
    on_progress: OnProgress
    interrupts: Interrupts
    notes: list[str] = field(default_factory=list)
    rewrites: Rewrites = frozenset()
    float_ratio: float = 1.0
    earlier: Earlier | None = None
    study: Study | None = None
    prior: LatencyPrior | None = None
    sampler: BaseSampler | None = None
    resolved: Mapping[str, object] | None = None
    n_learned_from: int = 0

    def __post_init__(self) -> None:
        self.notes.extend(self.checked.notes)

    @property
    def has_evaluations(self) -> bool:
        """Whether there is something to resume."""
        return self.study is not None and bool(self.study.evaluations)

    def learn_of(self, folder: Path) -> Earlier:
        """Go about it as the earlier run did, which must be of the same search and environment."""
        self.earlier = found = read_earlier(folder, self.configuration_document)
        self.prior = found.prior
        return found

    @property
    def samplers(self) -> tuple[str, ...]:
        """That were asked for trials, in order, those of the run that is gone on with first."""
        before, now = () if self.earlier is None else self.earlier.samplers, str(self.configuration_document["sampler"])
        return before if self.resolved is not None or before[-1:] == (now,) else (*before, now)

    @contextmanager
    def opened(self, folder: RunFolder, *, is_profiled: bool) -> Iterator[Opened]:
        """Open the float model in a process of its own, which ends with the context, and prepare candidates.

        Profiles are worth more to a search than the choice among forms and errors of regions, so that they come first:
        where time is short these are what there is none for.

        Args:
            folder: Of the run.
            is_profiled: Whether profiles are taken, which a run that only resolves has from the earlier one.
        """
        with closing(self._evaluator()) as evaluator:
            evaluator.start()
            preparing = self._preparing()
            calibrated = preparing.ingredients()
            self.notes.extend(self.checked.scheme_notes if calibrated.regions else ())
            with self.deadline.phase("open"):
                facts = self._facts(evaluator)
            plain = preparing.rounded(preparing.filled(calibrated, evaluator, facts))
            with self.deadline.phase("open"):
                self._load(evaluator, plain, facts)
            if is_profiled:
                with self.deadline.phase("profile"):
                    self.profile(evaluator, plain)
            ingredients = self.expect_noise(preparing, preparing.in_best_form(plain, evaluator, facts), evaluator)
            self.notes += [] if self.deadline.hurry is None else [self.deadline.hurry]
            if not self.configuration.resume:  # before there is a journal
                folder.write_json("run.json", self.document(ingredients, facts, None))
            try:
                yield Opened(evaluator=evaluator, ingredients=ingredients, facts=facts)
            finally:
                self.interrupts.is_counting = False

    def _evaluator(self) -> IsolatedEvaluator:
        data, is_pooled = self.checked.data, self.checked.is_pooled
        n_samples = None if self.earlier is None or is_pooled else self.earlier.n_evaluation_samples
        setup = evaluator_setup(
            self.configuration,
            data,
            numbers=self.checked.numbers,
            is_thorough=is_pooled,
            n_samples=n_samples,
        )
        asked_mb = self.configuration.budget.trial_memory_mb
        memory_bytes = self.available_bytes if asked_mb is None else int(asked_mb * 1_000_000)
        return IsolatedEvaluator(setup, memory_bytes=memory_bytes)

    @property
    def available_bytes(self) -> int | None:
        """For the process that measures; None where that is not known."""
        available = available_memory_bytes()
        return None if available is None else int(_MEMORY_SHARE * available)

    def _preparing(self) -> Preparing:
        return Preparing(
            configuration=self.configuration,
            definition=self.checked.definition,
            data=self.checked.data,
            deadline=self.deadline,
            earlier=self.earlier,
            notes=self.notes,
            tell=self.tell,
        )

    def _facts(self, evaluator: IsolatedEvaluator) -> BenchFacts:
        """Wait until the float model was run."""
        facts, data = evaluator.facts(), self.checked.data
        n_all, n_found = len(data.division(len(data.search))), len(data.division(facts.n_samples))
        if n_found < n_all:
            why = "as before, on" if self.earlier and not self.checked.is_pooled else "there was time for"
            self.notes.append(f"evaluation: {why} {n_found} of the {n_all} samples")
        self.notes.extend(data.divided(facts.n_samples))
        self.notes.extend(sentences.silent_sentences(facts.silent))
        self.notes.extend(sentences.dominated_sentences(facts.dominated, facts.n_samples))
        self.notes.extend(sentences.numberless_sentences(facts.numberless))
        return facts

    def _load(self, evaluator: IsolatedEvaluator, ingredients: Ingredients, facts: BenchFacts) -> None:
        """Hand over what candidates are built from."""
        evaluator.load(ingredients, rewrites=frozenset() if self.earlier is None else self.earlier.rewrites)
        if self.earlier is None:
            probed = evaluator.probe_rewrites(self._worth_probing(ingredients, facts))
            self.notes.extend(probed.sentences)
            self.float_ratio = probed.float_ratio
        self.rewrites = evaluator.rewrites

    def _worth_probing(self, ingredients: Ingredients, facts: BenchFacts) -> Rewrites:
        """Ways of writing candidates, without those that add to sizes that count, or that there is no time for."""
        wanted = frozenset(Rewrite) - (LARGER if self.configuration.counts_size else frozenset())
        if not self.deadline.is_late:
            return wanted
        builder = ingredients.builder()
        slow = [each for each in sorted(builder.possible & wanted) if takes_candidates(each, builder)]
        expected_s = len(slow) * probing_seconds(facts.opening_s, sum(facts.float_s.values()))
        if expected_s <= _LATE_REWRITES_SHARE * self.deadline.limit_s:
            return wanted
        for rewrite in slow:
            self.deadline.leaves_out(IN_WORDS[rewrite])
        return wanted.difference(slow)

    def expect_noise(self, preparing: Preparing, chosen: Ingredients, evaluator: IsolatedEvaluator) -> Ingredients:
        """With what the sampler expects noise from."""
        return preparing.with_own_errors(chosen, evaluator)

    def profile(self, evaluator: IsolatedEvaluator, ingredients: Ingredients) -> None:
        """Set the prior; a resumed run measures it again, as it only steers proposals."""
        if not ingredients.regions or not is_structured(self.configuration.sampler):
            return
        if self.deadline.leaves_out("profiles of kernels"):
            return
        try:
            found = self._profiled(evaluator)
        except (ModelError, ProfileError) as error:
            if self.prior is None:
                self.notes.append(f"latencies are expected from each region's share of the arithmetic: {error}")
            evaluator.load(ingredients, rewrites=self.rewrites)  # another process has nothing
        else:
            self.prior = found.prior
            self.notes.extend(outside_sentences(found.outside))

    def _profiled(self, evaluator: IsolatedEvaluator) -> Profiled:
        self.tell("profile")
        seconds = min(_PROFILE_S, _PROFILE_SHARE * self.configuration.budget.limit_s)
        most_s = min(_MOST_PROFILE_S, _MOST_PROFILE_SHARE * self.configuration.budget.limit_s)
        return evaluator.profile(seconds, most_s)

    def open_trials(self, folder: RunFolder, opened: Opened) -> Trials:
        """Open the study, with what can answer its trials; from here on Ctrl-C ends them, and no longer everything."""
        ingredients, evaluator = opened.ingredients, opened.evaluator
        space = resolve(ingredients.definition, ingredients.regions)
        self.notes.extend(sentences.rule_sentences(ingredients.definition, ingredients.regions))
        self.sampler = self._sampler(ingredients)
        self.study = self._open_study(folder, space, self.sampler)

        def on_progress(progress: SearchProgress) -> None:
            self.on_progress(progress)
            self.interrupts.check()

        trials = Trials(
            study=self.study,
            evaluator=evaluator,
            facts=opened.facts,
            regions=ingredients.regions,
            space=space,
            deadline=self.deadline,
            on_progress=on_progress,
            finish=Finish(
                n_samples=len(self.checked.data.division(opened.facts.n_samples)),
                size_bytes=self.checked.source.size_bytes,
                is_refined=ingredients.definition.accuracy is Accuracy.FULL and ingredients.definition.has_static,
            ),
            is_structured=is_structured(self.configuration.sampler),
            outlook=outlook_of(self.sampler),
            first=self._first(ingredients, space),
            ends=ends_of(ingredients.prepared.graph, ingredients.regions),
            is_float_faster=ingredients.prepared.latency_ratio * self.float_ratio < _MUCH_FASTER,
            has_prior=self.prior is not None and len(self.configuration.targets) == 1,
            least_ratios=least_ratios_of(self.sampler),
            twins=ingredients.known_twins(),
        )
        asked_s = self.configuration.budget.trial_seconds
        evaluator.trial_s = self.deadline.trial_seconds(trials.first_seconds) if asked_s is None else asked_s
        self.interrupts.is_counting = True
        return trials

    def _first(self, ingredients: Ingredients, space: SearchSpace) -> Sequence[Assignment]:
        """What a warm start tries."""
        asked, warm = self.configuration.warm_start, self.checked.warm
        if warm is None or asked is None or not ingredients.regions:
            return ()
        found = warm.assignments(ingredients.regions, space, ingredients.prepared.graph)
        if not found.assignments:
            raise UsageError(f"{asked}: {found.note}; give what fits this model, or leave out the warm start")
        self.notes.append(f"warm start from {asked}: {found.note}")
        return found.assignments

    def _open_study(self, folder: RunFolder, space: SearchSpace, sampler: BaseSampler | None) -> Study:
        asked = self.configuration
        try:
            with writing(folder.path):
                return Study(
                    folder.journal, space, sampler, len(asked.targets), objectives=asked.objectives, bounds=asked.bounds
                )
        except (ValueError, KeyError, TypeError) as error:  # what json and Optuna raise on a damaged journal
            raise OutputError(f"{folder.journal}: the study cannot be read ({error}); choose another folder") from error

    def layout_of(self, ingredients: Ingredients) -> Layout:
        """What the structure sampler is told of the graph."""
        return ingredients.layout()

    def _sampler(self, ingredients: Ingredients) -> BaseSampler | None:
        if not ingredients.regions:
            self.notes.append(nothing_to_quantize(ingredients.prepared.graph))
            return None
        asked, demands = self.configuration, self.configuration.demands
        interest = Interest(
            min_snr_db=demands.min_snr_db,
            max_ratio=demands.max_latency_ratio,
            max_size_bytes=demands.max_size_bytes,
            has_size=asked.objectives.has_size,
        )
        return make_sampler(asked.sampler, self.layout_of(ingredients), interest, seed=asked.seed, prior=self.prior)

    @property
    def configuration_document(self) -> dict[str, object]:
        """What the user asked for, and digests of what it names."""
        found = self.checked
        return configuration_document(self.configuration, found.source, found.data, found.definition)

    def document(self, ingredients: Ingredients, facts: BenchFacts, trials: Trials | None) -> dict[str, object]:
        """``run.json``; without trials as it is before there are any."""
        return {
            "schema_version": 1,
            "configuration": self.configuration_document,
            "environment": describe_environment(),
            "seconds": {name: round(seconds, 3) for name, seconds in self.deadline.phases.items()},
            "seconds_total": round(self.deadline.elapsed, 3),
            "seconds_saved": None if trials is None else trials.seconds_saved,
            "samplers": list(self.samplers),
            "n_evaluations": 0 if trials is None else len(trials.study.evaluations),
            **ingredients_document(ingredients),
            "n_evaluation_samples": facts.n_samples,
            "rewrites": sorted(self.rewrites),
            "latency_prior": None if self.prior is None else self.prior.plain(),
            "resolved": self.resolved,
            "float_ms": {name: seconds * 1e3 for name, seconds in facts.float_s.items()},
            "notes": self.notes,
        }

    def tell(self, phase: str, trials: Trials | None = None) -> None:
        """Show which phase begins."""
        left = None if self.deadline.seconds is None else self.deadline.left
        self.on_progress(SearchProgress(phase, left, trials.n_evaluations if trials else 0, {}))
