"""The search: what a user asks, checked, and its errors."""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from autoquant.api import sentences, steps
from autoquant.api.checking import check
from autoquant.api.configuration import DEFAULT_SECONDS, Budget, Configuration, Demands, parse_accuracy
from autoquant.api.deadline import Deadline
from autoquant.api.finishing import finish
from autoquant.api.folder import RunFolder, enough_room
from autoquant.api.interrupts import interruptible
from autoquant.api.objectives import objectives_of
from autoquant.api.result import SearchResult
from autoquant.api.run import OnProgress, Run
from autoquant.calibration.sources import DataSource
from autoquant.domain.arguments import check_dims, check_function, check_path, check_seconds, check_several, check_type
from autoquant.domain.measurement import Measurement
from autoquant.domain.region import N_REGIONS
from autoquant.domain.sampler import SamplerName
from autoquant.domain.target import Target
from autoquant.errors import MetricError, SamplerError
from autoquant.metrics.grammar import parse_metrics
from autoquant.study.samplers import BaseSampler, parse_sampler
from autoquant.study.study import quiet

__all__ = ["search"]

_KEPT = "what was measured is kept, and the search can be resumed"


def search(
    model: str | os.PathLike[str],
    *,
    calibration: DataSource | None = None,
    evaluation: DataSource | None = None,
    held_out: DataSource | None = None,
    labels: str | os.PathLike[str] | None = None,
    metrics: Sequence[str] = (),
    objectives: Sequence[str] = ("latency", "snr"),
    targets: Sequence[Target] = (Target("cpu"),),
    budget: Budget | None = None,
    demands: Demands | None = None,
    out: str | os.PathLike[str] = "autoquant-run",
    space: str | os.PathLike[str] = "default",
    accuracy: str | None = None,
    n_regions: int = N_REGIONS,
    dims: Mapping[str, int] | None = None,
    seed: int = 0,
    sampler: str | BaseSampler = SamplerName.STRUCTURE,
    resume: bool = False,
    warm_start: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    spent_s: float = 0.0,
    on_progress: OnProgress = lambda _: None,
) -> SearchResult:
    """Search the mixed-precision QDQ models of a float model that no other one beats in all objectives.

    Args:
        model: The float model's file, or ``example:digits``.
        calibration: Samples that calibrate: files or ``module:callable`` as on the command line, a dict of arrays, an
            iterable of feeds (arrays alone where the model has one input), or a ``CalibrationDataReader``; an
            example brings its own.
        evaluation: Samples that evaluate; without them the calibration data are split.
        held_out: Samples that only the last measurement sees; without them a half of the evaluation samples, if there
            are enough.
        labels: File with labels of the evaluation samples, ``.npz`` or ``.npy``; arrays ``label*`` of the data without.
        metrics: Beside SNR, as ``autoquant.metrics.grammar`` spells them, e.g. ``top1`` or ``module:function``.
        objectives: What members are compared in: ``latency``, which must be there, ``size``, ``snr`` and names of
            metrics, at least one of these two.
        targets: Where candidates are timed; the latency on each is an objective of its own.
        budget: When the search ends; after 120 s where neither time nor trials are given.
        demands: What every member but ``float`` keeps.
        out: Folder of the run, new or empty unless ``resume``.
        space: Name or path of the search space.
        accuracy: What is done for accuracy at no cost in latency: ``none``, ``fast`` or ``full``, see
            ``autoquant.domain.accuracy``; what the space says by default, which is ``fast`` for those that are shipped.
        n_regions: Largest number of regions.
        dims: Sizes of named dynamic dimensions.
        seed: Of proposals, orders and resampling.
        sampler: What proposes: ``structure``, or to compare with ``tpe``, ``tpe-univariate``, ``nsga2``, ``random`` or
            an Optuna sampler for several objectives; a ``StructureSampler`` takes the demands of the search for its
            own. Each is given the uniform recipes first; the one-region probes
            that follow are the structure sampler's own. A resumed run may take another one.
            An error that one of them raises ends the search with what was measured.
        resume: Go on with the run in ``out``.
        warm_start: What is tried right after the uniform recipes: the folder of an earlier run of the same or a similar
            model, a QDQ model, or overrides as a run writes them.
        cache: Where a folder ``autoquant`` keeps calibration results, rounded weights and observed biases, the user's
            cache folder by default.
        spent_s: Seconds of the budget that are gone already.
        on_progress: Told where the search stands.

    Returns:
        The front and everything behind it.

    Raises:
        AutoquantError: Something that the user can put right; nothing is left half-written.
    """
    budget, demands = budget or Budget(), demands or Demands()
    check_type("the budget", budget, Budget, "one, e.g. Budget(seconds=120)")
    check_type("what is demanded", demands, Demands, "it like Demands(min_snr_db=30)")
    check_dims(dims)
    check_path("the run's folder", out, is_needed=True)
    for name, path_given in (("the file of labels", labels), ("the warm start", warm_start), ("the cache", cache)):
        check_path(name, path_given)
    check_type("resume", resume, bool, "True or False")
    check_seconds("the seconds that are gone", spent_s, example="3")
    check_function("what is told of progress", on_progress, "a function of a SearchProgress")
    check_several("metrics", metrics, str, "names, e.g. ['top1'] or ['my_module:my_function']")
    check_several("objectives", objectives, str, "names, e.g. ['latency', 'snr']")
    check_several("targets", targets, Target, "targets, e.g. [Target('cpu')]")
    if budget.seconds is None and budget.trials is None:
        budget = replace(budget, seconds=DEFAULT_SECONDS)
    deadline = Deadline(budget.seconds, spent_s=spent_s)
    path = steps.model_path(model)
    if calibration is None:
        calibration = steps.some_data(model)
        evaluation = evaluation if evaluation is not None else steps.example_data(model, "evaluation")
    parsed = parse_metrics(metrics)
    configuration = Configuration(
        model=path,
        calibration=calibration,
        evaluation=evaluation,
        targets=tuple(targets),
        budget=budget,
        demands=demands,
        out=Path(out),
        space=str(space),
        accuracy=parse_accuracy(accuracy),
        n_regions=n_regions,
        dims=dict(dims or {}),
        seed=seed,
        resume=resume,
        warm_start=None if warm_start is None else Path(warm_start),
        cache=None if cache is None else Path(cache),
        held_out=held_out,
        labels=None if labels is None else Path(labels),
        metrics=parsed,
        objectives=objectives_of(objectives, parsed),
        sampler=parse_sampler(sampler),
    )
    with interruptible() as interrupts:
        with enough_room(configuration.out), deadline.phase("read"):
            checked = check(configuration)
        return _searched(Run(configuration, checked, deadline, on_progress, interrupts))


def _searched(run: Run) -> SearchResult:
    asked = run.configuration
    with closing(RunFolder(asked.out, resume=asked.resume)) as folder:
        try:
            with enough_room(folder.path), folder.log(), threadpool_limits(limits=1), quiet():
                steps.trim_cache(asked.cache or steps.user_cache())
                return _delivered(run, folder)
        except BaseException:
            if not run.has_evaluations:
                folder.discard_if_new()
            raise


def _delivered(run: Run, folder: RunFolder) -> SearchResult:
    """All stages."""
    asked = run.configuration
    if asked.resume:
        run.learn_of(folder.path)
        if len(run.samplers) > 1:
            run.notes.append(f"the runs of this study asked these samplers, in this order: {', '.join(run.samplers)}")
    with run.opened(folder, is_profiled=True) as opened:
        with run.deadline.phase("search"):
            trials = run.open_trials(folder, opened)
            known = [e.outcome for e in trials.study.evaluations if isinstance(e.outcome, Measurement)]
            opened.evaluator.know(known)
            try:
                ended = trials.run(asked.budget.trials)
            except SamplerError as error:
                if not run.has_evaluations:
                    raise
                raise SamplerError(f"{error}; {_KEPT}") from error
            if opened.ingredients.regions or ended == "interrupted":
                found, missing_s = trials.study.evaluations, trials.missing_s
                run.notes.append(sentences.ending_sentence(ended, found, missing_s, trials.error))
            run.notes.extend(sentences.failure_sentences(trials.study.evaluations))
            outlook = trials.outlook()
        try:
            return finish(
                run,
                folder,
                opened,
                trials,
                trials.study.evaluations,
                bounds=asked.bounds,
                remark=lambda front: sentences.outlook_sentences(outlook, front, asked.bounds.max_latency_ratio),
            )
        except MetricError as error:
            raise MetricError(f"{error}; {_KEPT}") from error
