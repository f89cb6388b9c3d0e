"""The search: every stage wired together."""

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from autoquant.api import steps
from autoquant.api.configuration import DEFAULT_SECONDS, Budget, Configuration, Demands
from autoquant.api.deadline import Deadline
from autoquant.api.delivery import Delivery
from autoquant.api.folder import RunFolder, is_disk_full
from autoquant.api.interrupts import interruptible
from autoquant.api.result import SearchResult
from autoquant.api.trials import SearchProgress, Trials
from autoquant.calibration.batches import overlap, read_samples, split
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import Samples, chain_feeds
from autoquant.domain.front import Front, RunRecord
from autoquant.domain.region import Region
from autoquant.domain.space import SearchSpace, SpaceDefinition
from autoquant.domain.target import Target
from autoquant.errors import DataError, OutputError
from autoquant.examples import example
from autoquant.graph.regions import borders
from autoquant.measurement.bench import Bench
from autoquant.model.io import sha256_of, size_bytes_of
from autoquant.model.prepared import PreparedModel
from autoquant.qdq.builder import Builder
from autoquant.report.front_json import front_json
from autoquant.report.html import report_html
from autoquant.report.summary import run_sentences
from autoquant.report.tables import front_table, trials_table
from autoquant.runtime.environment import describe_environment
from autoquant.runtime.providers import provider_of
from autoquant.space.resolve import resolve
from autoquant.space.schema import read_space
from autoquant.study.sampler import StructureSampler
from autoquant.study.study import Study
from autoquant.study.surrogate import Layout

__all__ = ["ENDED_BY_USER", "search"]

_LOG = logging.getLogger("autoquant")
OnProgress = Callable[[SearchProgress], None]
ENDED_BY_USER = "the user ended the search"


def search(
    model: str | os.PathLike[str],
    *,
    calibration: DataSource | None = None,
    evaluation: DataSource | None = None,
    targets: Sequence[Target] = (Target("cpu"),),
    budget: Budget | None = None,
    demands: Demands | None = None,
    out: str | os.PathLike[str] = "autoquant-run",
    space: str | os.PathLike[str] = "default",
    n_regions: int = 40,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    resume: bool = False,
    cache: Path | None = None,
    spent_s: float = 0.0,
    on_progress: OnProgress = lambda _: None,
) -> SearchResult:
    """Search the mixed-precision QDQ models of a float model that no other one beats in both latency and SNR.

    Args:
        model: The float model's file, or ``example:digits``.
        calibration: Samples that calibrate; an example brings its own.
        evaluation: Samples that evaluate; without them the calibration data are split.
        targets: Where candidates are timed; each is an objective of its own.
        budget: When the search ends; 120 s by default.
        demands: What is of interest.
        out: Folder of the run, new or empty unless ``resume``.
        space: Name or path of the search space.
        n_regions: Largest number of regions.
        dims: Sizes of named dynamic dimensions.
        seed: Of every random choice.
        resume: Go on with the run in ``out``.
        cache: Folder of calibration results, the user's cache folder by default.
        spent_s: Seconds of the budget that are gone already.
        on_progress: Told where the search stands.

    Returns:
        The front and everything behind it.

    Raises:
        AutoquantError: Something that the user can put right; nothing is left half-written.
    """
    budget = budget or Budget()
    if budget.seconds is None and budget.trials is None:
        budget = Budget(seconds=DEFAULT_SECONDS)
    deadline = Deadline(budget.seconds, spent_s=spent_s)
    calibration, evaluation = _with_example(model, calibration, evaluation)
    configuration = Configuration(
        model=steps.model_path(model),
        calibration=calibration,
        evaluation=evaluation,
        targets=tuple(targets),
        budget=budget,
        demands=demands or Demands(),
        out=Path(out),
        space=str(space),
        n_regions=n_regions,
        dims=dict(dims or {}),
        seed=seed,
        resume=resume,
        cache=cache,
    )
    run = _Run(configuration, deadline, on_progress)
    run.check()
    folder = RunFolder(configuration.out, resume=resume)
    try:
        with _enough_room(folder.path), folder.log(), threadpool_limits(limits=1):
            return run.run(folder)
    except BaseException:
        if not run.has_evaluations:
            folder.discard_if_new()
        raise


@contextmanager
def _enough_room(path: Path) -> Iterator[None]:
    """Too little disk or memory is for the user to put right, wherever it shows."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise OutputError(f"{path}: the disk is full; free some room and go on with --resume") from error
    except MemoryError as error:
        raise OutputError(f"{path}: there is not enough memory; use fewer samples or a larger machine") from error


def _with_example(
    model: str | os.PathLike[str], calibration: DataSource | None, evaluation: DataSource | None
) -> tuple[DataSource, DataSource | None]:
    text = os.fspath(model)
    if calibration is None and text.startswith("example:"):
        own = example(text.removeprefix("example:"))
        return own.calibration, evaluation if evaluation is not None else own.evaluation
    if calibration is None:
        raise DataError("there are no calibration data; give them with --calibration, e.g. an .npz file")
    return calibration, evaluation


@dataclass(slots=True)
class _Run:
    """One search, stage by stage."""

    configuration: Configuration
    deadline: Deadline
    on_progress: OnProgress
    notes: list[str] = field(default_factory=list)
    difference_db: float | None = None
    has_plain_sums: bool = False
    definition: SpaceDefinition | None = None
    samples: tuple[Samples, Samples] | None = None
    study: Study | None = None

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
        inputs = steps.signatures_of(asked.model)
        calibration = read_samples(asked.calibration, inputs, role="calibration")
        if asked.evaluation is None:
            self.samples = split(calibration)
            self.notes.append(
                f"no evaluation data: {len(self.samples[0])} of the {len(calibration)} samples calibrate,"
                f" the other {len(self.samples[1])} evaluate"
            )
            return
        self.samples = calibration, read_samples(asked.evaluation, inputs, role="evaluation")
        shared = overlap(*self.samples)
        if shared:
            raise DataError(
                f"{shared} of the {len(self.samples[1])} evaluation samples are calibration samples too;"
                " remove them from one of the two"
            )

    def run(self, folder: RunFolder) -> SearchResult:
        """All stages; see the module."""
        asked, definition, samples = self.configuration, self.definition, self.samples
        assert definition is not None
        assert samples is not None
        self._check_resumed(folder)
        self._tell("preprocess")
        with self.deadline.phase("preprocess"):
            # a dimension is frozen only where calibration and evaluation agree on it
            everything = replace(samples[0], feeds=chain_feeds([each.feeds for each in samples]))
            prepared = steps.prepare(asked.model, everything, dims=asked.dims)
            regions = steps.find_regions(prepared, space=definition, n_regions=asked.n_regions)
            self.notes.extend(prepared.notes)
            self.difference_db = None if math.isinf(prepared.difference_db) else round(prepared.difference_db, 2)
            bench = steps.open_bench(asked.model, samples[1], targets=asked.targets, seed=asked.seed)
        self._tell("calibrate")
        with self.deadline.phase("calibrate"):
            statistics = steps.calibrate(prepared, samples[0], space=definition, cache_folder=asked.cache)
            builder = steps.builder_of(prepared, regions, statistics, space=definition)
            self._choose_forms(folder, builder, bench)
        space = resolve(definition, regions)
        if not asked.resume:
            folder.write_json("run.json", self._run_document(regions, bench, 0))
        study = self._open_study(folder, space, self._sampler(prepared, regions, space))
        trials = Trials(
            study, builder, bench, regions, space, self.deadline, self.on_progress, size_bytes_of(asked.model)
        )
        with self.deadline.phase("search"):
            ended = self._run_trials(trials)
        self.notes.append(_ENDED[ended])
        self._tell("finish", trials)
        delivery = Delivery(
            prepared=prepared,
            builder=builder,
            bench=bench,
            folder=folder,
            calibration_digest=statistics.digest,
            demands=asked.demands,
        )
        with folder.new_models():
            with self.deadline.phase("finish"):
                front = delivery.deliver(study.evaluations, self.deadline)
            record = self._record(front, regions, study)
            self._write_reports(folder, record, self._run_document(regions, bench, trials.n_evaluations))
        return SearchResult(folder.path, record)

    def _choose_forms(self, folder: RunFolder, builder: Builder, bench: Bench) -> None:
        """Probe them; a run that is resumed keeps what it chose, so that its trials stay what they were."""
        if self.configuration.resume:
            self.has_plain_sums = folder.read_json("run.json").get("plain_sums") is True
            builder.write_plain_sums(self.has_plain_sums)
            return
        note = steps.probe_residual_norms(builder, bench)
        self.has_plain_sums = note is not None
        self.notes.extend(filter(None, [note]))

    def _open_study(self, folder: RunFolder, space: SearchSpace, sampler: StructureSampler | None) -> Study:
        try:
            self.study = Study(folder.journal, space, sampler, len(self.configuration.targets))
        except (ValueError, KeyError) as error:  # what json and Optuna raise on a damaged journal
            raise OutputError(f"{folder.journal}: the study cannot be read ({error}); choose another --out") from error
        return self.study

    def _run_trials(self, trials: Trials) -> str:
        with interruptible() as check:

            def on_progress(progress: SearchProgress) -> None:
                self.on_progress(progress)
                check()

            trials.on_progress = on_progress
            return trials.run(self.configuration.budget.trials)

    def _record(self, front: Front, regions: Sequence[Region], study: Study) -> RunRecord:
        return RunRecord(
            front=front,
            regions=tuple(regions),
            evaluations=tuple(study.evaluations),
            environment=describe_environment(),
            configuration=self.configuration.plain(),
            phases=dict(self.deadline.phases),
            notes=tuple(self.notes),
        )

    def _sampler(
        self, prepared: PreparedModel, regions: Sequence[Region], space: SearchSpace
    ) -> StructureSampler | None:
        if not regions:
            self.notes.append("the model holds no operator that could be quantized, so it stays float")
            return None
        work = {region.id: region.work for region in regions}
        layout = Layout.of(space.choices, space.schemes, borders(prepared.graph, regions), work)
        return StructureSampler(layout, seed=self.configuration.seed, min_snr_db=self.configuration.demands.min_snr_db)

    def _check_resumed(self, folder: RunFolder) -> None:
        if not self.configuration.resume:
            return
        earlier = folder.read_json("run.json").get("configuration")
        if not isinstance(earlier, dict):
            raise OutputError(f"{folder.path / 'run.json'}: it is missing or damaged; choose another --out")
        now = self._configuration()
        for key, name in _FIXED.items():
            if key in earlier and earlier[key] != now[key]:
                raise OutputError(
                    f"{folder.path}: its run has another {name} ({earlier[key]}, now {now[key]});"
                    " use the same to go on, or another --out"
                )

    def _configuration(self) -> dict[str, object]:
        """What the user asked for, and digests of what it names."""
        assert self.definition is not None
        assert self.samples is not None
        return {
            **self.configuration.plain(),
            "model_sha256": sha256_of(self.configuration.model),
            "calibration_digest": self.samples[0].digest,
            "evaluation_digest": self.samples[1].digest,
            "space_digest": self.definition.digest,
        }

    def _run_document(self, regions: Sequence[Region], bench: Bench, n_evaluations: int) -> dict[str, object]:
        return {
            "schema_version": 1,
            "configuration": self._configuration(),
            "environment": describe_environment(),
            "seconds": {name: round(seconds, 3) for name, seconds in self.deadline.phases.items()},
            "seconds_total": round(self.deadline.elapsed, 3),
            "n_evaluations": n_evaluations,
            "preprocessed_difference_db": self.difference_db,
            "plain_sums": self.has_plain_sums,
            "float_ms": {name: seconds * 1e3 for name, seconds in bench.float_s.items()},
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
_FIXED = {
    "model_sha256": "model",
    "targets": "target",
    "space": "space",
    "space_digest": "space",
    "n_regions": "number of regions",
    "dims": "--dim",
    "calibration_digest": "calibration data",
    "evaluation_digest": "evaluation data",
}
"""What a resumed run shares with the first one, and what it is called."""
