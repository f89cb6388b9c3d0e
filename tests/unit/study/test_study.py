import dataclasses
import math
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autoquant.domain.measurement import Evaluation, Failure, Measurement, Trial
from autoquant.domain.region import RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError
from autoquant.study.study import SNR_LIMIT_DB, Study
from tests.records import a_measured

R0, R1 = RegionId("r0"), RegionId("r1")
SPACE = SearchSpace(choices={R0: ("float", "u8s8", "u8u8"), R1: ("float", "u8s8")}, schemes={})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


def a_study(path: Path, space: SearchSpace = SPACE, seed: int = 0, n_targets: int = 1) -> Study:
    return Study(path, space, optuna.samplers.RandomSampler(seed=seed), n_targets)


def evaluated(trial: Trial, *, snr_db: float = 40.0, ratio: float = 0.5, is_complete: bool = True) -> Evaluation:
    outcome = a_measured(snr_db=snr_db, ratio=ratio, is_complete=is_complete).outcome
    assert isinstance(outcome, Measurement)
    return Evaluation(trial=trial, outcome=dataclasses.replace(outcome, effective=dict(trial.assignment)))


def failed(trial: Trial) -> Evaluation:
    return Evaluation(trial=trial, outcome=Failure(stage="open", reason="the kernel does not exist"))


def loaded(path: Path) -> optuna.Study:
    return optuna.load_study(study_name="autoquant", storage=JournalStorage(JournalFileBackend(str(path))))


def test_a_trial_names_one_of_its_choices_for_every_region(path: Path) -> None:
    trial = a_study(path).ask()
    assert trial.assignment.keys() == {R0, R1}
    assert all(name in SPACE.choices[region] for region, name in trial.assignment.items())


def test_enqueued_assignments_come_first_in_their_order_and_what_they_leave_out_is_float(path: Path) -> None:
    study = a_study(path)
    study.enqueue({R0: "u8u8"})
    study.enqueue({R1: "u8s8"})
    assert study.n_enqueued == 2
    found = []
    for _ in range(2):
        found.append(study.ask())
        study.tell(evaluated(found[-1]))
    assert [dict(t.assignment) for t in found] == [{R0: "u8u8", R1: "float"}, {R0: "float", R1: "u8s8"}]
    assert [t.number for t in found] == [0, 1]
    assert study.n_enqueued == 0


def test_an_assignment_that_waits_was_evaluated_or_is_not_allowed_is_not_enqueued(path: Path) -> None:
    study = a_study(path)
    for assignment in ({R0: "u8s8"}, {R0: "u8s8", R1: "float"}, {R0: "u8s8"}, {R1: "u8u8"}, {R0: "unknown"}):
        study.enqueue(assignment)
    assert study.n_enqueued == 1
    study.tell(evaluated(study.ask()))
    study.enqueue({R0: "u8s8"})
    assert study.n_enqueued == 0


def test_an_enqueued_assignment_is_not_asked_again_after_a_resumption(path: Path) -> None:
    study = a_study(path)
    study.enqueue({R0: "u8s8"})
    study.tell(failed(study.ask()))
    again = a_study(path)
    again.enqueue({R0: "u8s8"})
    assert again.n_enqueued == 0


def test_a_resumed_study_holds_the_same_evaluations(path: Path) -> None:
    study = a_study(path)
    for i in range(6):
        trial = study.ask()
        study.tell(failed(trial) if i == 2 else evaluated(trial, snr_db=10.0 * i, is_complete=i % 2 == 0))
    assert a_study(path).evaluations == study.evaluations
    assert len(a_study(path).evaluations) == 6


def test_drops_are_kept_in_the_journal(path: Path) -> None:
    study = a_study(path)
    evaluation = evaluated(study.ask())
    assert isinstance(evaluation.outcome, Measurement)
    scored = dataclasses.replace(evaluation, outcome=dataclasses.replace(evaluation.outcome, drops={"top1": 0.02}))
    study.tell(scored)
    assert a_study(path).evaluations == [scored]


def test_a_resumed_study_goes_on_with_the_next_number(path: Path) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    study.ask()
    again = a_study(path)
    assert again.ask().number == 1


def test_trials_that_were_only_asked_are_not_stored(path: Path) -> None:
    study = a_study(path)
    study.ask()
    assert loaded(path).trials == []


@pytest.mark.parametrize(
    "choices",
    [
        {R0: ("float", "u8s8", "u8u8")},
        {R0: ("float", "u8s8"), R1: ("float", "u8s8")},
        {R0: ("float", "u8s8", "u8u8"), RegionId("other"): ("float", "u8s8")},
    ],
)
def test_the_journal_of_another_space_is_refused(path: Path, choices: dict[RegionId, tuple[str, ...]]) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    with pytest.raises(OutputError, match=r"study\.journal: its trials have other regions or schemes; .*another --out"):
        a_study(path, SearchSpace(choices=choices, schemes={}))


def test_the_journal_of_other_targets_is_refused(path: Path) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    with pytest.raises(OutputError, match="target"):
        a_study(path, n_targets=2)


def test_optuna_loads_the_journal_with_values_parameters_and_names(path: Path) -> None:
    study = a_study(path)
    told = [study.ask(), study.ask()]
    study.tell(evaluated(told[0], snr_db=33.0, ratio=0.7))
    study.tell(failed(told[1]))
    trials = loaded(path).trials
    assert [trial.state for trial in trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert [trial.params for trial in trials] == [dict(trial.assignment) for trial in told]
    assert trials[0].values == [33.0, 0.7]
    assert trials[0].user_attrs["state"] == "complete"
    assert trials[1].user_attrs["reason"] == "the kernel does not exist"
    assert loaded(path).metric_names == ["snr_db", "ratio_0"]
    assert [direction.name for direction in loaded(path).directions] == ["MAXIMIZE", "MINIMIZE"]
    assert len(loaded(path).best_trials) == 1


def test_failures_keep_their_stage_and_reason(path: Path) -> None:
    study = a_study(path)
    trial = study.ask()
    study.tell(failed(trial))
    assert a_study(path).evaluations == [failed(trial)]


@pytest.mark.parametrize("snr_db", [math.inf, -math.inf])
def test_infinite_ratios_are_finite_in_optuna_and_infinite_in_the_evaluation(path: Path, snr_db: float) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask(), snr_db=snr_db))
    assert loaded(path).trials[0].values[0] == math.copysign(SNR_LIMIT_DB, snr_db)
    (found,) = a_study(path).evaluations
    assert isinstance(found.outcome, Measurement)
    assert found.outcome.quality.worst_db == snr_db


def test_the_sampler_sees_what_was_told_before_a_resumption(path: Path) -> None:
    space = SearchSpace(choices={R0: ("float", "u8s8"), R1: ("float",)}, schemes={})
    study = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    first = study.ask()
    study.tell(evaluated(first))
    again = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    assert again.ask().assignment != first.assignment


def test_a_trial_is_told_once(path: Path) -> None:
    study = a_study(path)
    evaluation = evaluated(study.ask())
    study.tell(evaluation)
    with pytest.raises(KeyError):
        study.tell(evaluation)
