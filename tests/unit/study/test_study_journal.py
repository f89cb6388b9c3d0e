import dataclasses
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from autoquant.domain.measurement import Measurement
from autoquant.domain.objective import Objectives
from autoquant.domain.region import RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError
from autoquant.metrics.grammar import parse_metrics
from autoquant.study.study import Study
from tests.unit.study.studies import R0, R1, SPACE, WITHOUT_SNR, a_study, evaluated, failed, loaded, scored


def test_a_disk_without_links_is_no_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("symbolic link privilege not held")

    monkeypatch.setattr("os.symlink", refuse)
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    assert len(a_study(path).evaluations) == 1


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
    with pytest.raises(
        OutputError, match=r"study\.journal: its trials have other regions or schemes; .*another folder"
    ):
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


def test_a_trial_in_the_journal_began_when_it_was_asked(path: Path) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    (stored,), (asked,) = loaded(path).trials, study.told
    assert stored.datetime_start == asked.datetime_start


def test_failures_keep_their_stage_and_reason(path: Path) -> None:
    study = a_study(path)
    trial = study.ask()
    study.tell(failed(trial))
    assert a_study(path).evaluations == [failed(trial)]


def test_the_sampler_sees_what_was_told_before_a_resumption(path: Path) -> None:
    space = SearchSpace(choices={R0: ("float", "u8s8"), R1: ("float",)}, schemes={})
    study = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    first = study.ask()
    study.tell(evaluated(first))
    again = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    assert again.ask().assignment != first.assignment


def test_the_journal_of_other_objectives_is_refused(path: Path) -> None:
    study = Study(path, SPACE, None, objectives=WITHOUT_SNR)
    study.tell(scored(study.ask()))
    other = Objectives(has_snr=False, metrics=parse_metrics(["cosine"]))
    with pytest.raises(OutputError, match="its trials have other objectives or targets; use the same"):
        Study(path, SPACE, None, objectives=other)
