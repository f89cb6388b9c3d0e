"""One search: every stage wired together."""

import json
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from autoquant.api import steps
from autoquant.api.configuration import Configuration
from autoquant.api.data import SearchData, read_search_data
from autoquant.api.deadline import Deadline
from autoquant.api.delivery import Delivery
from autoquant.api.evaluator import BenchFacts, EvaluatorSetup, Ingredients
from autoquant.api.folder import RunFolder
from autoquant.api.interrupts import Interrupts, interruptible
from autoquant.api.isolated import IsolatedEvaluator
from autoquant.api.result import SearchResult
from autoquant.api.resumption import Earlier, read_earlier
from autoquant.api.scoring import FileScorerSetup
from autoquant.api.trials import SearchProgress, Trials
from autoquant.domain.division import Division
from autoquant.domain.feed import Samples
from autoquant.domain.front import Front, RunRecord
from autoquant.domain.measurement import Measurement
from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import Region
from autoquant.domain.space import SearchSpace, SpaceDefinition
from autoquant.errors import ModelError, OutputError, ProfileError
from autoquant.isolation.limits import available_memory_bytes
from autoquant.measurement.files import FileBenchSetup
from autoquant.model.io import files_of, sha256_of, size_bytes_of
from autoquant.report.front_json import front_json
from autoquant.report.html import report_html
from autoquant.report.summary import run_sentences
from autoquant.report.tables import front_table, trials_table
from autoquant.runtime.environment import describe_environment
from autoquant.runtime.providers import provider_of
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from autoquant.study.sampler import StructureSampler
from autoquant.study.samplers import BaseSampler, is_structured, make_sampler
from autoquant.study.study import Study

__all__ = ["ENDED_BY_USER", "OnProgress", "Run"]

_LOG = logging.getLogger("autoquant")
OnProgress = Callable[[SearchProgress], None]
ENDED_BY_USER = "the user ended the search"
_CALIBRATION_SHARE = 0.25
_FLOAT_SHARE = 0.15
"""Of the budget, for running the float model on the evaluation samples."""
_PROFILE_S, _PROFILE_SHARE = 3.0, 0.02
"""For running what is profiled, and the share of the budget."""
_MOST_PROFILE_S, _MOST_PROFILE_SHARE = 30.0, 0.05
"""For opening it too, and running it a few times: there are no profiles where that should take longer."""
_MEMORY_SHARE = 0.9
"""Of what is available, for the process that measures."""
_PATIENCE = 20.0
_LEAST_TRIAL_S = 20.0
"""A trial may take this long, or so many times what the first one should take, where the user does not say."""


@dataclass(slots=True)
class Run:
    """One search, stage by stage."""

    configuration: Configuration
    deadline: Deadline
    on_progress: OnProgress
    notes: list[str] = field(default_factory=list)
    difference_db: float | None = None
    has_plain_sums: bool = False
    n_calibration_samples: int = 0
    earlier: Earlier | None = None
    definition: SpaceDefinition | None = None
    data: SearchData | None = None
    study: Study | None = None
    prior: LatencyPrior | None = None

    @property
    def has_evaluations(self) -> bool:
        """Whether there is something to resume."""
        return self.study is not None and bool(self.study.evaluations)

    def check(self) -> None:
        """Find what is wrong with the arguments before anything is written."""
        asked = self.configuration
        for target in asked.targets:
            provider_of(target.ep)
        self.definition = read_space(asked.space, ep=asked.targets[0].ep)
        self.data = read_search_data(asked, steps.signatures_of(asked.model))
        self.notes.extend(self.data.notes)

    def run(self, folder: RunFolder) -> SearchResult:
        """All stages; see the module."""
        assert self.data is not None
        if self.configuration.resume:
            now = self._configuration()
            self.earlier, sampler = read_earlier(folder, now), now["sampler"]
            if self.earlier.sampler != sampler:
                self.notes.append(f"the run began with the sampler {self.earlier.sampler} and went on with {sampler}")
        with closing(self._evaluator(self.data.search)) as evaluator:
            evaluator.start()
            ingredients = self._ingredients(self.data)
            with interruptible() as interrupts:
                with self.deadline.phase("open"):
                    facts = self._load(evaluator, folder, ingredients)
                with self.deadline.phase("profile"):
                    self._profile(evaluator, ingredients)
                with self.deadline.phase("search"):
                    trials = self._open_trials(evaluator, folder, ingredients, facts, interrupts)
                    self.notes.append(_ENDED[trials.run(self.configuration.budget.trials)])
                    self.notes.extend(f"trials: {sentence}" for sentence in trials.watch.sentences)
                evaluator.close()
                return self._finish(folder, ingredients, trials, interrupts)

    def _evaluator(self, samples: Samples) -> IsolatedEvaluator:
        asked = self.configuration
        setup = EvaluatorSetup(
            model=asked.model,
            samples=samples,
            targets=asked.targets,
            seed=asked.seed,
            held_out=() if self.data is None or self.data.held_out is None else self.data.held_out.feeds,
            seconds=_FLOAT_SHARE * self._budget_s,
            metrics=asked.metrics,
            has_drops=bool(asked.max_drops or asked.objectives.metrics),
            objectives=asked.objectives,
        )
        return IsolatedEvaluator(setup, memory_bytes=self._memory_bytes)

    @property
    def _budget_s(self) -> float:
        return math.inf if self.configuration.budget.seconds is None else self.configuration.budget.seconds

    @property
    def _memory_bytes(self) -> int | None:
        asked = self.configuration.budget.trial_memory_mb
        if asked is not None:
            return asked * 1_000_000
        return self._available_bytes

    @property
    def _available_bytes(self) -> int | None:
        available = available_memory_bytes()
        return None if available is None else int(_MEMORY_SHARE * available)

    def _ingredients(self, data: SearchData) -> Ingredients:
        """Preprocess, partition, calibrate."""
        assert self.definition is not None
        samples = data.calibration
        asked = self.configuration
        self._tell("preprocess")
        with self.deadline.phase("preprocess"):
            prepared = steps.prepare(asked.model, data.everything, dims=asked.dims)
            regions = steps.find_regions(prepared, space=self.definition, n_regions=asked.n_regions)
            self.notes.extend(prepared.notes)
            self.difference_db = None if math.isinf(prepared.difference_db) else round(prepared.difference_db, 2)
        self._tell("calibrate")
        with self.deadline.phase("calibrate"):
            statistics = steps.calibrate(
                prepared,
                samples,
                space=self.definition,
                cache_folder=asked.cache,
                seconds=math.inf if self.earlier else _CALIBRATION_SHARE * self._budget_s,
                n_samples=self.earlier.n_calibration_samples if self.earlier else None,
            )
        self.n_calibration_samples = statistics.n_samples
        if statistics.n_samples < len(samples):
            why = "as before, on" if self.earlier else "there was time for"
            self.notes.append(f"calibration: {why} {statistics.n_samples} of the {len(samples)} samples")
        return Ingredients(prepared=prepared, regions=regions, statistics=statistics, definition=self.definition)

    def _load(self, evaluator: IsolatedEvaluator, folder: RunFolder, ingredients: Ingredients) -> BenchFacts:
        """Wait until the float model was run, and hand over what candidates are built from."""
        assert self.data is not None
        facts, n_all = evaluator.facts(), len(self.data.division(len(self.data.search)))
        n_found = len(self.data.division(facts.n_samples))
        if n_found < n_all:
            self.notes.append(f"there was time for {n_found} of the {n_all} evaluation samples")
        note = evaluator.load(ingredients, has_plain_sums=None if self.earlier is None else self.earlier.has_plain_sums)
        self.notes.extend(filter(None, [note]))
        self.has_plain_sums = evaluator.has_plain_sums
        if self.earlier is None:  # before there is a journal
            folder.write_json("run.json", self._run_document(ingredients.regions, facts, None))
        return facts

    def _profile(self, evaluator: IsolatedEvaluator, ingredients: Ingredients) -> None:
        """Set the prior; a resumed run measures it again, as it only steers proposals."""
        if not ingredients.regions or not is_structured(self.configuration.sampler):
            return
        self._tell("profile")
        seconds = min(_PROFILE_S, _PROFILE_SHARE * self._budget_s)
        most_s = min(_MOST_PROFILE_S, _MOST_PROFILE_SHARE * self._budget_s)
        try:
            self.prior = evaluator.profile(seconds, most_s)
        except (ModelError, ProfileError) as error:
            self.notes.append(f"latencies are expected from each region's share of the arithmetic: {error}")

    def _open_trials(
        self,
        evaluator: IsolatedEvaluator,
        folder: RunFolder,
        ingredients: Ingredients,
        facts: BenchFacts,
        interrupts: Interrupts,
    ) -> Trials:
        assert self.data is not None
        space = resolve(ingredients.definition, ingredients.regions)
        sampler = self._sampler(ingredients)
        study = self._open_study(folder, space, sampler)
        evaluator.know([e.outcome for e in study.evaluations if isinstance(e.outcome, Measurement)])

        def on_progress(progress: SearchProgress) -> None:
            self.on_progress(progress)
            interrupts.check()

        trials = Trials(
            study=study,
            evaluator=evaluator,
            facts=facts,
            n_final_samples=len(self.data.division(facts.n_samples)),
            regions=ingredients.regions,
            space=space,
            deadline=self.deadline,
            on_progress=on_progress,
            size_bytes=size_bytes_of(self.configuration.model),
            is_structured=is_structured(self.configuration.sampler),
            has_prior=self.prior is not None and len(self.configuration.targets) == 1,
            least_ratios=sampler.least_ratios if isinstance(sampler, StructureSampler) else lambda _: (),
        )
        asked_s = self.configuration.budget.trial_seconds
        evaluator.trial_s = max(_LEAST_TRIAL_S, _PATIENCE * trials.first_seconds) if asked_s is None else asked_s
        return trials

    def _finish(
        self, folder: RunFolder, ingredients: Ingredients, trials: Trials, interrupts: Interrupts
    ) -> SearchResult:
        assert self.data is not None
        n_before, division = min(interrupts.n_pressed, 1), self.data.division(trials.facts.n_samples)
        self._tell("finish", trials)
        delivery = Delivery(
            prepared=ingredients.prepared,
            builder=ingredients.builder(has_plain_sums=self.has_plain_sums),
            facts=trials.facts,
            division=division,
            files=self._files(self.data, division),
            opening_s=trials.evaluator.opening_s,
            memory_bytes=self._available_bytes,
            folder=folder,
            calibration_digest=ingredients.statistics.digest,
            objectives=self.configuration.objectives,
            bounds=self.configuration.bounds,
            is_ended=lambda: interrupts.n_pressed > n_before,
            notes=self.notes,
        )
        study, regions = trials.study, ingredients.regions
        with folder.new_models():
            with self.deadline.phase("finish"):
                front = delivery.deliver(study.evaluations, self.deadline)
            if interrupts.n_pressed > n_before:
                self.notes.append("the user ended the last measurement")
            record = self._record(front, regions, trials)
            self._write_reports(folder, record, self._run_document(regions, trials.facts, trials))
        return SearchResult(folder.path, record)

    def _files(self, data: SearchData, division: Division) -> FileBenchSetup:
        """For the last measurement."""
        asked, feeds = self.configuration, data.feeds(division)
        scorer = FileScorerSetup(
            metrics=asked.metrics, feeds=feeds, labels=data.labels(division), division=division, seed=asked.seed
        )
        return FileBenchSetup(
            baseline=asked.model,
            feeds=feeds,
            targets=asked.targets,
            seed=asked.seed,
            make_scorer=scorer if asked.metrics else None,
        )

    def _open_study(self, folder: RunFolder, space: SearchSpace, sampler: BaseSampler | None) -> Study:
        asked = self.configuration
        try:
            self.study = Study(
                folder.journal, space, sampler, len(asked.targets), objectives=asked.objectives, bounds=asked.bounds
            )
        except (ValueError, KeyError) as error:  # what json and Optuna raise on a damaged journal
            raise OutputError(f"{folder.journal}: the study cannot be read ({error}); choose another --out") from error
        return self.study

    def _record(self, front: Front, regions: Sequence[Region], trials: Trials) -> RunRecord:
        return RunRecord(
            front=front,
            regions=tuple(regions),
            evaluations=tuple(trials.study.evaluations),
            environment=describe_environment(),
            configuration=self.configuration.plain(),
            phases=dict(self.deadline.phases),
            notes=tuple(self.notes),
            seconds_saved=trials.seconds_saved,
        )

    def _sampler(self, ingredients: Ingredients) -> BaseSampler | None:
        if not ingredients.regions:
            self.notes.append("the model holds no operator that could be quantized, so it stays float")
            return None
        asked = self.configuration
        return make_sampler(
            asked.sampler,
            ingredients.layout(),
            seed=asked.seed,
            min_snr_db=asked.demands.min_snr_db,
            max_latency_ratio=asked.demands.max_latency_ratio,
            prior=self.prior,
        )

    def _configuration(self) -> dict[str, object]:
        """What the user asked for, and digests of what it names."""
        assert self.definition is not None
        assert self.data is not None
        held_out = None if self.data.is_pooled or self.data.held_out is None else self.data.held_out.digest
        return {
            **self.configuration.plain(),
            "model_sha256": sha256_of(self.configuration.model),
            "weights_sha256": [sha256_of(file) for file in list(files_of(self.configuration.model))[1:]],
            "calibration_digest": self.data.calibration.digest,
            "evaluation_digest": self.data.evaluation_digest,
            "held_out_digest": held_out,
            "space_digest": self.definition.digest,
        }

    def _run_document(self, regions: Sequence[Region], facts: BenchFacts, trials: Trials | None) -> dict[str, object]:
        saved = None if trials is None else trials.seconds_saved
        return {
            "schema_version": 1,
            "configuration": self._configuration(),
            "environment": describe_environment(),
            "seconds": {name: round(seconds, 3) for name, seconds in self.deadline.phases.items()},
            "seconds_total": round(self.deadline.elapsed, 3),
            "seconds_saved": None if saved is None else round(saved, 3),
            "n_evaluations": 0 if trials is None else trials.n_evaluations,
            "preprocessed_difference_db": self.difference_db,
            "n_calibration_samples": self.n_calibration_samples,
            "plain_sums": self.has_plain_sums,
            "latency_prior": None if self.prior is None else self.prior.plain(),
            "float_ms": {name: seconds * 1e3 for name, seconds in facts.float_s.items()},
            "notes": self.notes,
            "regions": [
                {"id": r.id, "nodes": list(r.nodes), "op_types": list(r.op_types), "work": r.work, "pattern": r.pattern}
                for r in regions
            ],
        }

    def _write_reports(self, folder: RunFolder, record: RunRecord, run_document: dict[str, object]) -> None:
        folder.write_texts(
            {
                "trials.csv": trials_table(record.evaluations, record.regions).to_csv(index=False),
                "front.csv": front_table(record.front).to_csv(index=False),
                "report.html": report_html(record),
                "run.json": json.dumps(run_document, indent=1, allow_nan=False) + "\n",
                "front.json": front_json(record.front),
            }
        )
        for sentence in (*run_sentences(record), *self.notes):
            _LOG.info("%s", sentence)

    def _tell(self, phase: str, trials: Trials | None = None) -> None:
        left = None if self.deadline.seconds is None else self.deadline.left
        self.on_progress(SearchProgress(phase, left, trials.n_evaluations if trials else 0, {}))


_ENDED = {
    "time": "the time budget ended the search",
    "trials": "the number of trials ended the search",
    "exhausted": "no assignment is left that runs as another graph",
    "interrupted": ENDED_BY_USER,
}
