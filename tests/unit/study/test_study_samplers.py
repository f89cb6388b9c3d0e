from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from autoquant.domain.measurement import Measurement, State
from autoquant.domain.objective import Bounds
from autoquant.domain.space import SearchSpace
from autoquant.errors import SamplerError
from autoquant.study.sampler import StructureSampler
from autoquant.study.study import Study
from tests.unit.study.layouts import a_layout
from tests.unit.study.studies import ALL, R0, R1, SPACE, a_study, evaluated, loaded, scored


def test_a_sampler_of_now_sees_sizes_while_the_study_runs(path: Path) -> None:
    study = a_study(path)
    told = evaluated(study.ask())
    study.tell(told)
    assert isinstance(told.outcome, Measurement)
    assert study.told[0].user_attrs["size_bytes"] == told.outcome.size_bytes


class Failing(optuna.samplers.RandomSampler):
    """Fails when a trial is told."""

    def after_trial(self, *_: Any) -> None:
        raise RuntimeError("out of order")


class Refusing(optuna.samplers.RandomSampler):
    """Fails when it is asked."""

    def before_trial(self, *_: Any) -> None:
        raise ImportError("torch is\nmissing")


def test_a_sampler_that_fails_when_it_is_asked_is_named(path: Path) -> None:
    with pytest.raises(SamplerError, match=r"^sampler Refusing cannot go on, .* \(ImportError: torch is missing\)$"):
        Study(path, SPACE, Refusing()).ask()


def test_what_is_told_is_kept_where_the_sampler_fails(path: Path) -> None:
    study = Study(path, SPACE, Failing())
    with pytest.raises(SamplerError, match=r"^sampler Failing cannot go on, .* \(RuntimeError: out of order\)$"):
        study.tell(evaluated(study.ask()))
    assert len(study.evaluations) == len(study.told) == len(loaded(path).trials) == 1


def test_faults_of_our_own_sampler_are_not_hidden(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StructureSampler, "before_trial", Refusing.before_trial)
    with pytest.raises(ImportError, match="torch"):
        Study(path, SPACE, StructureSampler(a_layout(), seed=0)).ask()


@pytest.mark.parametrize("inner", [StructureSampler(a_layout(), seed=0), optuna.samplers.TPESampler(seed=0)])
def test_a_scheme_that_is_fixed_and_not_there_is_one_sentence(path: Path, inner: optuna.samplers.BaseSampler) -> None:
    study = Study(path, SPACE, optuna.samplers.PartialFixedSampler({R0: "nonsense"}, inner))
    with pytest.raises(SamplerError, match=r"^sampler PartialFixedSampler cannot go on, .*nonsense"):
        study.ask()


def test_what_is_enqueued_has_the_schemes_that_are_fixed(path: Path) -> None:
    inner = optuna.samplers.PartialFixedSampler({R0: "u8u8"}, optuna.samplers.RandomSampler(seed=0))
    study = Study(path, SPACE, optuna.samplers.PartialFixedSampler({"threshold": 0.5}, inner))
    assert study.enqueue({R0: "u8s8", R1: "u8s8"})
    assert not study.enqueue({R1: "u8s8"})
    assert study.ask().assignment == {R0: "u8u8", R1: "u8s8"}


def test_a_sampler_that_has_nothing_left_stops_the_study_which_keeps_every_trial(path: Path) -> None:
    space = SearchSpace(choices={R0: ("float", "u8s8")}, schemes={})
    study = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    for is_last in (False, True):
        assert not study.has_stopped
        study.tell(evaluated(study.ask()))
        assert study.has_stopped is is_last
    assert len(study.evaluations) == len(study.told) == len(loaded(path).trials) == 2


class Seen(optuna.samplers.RandomSampler):
    """Remembers the constraints of the trials that it could learn from."""

    def sample_relative(self, study: optuna.Study, *_: Any) -> dict[str, Any]:
        self.constraints = [trial.constraints for trial in study.get_trials(states=[TrialState.COMPLETE])]
        return {}


def test_samplers_see_the_constraints_of_the_demands_of_now(path: Path) -> None:
    first = Study(path, SPACE, None, bounds=Bounds(min_snr_db=30))
    first.tell(evaluated(first.ask(), snr_db=40))
    sampler = Seen()
    again = Study(path, SPACE, sampler, bounds=Bounds(min_snr_db=50))
    again.tell(evaluated(again.ask(), snr_db=45))
    again.ask()
    assert sampler.constraints == [{"snr_db": 10.0}, {"snr_db": 5.0}]


@pytest.mark.parametrize("sampler", [optuna.samplers.NSGAIISampler(seed=0), optuna.samplers.TPESampler(seed=0)])
def test_samplers_of_optuna_take_any_objectives_and_demands(path: Path, sampler: optuna.samplers.BaseSampler) -> None:
    study = Study(path, SPACE, sampler, objectives=ALL, bounds=Bounds(max_size_bytes=4000))
    for i in range(14):
        study.tell(scored(study.ask(), size_bytes=3000 + 200 * i))
        study.tell(scored(study.ask(), latency={}, state=State.UNTIMED))
    assert len(study.evaluations) == 28
