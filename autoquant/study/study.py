"""The Optuna study of one search."""

import logging
import math
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoquant.domain.measurement import Evaluation, Failure, Latency, Measurement, Quality, State, Trial
from autoquant.domain.objective import (
    DEFAULT_OBJECTIVES,
    NO_BOUNDS,
    SNR_LIMIT_DB,
    Bounds,
    Objectives,
    clamped_db,
    standing_of,
)
from autoquant.domain.reason import one_line
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.domain.share import Z_95
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError, SamplerError, UsageError
from autoquant.study.proposal import fixed_by
from autoquant.study.sampler import SAMPLER_ATTRIBUTES, StructureSampler

__all__ = ["Study", "quiet", "read_evaluations"]

_NAME = "autoquant"
_SNR = "snr_db"


class _Quiet(logging.Filter):
    """Passes errors alone of the thread that makes it, where records are filtered as they are logged."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or threading.get_ident() != self._thread


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna tells of errors alone meanwhile, in this thread: studies in others may be the user's own."""
    found, errors = list(logging.root.manager.loggerDict.items()), _Quiet()
    loggers = [one for name, one in found if name.partition(".")[0] == "optuna" and isinstance(one, logging.Logger)]
    places: list[logging.Filterer] = [*loggers, *logging.getLogger("optuna").handlers]  # loggers may come later
    for place in places:
        place.addFilter(errors)
    try:
        yield
    finally:
        for place in places:
            place.removeFilter(errors)


def read_evaluations(path: Path) -> list[Evaluation]:
    """All that were told to a study, in order and as they were told, from its journal.

    Raises:
        OutputError: There is no such file.
        UsageError: It has trials of other code.
        Exception: Whatever json and Optuna raise on a damaged one.
    """
    if not path.exists():  # Optuna would begin one
        raise OutputError(f"{path}: there is no such study")
    stored = optuna.load_study(study_name=_NAME, storage=JournalStorage(JournalFileBackend(str(path))))
    return [_evaluation(trial, path) for trial in stored.get_trials(deepcopy=False)]


class Study:
    """Ask and tell; every told trial is appended to a journal file as one record.

    Trials are asked in memory and stored when they are told: Optuna's journal takes a write and a sync for each
    parameter of a running trial, which costs more than measuring does with many regions.

    A trial whose candidate was not timed is pruned: it has no values, and its SNR in user attributes.

    The values of a trial are the objectives: ``snr_db`` (maximised), then, all of them minimised, ``drop[METRIC]``,
    ``ratio_0`` and so on for the targets, ``size_bytes``. What is demanded are Optuna's constraints of a trial, so that
    Optuna tells feasible trials and any sampler heeds them. In the journal they are those of the demands when the trial
    was told; a sampler sees those of now.

    Args:
        path: The journal file; trials that it holds already are taken over.
        space: The choices.
        sampler: Any Optuna sampler; None for Optuna's default.
        n_targets: One objective each.
        objectives: What the values are.
        bounds: What is demanded.

    Attributes:
        evaluations: All that were told, those of before first, as they are under the demands of now.
        as_told: The same as they were told.
        objectives: What trials are compared in.
        has_stopped: Whether the sampler has nothing left to propose.
    """

    def __init__(
        self,
        path: Path,
        space: SearchSpace,
        sampler: optuna.samplers.BaseSampler | None,
        n_targets: int = 1,
        objectives: Objectives = DEFAULT_OBJECTIVES,
        bounds: Bounds = NO_BOUNDS,
    ) -> None:
        self._space, self.objectives, self._bounds = space, objectives, bounds
        names = _value_names(objectives, n_targets)
        directions = [StudyDirection.MAXIMIZE if name == _SNR else StudyDirection.MINIMIZE for name in names]
        self._distributions: dict[str, BaseDistribution] = {
            region: CategoricalDistribution(list(names)) for region, names in space.choices.items()
        }
        self._stored = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path), JournalFileOpenLock(str(path)))),
            study_name=_NAME,
            directions=directions,
            load_if_exists=True,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            if self._stored.metric_names is None:
                self._stored.set_metric_names(names)
        if self._stored.metric_names != names:
            raise OutputError(f"{path}: its trials have other objectives or targets; use the same or another folder")
        self._asked = optuna.create_study(storage=InMemoryStorage(), directions=directions, sampler=sampler)
        self._queue: list[dict[str, str]] = []
        self._running: dict[int, optuna.Trial] = {}
        self.evaluations: list[Evaluation] = []
        self.as_told: list[Evaluation] = []
        self.has_stopped = False
        for trial in self._stored.get_trials(deepcopy=False):
            self._take_over(trial, path)

    def _take_over(self, trial: FrozenTrial, path: Path) -> None:
        told = _evaluation(trial, path)
        if dict(trial.distributions) != self._distributions:
            raise OutputError(
                f"{path}: its trials have other regions or schemes; use the same space and number of regions, or"
                " another folder"
            )
        evaluation = self._as_of_now(told, trial.constraints)
        self._asked.add_trial(self._frozen(evaluation))
        self.evaluations.append(evaluation)
        self.as_told.append(told)

    def _as_of_now(self, evaluation: Evaluation, then: Mapping[str, float]) -> Evaluation:
        """As it would be without other demands: one that was stopped early under them has its quality alone.

        Of one whose metrics are not known a demand on these asks again, so that it is as if there was no time for it.
        """
        outcome = evaluation.outcome
        if not isinstance(outcome, Measurement):
            return evaluation
        if outcome.state is State.COMPLETE and not self._bounds.knows(outcome.drops):
            return replace(evaluation, outcome=replace(outcome, state=State.UNTIMED))
        if outcome.state is not State.REJECTED_EARLY:
            return evaluation
        if self._bounds.knows(outcome.drops) and self._stopping(self._constraints(outcome)) == self._stopping(then):
            return evaluation
        return replace(evaluation, outcome=replace(outcome, latency={}, state=State.UNTIMED))

    def _stopping(self, violations: Mapping[str, float]) -> dict[str, float]:
        """Those of demands that decide who stops others: neither on the latency, nor on an SNR that is an objective."""
        without = {"latency_ratio", *(["snr_db"] if self.objectives.has_snr else [])}
        return {name: beyond for name, beyond in violations.items() if name not in without}

    def enqueue(self, assignment: Assignment) -> bool:
        """Propose this one before the sampler is asked, unless it waits or was evaluated; whether it was added.

        It has the schemes that a ``PartialFixedSampler`` fixes.
        """
        params = {region: assignment.get(RegionId(region), FLOAT) for region in self._distributions}
        params.update({region: name for region, name in fixed_by(self._asked.sampler).items() if region in params})
        allowed = all(name in self._space.choices[RegionId(region)] for region, name in params.items())
        known = any(dict(e.trial.assignment) == params for e in self.evaluations)
        if not allowed or known or params in self._queue:
            return False
        self._queue.append(params)
        self._asked.enqueue_trial(params)
        return True

    @property
    def n_enqueued(self) -> int:
        """How many enqueued assignments wait."""
        return len(self._queue)

    @property
    def told(self) -> list[FrozenTrial]:
        """Trials that were told, as a sampler sees them."""
        return [trial for trial in self._asked.get_trials(deepcopy=False) if trial.state.is_finished()]

    def ask_for(self, assignment: Assignment) -> Trial:
        """This assignment as the next trial, though it may have been evaluated; none may be enqueued."""
        assert not self._queue
        self._asked.enqueue_trial({region: assignment.get(RegionId(region), FLOAT) for region in self._distributions})
        return self.ask()

    def ask(self) -> Trial:
        """The next assignment.

        Raises:
            SamplerError: The sampler raised an error, if it is not ours.
        """
        with self._sampling():
            trial = self._asked.ask(self._distributions)
        self._running[trial.number] = trial
        if self._queue:
            self._queue.pop(0)
        return Trial(number=trial.number, assignment={RegionId(k): str(v) for k, v in trial.params.items()})

    def tell(self, evaluation: Evaluation) -> None:
        """Keep an evaluation, in the journal too.

        Raises:
            SamplerError: The sampler raised an error, if it is not ours; the evaluation is kept.
        """
        running, told = self._running.pop(evaluation.trial.number), self._frozen(evaluation)
        for key in SAMPLER_ATTRIBUTES & told.user_attrs.keys():
            running.set_user_attr(key, told.user_attrs[key])
        for name, beyond in told.constraints.items():
            running.set_constraint(name, beyond)
        told.datetime_start = running.datetime_start
        self._stored.add_trial(told)
        self.evaluations.append(evaluation)
        self.as_told.append(evaluation)
        try:
            with self._sampling():
                self._asked.tell(running, told.values, state=told.state)
        except SamplerError as error:
            if "Study.stop" not in str(error):  # by which samplers of Optuna say that they have nothing left
                raise
            self.has_stopped = True

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        """Turn whatever a sampler raises that is not ours into one sentence."""
        try:
            yield
        except UsageError:
            raise
        except Exception as error:
            sampler = self._asked.sampler
            if isinstance(sampler, StructureSampler):
                raise
            raise SamplerError(
                f"sampler {type(sampler).__name__} cannot go on, put it right or give another one"
                f" ({type(error).__name__}: {one_line(error)})"
            ) from error

    def _frozen(self, evaluation: Evaluation) -> FrozenTrial:
        outcome = evaluation.outcome
        found = outcome if isinstance(outcome, Measurement) else None
        values = self._values(found) if found and found.latency else None
        return create_trial(
            state=TrialState.COMPLETE if values else TrialState.PRUNED if found else TrialState.FAIL,
            params={str(region): name for region, name in evaluation.trial.assignment.items()},
            distributions=self._distributions,
            values=values,
            user_attrs=_attributes(outcome),
            constraints=self._constraints(found) if found else None,
        )

    def _values(self, measurement: Measurement) -> list[float]:
        losses = self.objectives.losses(standing_of(measurement))
        return [-losses[0], *losses[1:]] if self.objectives.has_snr else losses

    def _constraints(self, measurement: Measurement) -> dict[str, float]:
        """An infinite SNR is so many decibels from what is demanded as JSON can spell."""
        found = self._bounds.violations(standing_of(measurement))
        return {k: v if math.isfinite(v) else math.copysign(SNR_LIMIT_DB, v) for k, v in found.items()}


def _value_names(objectives: Objectives, n_targets: int) -> list[str]:
    return [
        *([_SNR] if objectives.has_snr else []),
        *(f"drop[{metric.name}]" for metric in objectives.metrics),
        *(f"ratio_{i}" for i in range(n_targets)),
        *(["size_bytes"] if objectives.has_size else []),
    ]


def _attributes(outcome: Measurement | Failure) -> dict[str, object]:
    if isinstance(outcome, Failure):
        return {"state": str(outcome.state), "stage": outcome.stage, "reason": outcome.reason}
    return {
        "state": str(outcome.state),
        "quality": _plain(outcome.quality),
        "latency": {name: _plain(latency) for name, latency in outcome.latency.items()},
        "snr_db": clamped_db(outcome.quality.worst_db),
        "ratios": [latency.ratio for latency in outcome.latency.values()],
        "snr_error_db": outcome.quality.error_db,
        "snr_by_output": [clamped_db(snr) for snr in outcome.quality.per_output.values()],
        "ratio_error": [(found.ratio_high - found.ratio_low) / (2 * Z_95) for found in outcome.latency.values()],
        "digest": outcome.digest,
        "effective": dict(outcome.effective),
        "size_bytes": outcome.size_bytes,
        "drops": dict(outcome.drops),
    }


def _plain(value: Quality | Latency) -> dict[str, object]:
    fields = {name: getattr(value, name) for name in value.__slots__}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in fields.items()}


def _evaluation(trial: FrozenTrial, path: Path) -> Evaluation:
    found = trial.user_attrs
    if "state" not in found:
        raise UsageError(
            f"{path}: trial {trial.number} was added by other code than a search;"
            " take another run, or begin one in another folder"
        )
    assignment = {RegionId(k): str(v) for k, v in trial.params.items()}
    asked = Trial(number=trial.number, assignment=assignment)
    state = State(found["state"])
    if state is State.FAILED:
        return Evaluation(trial=asked, outcome=Failure(stage=found["stage"], reason=found["reason"]))
    outcome = Measurement(
        quality=Quality(**found["quality"]),
        latency={name: Latency(**latency) for name, latency in found["latency"].items()},
        digest=found["digest"],
        effective=found["effective"],
        state=state,
        size_bytes=found["size_bytes"],
        drops=found["drops"],
    )
    return Evaluation(trial=asked, outcome=outcome)
