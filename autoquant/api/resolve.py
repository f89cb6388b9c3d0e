"""Another demand on a finished run: solved for, built and measured, again only where that misses the demand."""

import math
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from autoquant.api import steps
from autoquant.api.configuration import Budget, Configuration, Demands, parse_accuracy
from autoquant.api.deadline import Deadline
from autoquant.api.folder import RunFolder, enough_room, read_json
from autoquant.api.interrupts import interruptible
from autoquant.api.objectives import objectives_of
from autoquant.api.result import SearchResult
from autoquant.api.run import OnProgress, Opened, Run
from autoquant.api.sentences import ENDED_BY_USER
from autoquant.api.trials import Trials
from autoquant.calibration.sources import DataSource, is_missing
from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.measurement import Evaluation, Failure, Measurement
from autoquant.domain.objective import NO_BOUNDS
from autoquant.domain.share import Z_95
from autoquant.domain.target import Target
from autoquant.errors import AutoquantError, OutputError, UsageError
from autoquant.metrics.grammar import parse_metrics
from autoquant.study.demand import Predicted, fastest_predicted
from autoquant.study.layout import Layout
from autoquant.study.study import Study, quiet

__all__ = ["resolve"]

_SOLVE_S, _SOLVE_SHARE = 20.0, 0.25
"""For solving, and the share of the budget."""
_MOST_ATTEMPTS = 4
"""Predictions that are measured at most, as long as they miss the demand."""


def resolve(
    run: str | os.PathLike[str],
    *,
    min_snr_db: float,
    max_latency_ratio: float | None = None,
    out: str | os.PathLike[str],
    seconds: float = 60.0,
    model: str | os.PathLike[str] | None = None,
    calibration: DataSource | None = None,
    evaluation: DataSource | None = None,
    held_out: DataSource | None = None,
    labels: str | os.PathLike[str] | None = None,
    space: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    spent_s: float = 0.0,
    on_progress: OnProgress = lambda _: None,
) -> SearchResult:
    """Solve a finished run's models for another demand, and measure only what is predicted to be the fastest.

    Where the SNR that was measured misses the demand, the models learn from that, and the next prediction is measured,
    four at most. All evaluation samples count, as in the last measurement of a search.

    Everything else is as in that run, on the same machine: model, data, target, space, regions, limits of a trial. Only
    its other demands, on size and metrics, do not count.

    Args:
        run: Its folder.
        min_snr_db: The prediction keeps this SNR with a margin of one standard deviation.
        max_latency_ratio: Nothing is measured where the prediction leaves no doubt that this is missed.
        out: Folder of the new run, new or empty: the study with these trials too, and a front of the best and float.
        seconds: From the start to the written front.
        model: The model of that run, needed where its file has moved.
        calibration: The samples of that run, needed where they were Python objects or have moved.
        evaluation: The same.
        held_out: The same.
        labels: The same.
        space: The space of that run, needed where its file has moved.
        cache: Where a folder ``autoquant`` keeps calibration results, rounded weights and observed biases, the user's
            cache folder by default.
        spent_s: Seconds that are gone already.
        on_progress: Told where it stands.

    Returns:
        The front; its notes say what was predicted and what was measured, also of predictions that missed the demand.

    Raises:
        AutoquantError: The run cannot be gone on with here, or no assignment is predicted to keep the demand.
    """
    folder, deadline = Path(run), Deadline(seconds, spent_s=spent_s)
    document = read_json(folder / "run.json")
    data = {"calibration": calibration, "evaluation": evaluation, "held_out": held_out}
    asked = _configuration(folder, document, {"model": model, **data, "labels": labels, "space": space})
    if model is not None:
        asked = replace(asked, model=steps.model_path(model))
    if labels is not None:
        asked = replace(asked, labels=Path(labels))
    if space is not None:
        asked = replace(asked, space=os.fspath(space))
    demands = Demands(min_snr_db=min_snr_db, max_latency_ratio=max_latency_ratio)
    budget = replace(asked.budget, seconds=seconds)
    asked = replace(asked, demands=demands, budget=budget, out=Path(out))
    asked = replace(asked, cache=None if cache is None else Path(cache))
    with interruptible() as interrupts:
        new = Run(asked, deadline, on_progress, interrupts, is_pooled=True)
        return _Resolution(new, folder, min_snr_db, max_latency_ratio).resolved()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A prediction and what became of it."""

    predicted: Predicted
    evaluation: Evaluation

    @property
    def snr_db(self) -> float:
        """That was measured; minus infinity where it failed."""
        outcome = self.evaluation.outcome
        return outcome.quality.worst_db if isinstance(outcome, Measurement) else -math.inf

    @property
    def overestimated_db(self) -> float:
        """By how much the prediction was too high; nothing is known of one that failed."""
        return self.predicted.snr_db - self.snr_db if math.isfinite(self.snr_db) else 0.0

    @property
    def gave(self) -> str:
        """What was measured, in words."""
        outcome = self.evaluation.outcome
        if isinstance(outcome, Failure):
            return f"it failed at {outcome.stage} ({outcome.reason})"
        ratio = max(latency.ratio for latency in outcome.latency.values())
        return f"its trial gave {self.snr_db:.2f} dB and a ratio of {ratio:.3f}"


@dataclass(frozen=True, slots=True)
class _Resolution:
    """One demand on one run."""

    run: Run
    source: Path
    min_snr_db: float
    max_latency_ratio: float | None

    def resolved(self) -> SearchResult:
        """All of it; where it fails, nothing is left."""
        with enough_room(self.run.configuration.out):
            self.run.check()
            self.run.learn_of(self.source)
        with closing(RunFolder(self.run.configuration.out, resume=False, advice="choose another --out")) as place:
            try:
                place.take_journal(self.source)
                with enough_room(place.path), place.log(), threadpool_limits(limits=1), quiet():
                    return self.measure(place)
            except BaseException:
                place.discard_if_new()
                raise

    def measure(self, folder: RunFolder) -> SearchResult:
        """Solve, build, measure, deliver."""
        with self.run.opened(folder) as opened:
            with self.run.deadline.phase("solve"):
                trials = self.run.open_trials(folder, opened)
                trials.n_finalists = 1
                layout = self._layout(opened, trials)
            attempts = self._attempts(trials, layout)
            best = max(attempts, key=lambda attempt: attempt.snr_db)
            if isinstance(best.evaluation.outcome, Failure):
                raise OutputError(
                    f"{self.source}: what is predicted to keep {self._demand}: {best.gave}; demand another"
                )
            missed = [attempt for attempt in attempts if attempt is not best]
            predicted = best.predicted
            self.run.resolved = {
                "run": str(self.source),
                "trial": best.evaluation.trial.number,
                "assignment": dict(predicted.assignment),
                "snr_db": predicted.snr_db,
                "snr_error_db": predicted.snr_error_db,
                "ratios": dict(zip(self._targets, predicted.ratios, strict=True)),
                "ratio_errors": dict(zip(self._targets, predicted.ratio_errors, strict=True)),
                "n_trials": predicted.n_trials,
                "is_proven": predicted.is_proven,
                "missed_trials": [attempt.evaluation.trial.number for attempt in missed],
            }
            return self.run.finish(
                folder,
                opened,
                trials,
                [best.evaluation],
                bounds=NO_BOUNDS,
                remark=lambda front: [*map(self._missed_sentence, missed), *self._remarks(front, best, len(missed))],
            )

    def _layout(self, opened: Opened, trials: Trials) -> Layout:
        """Of the models, which must know something."""
        if not any(isinstance(evaluation.outcome, Measurement) for evaluation in trials.study.evaluations):
            raise OutputError(f"{self.source}: no trial of its study was measured; search with more time")
        if not opened.ingredients.regions:
            raise OutputError(f"{self.source}: its model holds no operator that could be quantized; its front is all")
        layout, prior = opened.ingredients.layout(), self.run.prior
        shapes = (len(layout.regions), layout.n_kinds), (len(layout.edges),)
        if prior is not None and (prior.change.shape, prior.border.shape) != shapes:
            raise OutputError(f"{self.source / 'run.json'}: its latency prior is of other regions; search again")
        return layout

    def _attempts(self, trials: Trials, layout: Layout) -> list[_Attempt]:
        """Predictions with what was measured of them, until one keeps the SNR, or the user wants no more of them.

        By how much one that missed it was overestimated, the next one is solved for more: what looks best is what the
        models are too optimistic of, and the samples here may be noisier than those that the run has seen.
        """
        found: list[_Attempt] = []
        while len(found) < _MOST_ATTEMPTS and not any(attempt.snr_db >= self.min_snr_db for attempt in found):
            beyond_db = max((attempt.overestimated_db for attempt in found), default=0.0)
            try:
                with self.run.deadline.phase("solve"):
                    predicted = self._predicted(trials.study, layout, self.min_snr_db + beyond_db)
                self.run.interrupts.check()
                self._measure(trials, predicted, found)
            except (UsageError, KeyboardInterrupt) as error:
                if not found:
                    raise
                why = error if isinstance(error, UsageError) else ENDED_BY_USER
                self.run.notes.append(f"no other prediction was measured: {why}")
                break
        return found

    def _measure(self, trials: Trials, predicted: Predicted, found: list[_Attempt]) -> None:
        """One more attempt, which counts also where the user ends it just after it was measured."""
        n_before = len(trials.study.evaluations)
        try:
            with self.run.deadline.phase("search"):
                evaluation = trials.measure(predicted.assignment)
        finally:
            found.extend(_Attempt(predicted, evaluation) for evaluation in trials.study.evaluations[n_before:])
        if evaluation is None:
            raise UsageError(
                f"--time {self.run.deadline.seconds:g}s: it was over before the assignment was measured; give more"
            )

    def _predicted(self, study: Study, layout: Layout, min_snr_db: float) -> Predicted:
        """The solution, unless the models leave no doubt that there is none."""
        seconds = min(_SOLVE_S, _SOLVE_SHARE * max(0.0, self.run.deadline.left))
        found = fastest_predicted(study, layout, min_snr_db=min_snr_db, prior=self.run.prior, seconds=seconds)
        if not found.assignment:
            why = "is predicted" if found.is_proven else "was found in time that is predicted"
            raise UsageError(f"{self.source}: nothing faster than float {why} to keep {min_snr_db:g} dB; demand less")
        worst = max(range(len(found.ratios)), key=lambda i: found.ratios[i])
        low = found.ratios[worst] - Z_95 * found.ratio_errors[worst]
        if self.max_latency_ratio is not None and low > self.max_latency_ratio:
            raise UsageError(
                f"{self.source}: what is predicted to keep {min_snr_db:g} dB takes"
                f" {_ratio(found.ratios[worst], found.ratio_errors[worst])} of float's latency, not"
                f" {self.max_latency_ratio:g}; demand less of one of the two"
            )
        return found

    @property
    def _targets(self) -> list[str]:
        return [target.name for target in self.run.configuration.targets]

    @property
    def _demand(self) -> str:
        ratio = "" if self.max_latency_ratio is None else f" at a ratio of {self.max_latency_ratio:g}"
        return f"{self.min_snr_db:g} dB{ratio}"

    def _missed_sentence(self, attempt: _Attempt) -> str:
        """Of a prediction that is not delivered."""
        snr = _interval(attempt.predicted.snr_db, attempt.predicted.snr_error_db, 1)
        name = f"t{attempt.evaluation.trial.number:04d}"
        return f"{name} missed the demand of {self._demand}: {snr} dB were predicted, {attempt.gave}"

    def _remarks(self, front: Front, attempt: _Attempt, n_missed: int) -> list[str]:
        """What was predicted, what was measured, and whether that misses the demand."""
        predicted = attempt.predicted
        snr = _interval(predicted.snr_db, predicted.snr_error_db, 1)
        ratios = ", ".join(
            f"{_ratio(ratio, error)} on {name}"
            for name, ratio, error in zip(self._targets, predicted.ratios, predicted.ratio_errors, strict=True)
        )
        where = f"{self.source} and this run" if n_missed else f"{self.source}"
        notes = [f"predicted from {predicted.n_trials} trials of {where}: {snr} dB, ratio {ratios}"]
        if not predicted.is_proven:
            notes.append("there was no time to show that nothing faster is predicted to keep the demand")
        member = next((member for member in front.members if member.id != FLOAT_ID), None)
        if member is None:
            why = "the model is not shown to be faster than float"
            return [*notes, f"the demand of {self._demand} is missed: {why}; {attempt.gave}"]
        return [*notes, f"measured: {_measured(member)}", *self._missed(member)]

    def _missed(self, member: Member) -> list[str]:
        ratio = max(latency.ratio for latency in member.latency.values())
        missed = [f"{member.worst_db:.2f} dB, not {self.min_snr_db:g}"] if member.worst_db < self.min_snr_db else []
        if self.max_latency_ratio is not None and ratio > self.max_latency_ratio:
            missed.append(f"a ratio of {ratio:.3f}, not {self.max_latency_ratio:g}")
        return [f"the demand is missed: {' and '.join(missed)}; demand a bit more to have more room"] if missed else []


def _measured(member: Member) -> str:
    search = member.snr_search
    known = (
        ""
        if search is None or search.low_db is None or search.high_db is None
        else (f" ({search.worst_db:.1f}, {search.low_db:.1f} to {search.high_db:.1f}, on the samples of the search)")
    )
    ratios = ", ".join(
        f"{found.ratio:.3f} ({found.ratio_low:.3f} to {found.ratio_high:.3f}) on {name}"
        for name, found in member.latency.items()
    )
    return f"{member.worst_db:.1f} dB{known}, ratio {ratios}"


def _ratio(value: float, error: float) -> str:
    return _interval(value, error, 3)


def _interval(value: float, error: float, n_digits: int) -> str:
    """With its 95 % interval."""
    low, high = value - Z_95 * error, value + Z_95 * error
    return f"{value:.{n_digits}f} ({low:.{n_digits}f} to {high:.{n_digits}f})"


def _configuration(
    folder: Path, document: Mapping[str, object], given: Mapping[str, DataSource | None]
) -> Configuration:
    """What was asked of the run, without its demands and sampler, and of its budget what limits a trial.

    ``given`` is what the user names again.
    """
    plain = document.get("configuration")
    if not isinstance(plain, dict):
        raise OutputError(f"{folder / 'run.json'}: it is missing or damaged; give the folder that a search has written")
    try:
        asked = _parsed(plain, given)
        _refuse_missing({name: plain[name] for name, again in given.items() if again is None and plain[name]})
    except AutoquantError as error:
        raise OutputError(f"{folder / 'run.json'}: {error}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise OutputError(f"{folder / 'run.json'}: it is damaged ({error}); give the folder of another run") from error
    return asked


def _refuse_missing(named: Mapping[str, str]) -> None:
    """Of what the search was given as paths, those that lead nowhere, as relative ones do from another folder."""
    paths = {name: path for name, path in named.items() if name != "space" or path.endswith(".toml")}
    missing = {name: path for name, path in paths.items() if is_missing(path)}
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        arguments = ", ".join(f"{name}=..." for name in missing)
        raise UsageError(
            f"what it names is not found from here: {', '.join(missing.values())}; give it with {options}"
            f" or autoquant.resolve(..., {arguments})"
        )


def _parsed(plain: Mapping[str, Any], given: Mapping[str, DataSource | None]) -> Configuration:
    metrics = parse_metrics(plain["metrics"])
    names = {str(metric): metric.name for metric in metrics}
    calibration = _source("calibration", plain, given)
    if calibration is None:
        raise ValueError("calibration")
    return Configuration(
        model=Path(plain["model"]),
        calibration=calibration,
        evaluation=_source("evaluation", plain, given),
        held_out=_source("held_out", plain, given),
        labels=None if plain["labels"] is None else Path(plain["labels"]),
        metrics=metrics,
        objectives=objectives_of([names.get(spelled, spelled) for spelled in plain["objectives"]], metrics),
        targets=tuple(Target(**target) for target in plain["targets"]),
        budget=Budget(trial_seconds=plain["trial_seconds"], trial_memory_mb=plain["trial_memory_mb"]),
        demands=Demands(),
        out=Path(),
        space=plain["space"],
        accuracy=parse_accuracy(plain["accuracy"]),
        n_regions=plain["n_regions"],
        dims=plain["dims"],
        seed=plain["seed"],
    )


def _source(name: str, plain: Mapping[str, Any], given: Mapping[str, DataSource | None]) -> DataSource | None:
    if given[name] is not None:
        return given[name]
    spelled: str | None = plain[name]
    if spelled is not None and spelled.startswith("<"):
        raise UsageError(
            f"its {name} data were Python objects {spelled}, give them with --{name.replace('_', '-')}"
            f" or autoquant.resolve(..., {name}=...)"
        )
    return spelled
