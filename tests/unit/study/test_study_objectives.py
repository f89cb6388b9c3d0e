import math
from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState

from autoquant.domain.measurement import Measurement, State
from autoquant.domain.objective import SNR_LIMIT_DB, Bounds, Objectives
from autoquant.study.study import Study
from tests.records import a_latency
from tests.unit.study.studies import ALL, SPACE, WITHOUT_SNR, a_study, evaluated, failed, loaded, scored


@pytest.mark.parametrize("snr_db", [math.inf, -math.inf])
def test_infinite_snrs_are_finite_in_optuna_and_infinite_in_the_evaluation(path: Path, snr_db: float) -> None:
    study = a_study(path)
    study.tell(evaluated(study.ask(), snr_db=snr_db))
    assert loaded(path).trials[0].values[0] == math.copysign(SNR_LIMIT_DB, snr_db)
    (found,) = a_study(path).evaluations
    assert isinstance(found.outcome, Measurement)
    assert found.outcome.quality.worst_db == snr_db


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
    resumed = Study(path, SPACE, None, bounds=bounds)
    assert resumed.as_told == [stopped, complete]
    found = resumed.evaluations
    if not bounds.max_drops:
        assert found[1] == complete
    assert isinstance(found[0].outcome, Measurement)
    assert isinstance(stopped.outcome, Measurement)
    assert found[0].outcome.quality == stopped.outcome.quality
    assert (found[0].outcome.state, bool(found[0].outcome.latency)) == (
        (State.UNTIMED, False) if is_asked_again else (State.REJECTED_EARLY, True)
    )


def test_a_demand_on_a_metric_that_was_not_measured_asks_again_and_keeps_latencies(path: Path) -> None:
    first = Study(path, SPACE, None)
    first.tell(scored(first.ask()))
    (as_before,) = Study(path, SPACE, None).evaluations
    (found,) = Study(path, SPACE, None, bounds=Bounds(max_drops={"loss": 0.1})).evaluations
    assert isinstance(found.outcome, Measurement)
    assert isinstance(as_before.outcome, Measurement)
    assert as_before.outcome.state is State.COMPLETE
    assert found.outcome == replace(as_before.outcome, state=State.UNTIMED)


def test_where_the_snr_is_no_objective_another_demand_on_it_lets_all_be_asked_for_again(path: Path) -> None:
    first = Study(path, SPACE, None, objectives=WITHOUT_SNR, bounds=Bounds(min_snr_db=20))
    first.tell(scored(first.ask(), state=State.REJECTED_EARLY))
    for least, state in ((20, State.REJECTED_EARLY), (30, State.UNTIMED)):
        (found,) = Study(path, SPACE, None, objectives=WITHOUT_SNR, bounds=Bounds(min_snr_db=least)).evaluations
        assert found.outcome.state is state


def test_an_infinite_snr_gives_a_finite_constraint(path: Path) -> None:
    study = Study(path, SPACE, None, bounds=Bounds(min_snr_db=30))
    study.tell(evaluated(study.ask(), snr_db=math.inf))
    study.tell(evaluated(study.ask(), snr_db=-math.inf))
    assert [trial.constraints["snr_db"] for trial in loaded(path).trials] == [-SNR_LIMIT_DB, SNR_LIMIT_DB]
