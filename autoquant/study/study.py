"""The Optuna study of one search."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoquant.domain.measurement import Evaluation, Failure, Latency, Measurement, Quality, Trial
from autoquant.domain.region import Assignment, RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError
from autoquant.study.sampler import SAMPLER_ATTRIBUTES

__all__ = ["SNR_LIMIT_DB", "Study"]

SNR_LIMIT_DB = 200.0
"""Equal outputs count as this much: Optuna's values must be finite to be shown."""
_NAME = "autoquant"


class Study:
    """Ask and tell; every told trial is appended to a journal file as one record.

    Trials are asked in memory and stored when they are told: Optuna's journal takes a write and a sync for each
    parameter of a running trial, which costs more than measuring does with many regions.

    Args:
        path: The journal file; trials that it holds already are taken over.
        space: The choices.
        sampler: Any Optuna sampler; None for Optuna's default.
        n_targets: One objective each, after the SNR.
    """

    def __init__(
        self, path: Path, space: SearchSpace, sampler: optuna.samplers.BaseSampler | None, n_targets: int = 1
    ) -> None:
        self._space = space
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        directions = [StudyDirection.MAXIMIZE, *[StudyDirection.MINIMIZE] * n_targets]
        self._distributions: dict[str, BaseDistribution] = {
            region: CategoricalDistribution(list(names)) for region, names in space.choices.items()
        }
        self._stored = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name=_NAME,
            directions=directions,
            load_if_exists=True,
        )
        if self._stored.directions != directions:
            raise OutputError(
                f"{path}: its trials have another number of targets; use the same --target or another --out"
            )
        self._asked = optuna.create_study(storage=InMemoryStorage(), directions=directions, sampler=sampler)
        self._queue: list[dict[str, str]] = []
        self._running: dict[int, optuna.Trial] = {}
        self.evaluations: list[Evaluation] = []
        for trial in self._stored.get_trials(deepcopy=False):
            self._take_over(trial, path)
        if not self.evaluations:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                self._stored.set_metric_names(["snr_db", *(f"ratio_{i}" for i in range(n_targets))])

    def _take_over(self, trial: FrozenTrial, path: Path) -> None:
        if dict(trial.distributions) != self._distributions:
            raise OutputError(
                f"{path}: its trials have other regions or schemes; use the same --space and --regions or another --out"
            )
        self._asked.add_trial(trial)
        self.evaluations.append(_evaluation(trial))

    def enqueue(self, assignment: Assignment) -> None:
        """Propose this one before the sampler is asked, unless it was evaluated already."""
        params = {region: assignment.get(RegionId(region), FLOAT) for region in self._distributions}
        allowed = all(name in self._space.choices[RegionId(region)] for region, name in params.items())
        known = any(dict(e.trial.assignment) == params for e in self.evaluations)
        if allowed and not known and params not in self._queue:
            self._queue.append(params)
            self._asked.enqueue_trial(params)

    @property
    def n_enqueued(self) -> int:
        """How many enqueued assignments wait."""
        return len(self._queue)

    def ask(self) -> Trial:
        """The next assignment."""
        trial = self._asked.ask(self._distributions)
        self._running[trial.number] = trial
        if self._queue:
            self._queue.pop(0)
        return Trial(number=trial.number, assignment={RegionId(k): str(v) for k, v in trial.params.items()})

    def tell(self, evaluation: Evaluation) -> None:
        """Keep an evaluation, in the journal too."""
        trial, outcome = evaluation.trial, evaluation.outcome
        attributes = _attributes(outcome)
        if isinstance(outcome, Failure):
            values, state = None, TrialState.FAIL
        else:
            values, state = _values(outcome), TrialState.COMPLETE
        running = self._running.pop(trial.number)
        for key in SAMPLER_ATTRIBUTES & attributes.keys():
            running.set_user_attr(key, attributes[key])
        self._asked.tell(running, values, state=state)
        self._stored.add_trial(
            create_trial(
                state=state,
                params={str(region): name for region, name in trial.assignment.items()},
                distributions=self._distributions,
                values=values,
                user_attrs=attributes,
            )
        )
        self.evaluations.append(evaluation)


def _values(measurement: Measurement) -> list[float]:
    return [_finite(measurement.quality.worst_db), *(latency.ratio for latency in measurement.latency.values())]


def _finite(snr_db: float) -> float:
    return max(-SNR_LIMIT_DB, min(SNR_LIMIT_DB, snr_db))


def _attributes(outcome: Measurement | Failure) -> dict[str, object]:
    if isinstance(outcome, Failure):
        return {"state": "failed", "stage": outcome.stage, "reason": outcome.reason}
    return {
        "state": "complete" if outcome.is_complete else "rejected-early",
        "quality": _plain(outcome.quality),
        "latency": {name: _plain(latency) for name, latency in outcome.latency.items()},
        "snr_by_output": [_finite(snr) for snr in outcome.quality.per_output.values()],
        "ratio_error": max((x.ratio_high - x.ratio_low) / 3.92 for x in outcome.latency.values()),
        "digest": outcome.digest,
        "effective": dict(outcome.effective),
        "drops": dict(outcome.drops),
    }


def _plain(value: Quality | Latency) -> dict[str, object]:
    fields = {name: getattr(value, name) for name in value.__slots__}
    return {k: dict(v) if isinstance(v, Mapping) else v for k, v in fields.items()}


def _evaluation(trial: FrozenTrial) -> Evaluation:
    found = trial.user_attrs
    assignment = {RegionId(k): str(v) for k, v in trial.params.items()}
    asked = Trial(number=trial.number, assignment=assignment)
    if found["state"] == "failed":
        return Evaluation(trial=asked, outcome=Failure(stage=found["stage"], reason=found["reason"]))
    outcome = Measurement(
        quality=Quality(**found["quality"]),
        latency={name: Latency(**latency) for name, latency in found["latency"].items()},
        digest=found["digest"],
        effective=found["effective"],
        is_complete=found["state"] == "complete",
        drops=found.get("drops", {}),
    )
    return Evaluation(trial=asked, outcome=outcome)
