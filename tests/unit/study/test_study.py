import dataclasses
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autoquant.domain.measurement import Evaluation, Failure, Measurement, State, Trial
from autoquant.domain.objective import SNR_LIMIT_DB, Bounds, Objectives
from autoquant.domain.region import RegionId
from autoquant.domain.space import SearchSpace
from autoquant.errors import OutputError, SamplerError
from autoquant.metrics.grammar import parse_metrics
from autoquant.study.sampler import StructureSampler
from autoquant.study.study import Study, quiet
from tests.records import a_latency, a_measured
from tests.unit.study.layouts import a_layout

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


def test_a_disk_without_links_is_no_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("symbolic link privilege not held")

    monkeypatch.setattr("os.symlink", refuse)
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    assert len(a_study(path).evaluations) == 1


def test_optuna_is_as_loud_as_before_behind_a_search() -> None:
    before = optuna.logging.get_verbosity()
    with quiet():
        assert optuna.logging.get_verbosity() == optuna.logging.ERROR
    assert optuna.logging.get_verbosity() == before


def test_an_assignment_that_was_evaluated_can_be_asked_for(path: Path) -> None:
    study = a_study(path)
    first = study.ask()
    study.tell(evaluated(first))
    again = study.ask_for(first.assignment)
    assert (again.number, again.assignment) == (1, first.assignment)
    study.tell(failed(again))
    assert [trial.state for trial in study.told] == [TrialState.COMPLETE, TrialState.FAIL]


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
    study, waited = a_study(path), False
    for assignment in ({R0: "u8s8"}, {R0: "u8s8", R1: "float"}, {R0: "u8s8"}, {R1: "u8u8"}, {R0: "unknown"}):
        assert study.enqueue(assignment) is (study.n_enqueued == 1 and not waited)
        waited = study.n_enqueued == 1
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


def test_a_sampler_of_now_sees_sizes_while_the_study_runs(path: Path) -> None:
    study = a_study(path)
    told = evaluated(study.ask())
    study.tell(told)
    assert isinstance(told.outcome, Measurement)
    assert study.told[0].user_attrs["size_bytes"] == told.outcome.size_bytes


def test_a_trial_is_told_once(path: Path) -> None:
    study = a_study(path)
    evaluation = evaluated(study.ask())
    study.tell(evaluation)
    with pytest.raises(KeyError):
        study.tell(evaluation)


ALL = Objectives(metrics=parse_metrics(["top1"]), has_size=True)
WITHOUT_SNR = Objectives(has_snr=False, metrics=parse_metrics(["top1"]))


def scored(trial: Trial, **fields: Any) -> Evaluation:
    outcome = a_measured(snr_db=33.0, ratio=0.7, size_bytes=5000, drops={"top1": 0.02}).outcome
    assert isinstance(outcome, Measurement)
    return Evaluation(trial=trial, outcome=dataclasses.replace(outcome, effective=dict(trial.assignment), **fields))


@pytest.mark.parametrize(
    ("objectives", "names", "values", "directions"),
    [
        (ALL, ["snr_db", "drop[top1]", "ratio_0", "size_bytes"], [33.0, 0.02, 0.7, 5000.0], "MAX MIN MIN MIN"),
        (WITHOUT_SNR, ["drop[top1]", "ratio_0"], [0.02, 0.7], "MIN MIN"),
    ],
)
def test_the_values_are_the_objectives(
    path: Path, objectives: Objectives, names: list[str], values: list[float], directions: str
) -> None:
    study = Study(path, SPACE, None, objectives=objectives)
    told = [scored(study.ask()), failed(study.ask())]
    for evaluation in told:
        study.tell(evaluation)
    assert loaded(path).metric_names == names
    assert loaded(path).trials[0].values == values
    assert [direction.name[:3] for direction in loaded(path).directions] == directions.split()
    assert Study(path, SPACE, None, objectives=objectives).evaluations == told


def test_the_journal_of_other_objectives_is_refused(path: Path) -> None:
    study = Study(path, SPACE, None, objectives=WITHOUT_SNR)
    study.tell(scored(study.ask()))
    other = Objectives(has_snr=False, metrics=parse_metrics(["cosine"]))
    with pytest.raises(OutputError, match="its trials have other objectives or targets; use the same"):
        Study(path, SPACE, None, objectives=other)


def test_demands_are_constraints_that_optuna_judges(path: Path) -> None:
    bounds = Bounds(min_snr_db=30, max_latency_ratio=0.5, max_size_bytes=4000, max_drops={"top1": 0.05})
    study = Study(path, SPACE, None, bounds=bounds)
    for size_bytes, ratio in ((5000, 0.4), (3000, 0.45), (3000, 0.6)):
        latency = {"cpu-1t": a_latency(ratio)}
        study.tell(scored(study.ask(), size_bytes=size_bytes, latency=latency))
    study.tell(failed(study.ask()))
    trials = loaded(path).trials
    expected = {"snr_db": -3.0, "latency_ratio": -0.1, "size_bytes": 1000.0, "drop[top1]": -0.03}
    assert trials[0].constraints == pytest.approx(expected)
    assert trials[3].constraints == {}
    assert [trial.number for trial in loaded(path).best_trials] == [1]


def test_without_demands_a_trial_has_no_constraints(path: Path) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask()))
    assert loaded(path).trials[0].constraints == {}
    assert len(loaded(path).best_trials) == 1


def test_a_candidate_that_was_not_timed_is_pruned_and_keeps_its_quality(path: Path) -> None:
    study = Study(path, SPACE, None, bounds=Bounds(min_snr_db=30, max_latency_ratio=0.5))
    told = []
    for state in (State.UNTIMED, State.REJECTED_EARLY):
        told.append(scored(study.ask(), latency={}, state=state))
        study.tell(told[-1])
    for trial in loaded(path).trials:
        assert trial.state is TrialState.PRUNED
        assert trial.values is None
        assert trial.user_attrs["snr_db"] == 33.0
        assert trial.constraints == {"snr_db": -3.0}
    same = Study(path, SPACE, None, bounds=Bounds(min_snr_db=30, max_latency_ratio=0.5))
    assert same.evaluations == told


@pytest.mark.parametrize(
    ("bounds", "is_asked_again"),
    [
        (Bounds(max_size_bytes=4000), False),
        (Bounds(min_snr_db=35, max_latency_ratio=0.8, max_size_bytes=4000), False),
        (Bounds(max_size_bytes=6000), True),
        (Bounds(), True),
        (Bounds(max_size_bytes=4000, max_drops={"top1": 0.1}), True),
        (Bounds(max_size_bytes=4000, max_drops={"cosine": 0.1}), True),
    ],
)
def test_what_was_stopped_early_under_other_demands_can_be_asked_for_again(
    path: Path, bounds: Bounds, is_asked_again: bool
) -> None:
    first = Study(path, SPACE, None, bounds=Bounds(max_size_bytes=4000))
    stopped, complete = scored(first.ask(), state=State.REJECTED_EARLY), scored(first.ask())
    first.tell(stopped)
    first.tell(complete)
    found = Study(path, SPACE, None, bounds=bounds).evaluations
    assert found[1] == complete
    assert isinstance(found[0].outcome, Measurement)
    assert isinstance(stopped.outcome, Measurement)
    assert found[0].outcome.quality == stopped.outcome.quality
    assert (found[0].outcome.state, bool(found[0].outcome.latency)) == (
        (State.UNTIMED, False) if is_asked_again else (State.REJECTED_EARLY, True)
    )


def test_where_the_snr_is_no_objective_another_demand_on_it_lets_all_be_asked_for_again(path: Path) -> None:
    first = Study(path, SPACE, None, objectives=WITHOUT_SNR, bounds=Bounds(min_snr_db=20))
    first.tell(scored(first.ask(), state=State.REJECTED_EARLY))
    for least, state in ((20, State.REJECTED_EARLY), (30, State.UNTIMED)):
        (found,) = Study(path, SPACE, None, objectives=WITHOUT_SNR, bounds=Bounds(min_snr_db=least)).evaluations
        assert found.outcome.state is state


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


def test_a_sampler_that_has_nothing_left_stops_the_study_which_keeps_every_trial(path: Path) -> None:
    space = SearchSpace(choices={R0: ("float", "u8s8")}, schemes={})
    study = Study(path, space, optuna.samplers.BruteForceSampler(seed=0))
    for is_last in (False, True):
        assert not study.has_stopped
        study.tell(evaluated(study.ask()))
        assert study.has_stopped is is_last
    assert len(study.evaluations) == len(study.told) == len(loaded(path).trials) == 2


def test_an_infinite_snr_gives_a_finite_constraint(path: Path) -> None:
    study = Study(path, SPACE, None, bounds=Bounds(min_snr_db=30))
    study.tell(evaluated(study.ask(), snr_db=math.inf))
    study.tell(evaluated(study.ask(), snr_db=-math.inf))
    assert [trial.constraints["snr_db"] for trial in loaded(path).trials] == [-SNR_LIMIT_DB, SNR_LIMIT_DB]


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
