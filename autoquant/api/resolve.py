"""Another demand on a finished run: solved for, built and measured, again only where that misses the demand."""

import numbers
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from threadpoolctl import threadpool_limits

from autoquant.api.attempts import Attempt, Demand
from autoquant.api.checking import check
from autoquant.api.configuration import Demands
from autoquant.api.deadline import Deadline
from autoquant.api.finishing import finish
from autoquant.api.folder import FRONT, KEPT, RunFolder, enough_room
from autoquant.api.interrupts import interruptible
from autoquant.api.processes import process_errors
from autoquant.api.resolved_sentences import known_sentences, missed_sentence, resolved_sentences, with_interval
from autoquant.api.result import SearchResult
from autoquant.api.run import OnProgress, Opened, Run
from autoquant.api.run_configuration import read_configuration
from autoquant.api.sentences import ENDED_BY_USER
from autoquant.api.trials import Trials
from autoquant.calibration.sources import DataSource
from autoquant.domain.arguments import check_function, check_path, check_seconds, check_type
from autoquant.domain.front import Front
from autoquant.domain.measurement import Failure, Measurement
from autoquant.domain.objective import NO_BOUNDS
from autoquant.domain.share import Z_95
from autoquant.errors import OutputError, UsageError
from autoquant.report.front_json import front_from_json
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
    for name, path, is_needed in (
        ("the run", run, True),
        ("the new run's folder", out, True),
        ("the model", model, False),
        ("the file of labels", labels, False),
        ("the search space", space, False),
        ("the cache", cache, False),
    ):
        check_path(name, path, is_needed=is_needed)
    check_type("the lowest SNR", min_snr_db, numbers.Real, "a number")
    check_seconds("the seconds that are gone", spent_s, example="3")
    check_function("what is told of progress", on_progress, "a function of a SearchProgress")
    folder, deadline = Path(run), Deadline(seconds, spent_s=spent_s)
    asked = read_configuration(
        folder,
        model=model,
        calibration=calibration,
        evaluation=evaluation,
        held_out=held_out,
        labels=labels,
        space=space,
    )
    demands = Demands(min_snr_db=min_snr_db, max_latency_ratio=max_latency_ratio)
    budget = replace(asked.budget, seconds=seconds)
    asked = replace(asked, demands=demands, budget=budget, out=Path(out))
    asked = replace(asked, cache=None if cache is None else Path(cache))
    with interruptible() as interrupts:
        with enough_room(asked.out):
            new = Run(asked, check(asked, is_pooled=True), deadline, on_progress, interrupts)
            new.learn_of(folder)
        return _Resolution(new, folder, Demand(min_snr_db, max_latency_ratio)).resolved()


@dataclass(frozen=True, slots=True)
class _Resolution:
    """One demand on one run."""

    run: Run
    source: Path
    demand: Demand

    def resolved(self) -> SearchResult:
        """All of it; where it fails, nothing is left."""
        with closing(RunFolder(self.run.configuration.out, resume=False, advice="choose another folder")) as place:
            try:
                place.take_journal(self.source)
                with enough_room(place.path), place.log(), threadpool_limits(limits=1), quiet():
                    return self.measure(place)
            except BaseException:
                place.discard_if_new()
                raise

    def measure(self, folder: RunFolder) -> SearchResult:
        """Solve, build, measure, deliver."""
        with self.run.opened(folder, is_profiled=False) as opened:
            with self.run.deadline.phase("solve"):
                trials = self.run.open_trials(folder, opened)
                trials.finish = replace(trials.finish, n_finalists=1)
                self.run.n_learned_from = len(trials.study.evaluations)
                layout = self._layout(opened, trials)
            attempts = self._attempts(trials, layout)
            best = max(attempts, key=lambda attempt: attempt.snr_db)
            if isinstance(best.evaluation.outcome, Failure):
                raise OutputError(
                    f"{self.source}: what is predicted to keep {self.demand}: {best.gave}; demand another"
                )
            missed = [attempt for attempt in attempts if attempt is not best]
            self.run.resolved = self._document(best, missed)
            return finish(
                self.run,
                folder,
                opened,
                trials,
                [best.evaluation],
                bounds=NO_BOUNDS,
                remark=lambda front: self._remarks(front, best, missed),
            )

    def _layout(self, opened: Opened, trials: Trials) -> Layout:
        """Of the models, which must know something."""
        outcomes = [evaluation.outcome for evaluation in trials.study.evaluations]
        measured = [outcome for outcome in outcomes if isinstance(outcome, Measurement)]
        if not measured or (len(self.run.configuration.targets) > 1 and not any(found.latency for found in measured)):
            how = "timed" if measured else "measured"
            raise OutputError(f"{self.source}: no trial of its study was {how}; search with more time")
        if not opened.ingredients.regions:
            raise OutputError(f"{self.source}: its model holds no operator that could be quantized; its front is all")
        layout, prior = opened.ingredients.layout(), self.run.prior
        shapes = (len(layout.regions), layout.n_kinds), (len(layout.edges),)
        if prior is not None and (prior.change.shape, prior.border.shape) != shapes:
            raise OutputError(f"{self.source / 'run.json'}: its latency prior is of other regions; search again")
        return layout

    def _attempts(self, trials: Trials, layout: Layout) -> list[Attempt]:
        """Predictions with what was measured of them, until one keeps the SNR, or the user wants no more of them.

        By how much one that missed it was overestimated, the next one is solved for more: what looks best is what the
        models are too optimistic of, and the samples here may be noisier than those that the run has seen.
        """
        found: list[Attempt] = []
        while len(found) < _MOST_ATTEMPTS and not any(attempt.snr_db >= self.demand.min_snr_db for attempt in found):
            beyond_db = max((attempt.overestimated_db for attempt in found), default=0.0)
            try:
                with self.run.deadline.phase("solve"):
                    predicted = self._predicted(trials.study, layout, self.demand.min_snr_db + beyond_db)
                self.run.interrupts.check()
                self._measure(trials, predicted, found)
            except (UsageError, KeyboardInterrupt) as error:
                if not found:
                    raise
                why = error if isinstance(error, UsageError) else ENDED_BY_USER
                self.run.notes.append(f"no other prediction was measured: {why}")
                break
        return found

    def _measure(self, trials: Trials, predicted: Predicted, found: list[Attempt]) -> None:
        """One more attempt, which counts also where the user ends it just after it was measured."""
        n_before = len(trials.study.evaluations)
        try:
            with self.run.deadline.phase("search"):
                evaluation = trials.measure(predicted.assignment)
        finally:
            found.extend(Attempt(predicted, evaluation) for evaluation in trials.study.evaluations[n_before:])
        if evaluation is None:
            raise UsageError(
                f"{self.run.deadline.seconds:g} s were over before the assignment was measured; give more time"
            )

    def _predicted(self, study: Study, layout: Layout, min_snr_db: float) -> Predicted:
        """The solution, where it may be faster than float; of the preprocessed model that has to be sure."""
        seconds = min(_SOLVE_S, _SOLVE_SHARE * max(0.0, self.run.deadline.left))
        targets = [target.name for target in self.run.configuration.targets]
        found = fastest_predicted(
            study,
            layout,
            min_snr_db=min_snr_db,
            prior=self.run.prior,
            seconds=seconds,
            process_errors=process_errors(self.before, targets),
        )
        z = -Z_95 if found.assignment else Z_95
        pays = any(ratio + z * error < 1 for ratio, error in zip(found.ratios, found.ratio_errors, strict=True))
        if not pays or not (found.assignment or found.snr_db >= min_snr_db):
            why = "is predicted" if found.is_proven else "was found in time that is predicted"
            known = self._known(None) if min_snr_db == self.demand.min_snr_db else []  # remarks name it else
            advice = known[0] if known else "demand less"
            raise UsageError(f"{self.source}: nothing faster than float {why} to keep {min_snr_db:g} dB; {advice}")
        worst = max(range(len(found.ratios)), key=lambda i: found.ratios[i])
        low = found.ratios[worst] - Z_95 * found.ratio_errors[worst]
        if self.demand.max_latency_ratio is not None and low > self.demand.max_latency_ratio:
            raise UsageError(
                f"{self.source}: what is predicted to keep {min_snr_db:g} dB takes"
                f" {with_interval(found.ratios[worst], found.ratio_errors[worst], 3)} of float's latency, not"
                f" {self.demand.max_latency_ratio:g}; demand less of one of the two"
            )
        return found

    def _document(self, best: Attempt, missed: Sequence[Attempt]) -> dict[str, object]:
        """For ``run.json``."""
        predicted, targets = best.predicted, [target.name for target in self.run.configuration.targets]
        return {
            "run": str(self.source),
            "trial": best.evaluation.trial.number,
            "assignment": dict(predicted.assignment),
            "snr_db": predicted.snr_db,
            "snr_error_db": predicted.snr_error_db,
            "ratios": dict(zip(targets, predicted.ratios, strict=True)),
            "ratio_errors": dict(zip(targets, predicted.ratio_errors, strict=True)),
            "n_trials": predicted.n_trials,
            "is_proven": predicted.is_proven,
            "missed_trials": [attempt.evaluation.trial.number for attempt in missed],
        }

    def _remarks(self, front: Front, best: Attempt, missed: Sequence[Attempt]) -> list[str]:
        learned_from = f"{self.source} and this run" if missed else f"{self.source}"
        return [
            *(missed_sentence(attempt, self.demand) for attempt in missed),
            *resolved_sentences(front, best, self.demand, learned_from=learned_from),
            *self._known(front),
        ]

    def _known(self, front: Front | None) -> list[str]:
        """What the run itself has for the demand, at most one sentence; ``front`` is what was built for it."""
        kept = [folder for folder in (self.source / KEPT).glob("*") if folder.name.isdigit()]
        folders = [self.source, *sorted(kept, key=lambda folder: -int(folder.name))]
        found = {folder.as_posix(): _front_in(folder) for folder in folders}
        return known_sentences({name: each for name, each in found.items() if each is not None}, front, self.demand)

    @property
    def before(self) -> Front | None:
        """The front of the run; None where it is gone or damaged."""
        return _front_in(self.source)


def _front_in(folder: Path) -> Front | None:
    with suppress(OSError, UnicodeDecodeError, OutputError):
        return front_from_json((folder / FRONT).read_text(encoding="utf-8"))
    return None
