"""What is known of a study, mostly as a sampler learns it."""

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from autoquant.study.knowledge import Knowledge
from autoquant.study.outlook import Promise
from autoquant.study.sampler import StructureSampler
from autoquant.study.standing import Interest
from tests.unit.study.additive import (
    CHOICES,
    N_REGIONS,
    REGIONS,
    a_layout,
    a_study,
    objectives,
    pruned,
    suggested,
    told,
)

DIRECTIONS = [StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE]


def a_trial(
    name: str, number: int, state: TrialState = TrialState.COMPLETE, constraints: dict[str, float] | None = None
) -> FrozenTrial:
    """That everything runs with one scheme; failed ones say nothing."""
    params: dict[str, str] = dict.fromkeys(map(str, REGIONS), name)
    distributions: dict[str, BaseDistribution] = dict.fromkeys(params, CategoricalDistribution(CHOICES))
    values = list(objectives(params)) if state is TrialState.COMPLETE else None
    trial = create_trial(
        state=state, params=params, distributions=distributions, values=values, constraints=constraints
    )
    trial.number = number
    return trial


def test_before_the_first_trial_nothing_is_known() -> None:
    known = Knowledge(a_layout(), Interest())
    assert known.learn([], DIRECTIONS) == frozenset()
    assert known.surrogate is not None
    assert known.outlook() is None
    assert known.beliefs() == {}
    assert known.least_ratios(dict.fromkeys(REGIONS, "a")) == []


def test_trials_are_learned_once_each_and_those_of_another_study_are_others() -> None:
    known, first, second = Knowledge(a_layout(), Interest()), a_trial("float", 4), a_trial("a", 7)
    known.learn([first], DIRECTIONS)
    seen = known.learn([first, second], DIRECTIONS)
    assert seen == {np.full(N_REGIONS, code).tobytes() for code in (0, 1)}
    assert known.learn([first, second], DIRECTIONS) == seen
    assert known.surrogate is not None
    assert known.surrogate.n_observed == known.trust.n_recent + 1 == 2
    assert known.beliefs().keys() == {4, 7}
    assert known.is_of([first, second])
    assert not known.is_of([second])


def test_demands_are_those_of_the_trials_that_count_where_others_no_longer_do() -> None:
    """Those with ratios on as many targets as most."""
    known = Knowledge(a_layout(), Interest())
    trials = [a_trial("a", 0, constraints={"drop": 1.0}), a_trial("b", 1), a_trial("float", 2)]
    known.learn(trials[:1], DIRECTIONS)
    assert not known.steering.keeps.any()
    for trial in trials[1:]:
        trial.user_attrs = {"snr_db": 40.0, "ratios": [0.5, 0.6]}
    with pytest.warns(UserWarning, match="nothing is learned of trial 0"):
        known.learn(trials, DIRECTIONS)
    assert known.beliefs().keys() == {1, 2}
    assert known.steering.keeps.tolist() == [True, True]


@pytest.mark.parametrize("state", [TrialState.COMPLETE, TrialState.FAIL])
def test_what_a_proposal_brought_corrects_what_the_next_one_is_expected_to(state: TrialState) -> None:
    known, first, second = Knowledge(a_layout(), Interest()), a_trial("float", 0), a_trial("a", 1, state)
    known.learn([first], DIRECTIONS)
    known.expect(np.full(N_REGIONS, 1), Promise(0.5, np.ones(1)))
    promised, before = known.outlook(), known.standing.gain(np.ones(1)).saving
    known.learn([first, second], DIRECTIONS)
    found = known.outlook()
    assert promised is not None
    assert promised.next_gain == 0.5
    assert found is not None
    brought = known.standing.gain(np.ones(1)).saving - before
    assert (brought > 0) is (state is TrialState.COMPLETE)
    assert found.next_gain == pytest.approx(0.5 * (0.001 + brought) / 0.501)


def test_where_nothing_new_is_left_no_gain_is_expected() -> None:
    known = Knowledge(a_layout(), Interest())
    known.learn([a_trial("float", 0)], DIRECTIONS)
    known.expect(np.zeros(N_REGIONS, dtype=np.int64), None)
    outlook = known.outlook()
    assert outlook is not None
    assert outlook.next_gain == 0


def test_predictions_have_the_size_after_the_ratios_where_it_is_an_objective() -> None:
    trials = [a_trial("float", 0), a_trial("a", 1)]
    for trial, size in zip(trials, (1000, 400), strict=True):
        trial.set_user_attr("size_bytes", size)
    known = Knowledge(a_layout(), Interest(has_size=True))
    known.learn(trials, DIRECTIONS)
    found = known.predict(np.array([[0] * N_REGIONS, [1] * N_REGIONS]))
    assert found.ratios[:, 1] == pytest.approx([1.0, 0.4], abs=0.02)
    assert found.ratio_errors[:, 0].min() > 0 == found.ratio_errors[:, 1].max()


def test_what_it_believes_is_tuned_also_after_evaluations_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.study.knowledge._MAX_OBSERVATIONS", 30)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler, rng = StructureSampler(a_layout(), seed=0), np.random.default_rng(0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    for number in range(90):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        study.tell(trial, [snr_db, ratio + (0.1 * rng.standard_normal() if number > 30 else 0.0)])
    surrogate = sampler.surrogate
    assert surrogate is not None
    every = np.array([[i] * N_REGIONS for i in range(3)])
    assert surrogate.predict(every).ratio_errors.min() > 0.04


def test_the_outlook_closes_as_the_space_is_searched() -> None:
    few, many = structured_sampler(20), structured_sampler(120)
    assert few.outlook() is not None
    first, last = few.outlook(), many.outlook()
    assert first is not None
    assert last is not None
    assert last.share > 0.95
    assert last.saving > first.saving
    assert last.next_gain < first.next_gain
    assert last.noise > 0
    assert StructureSampler(a_layout()).outlook() is None


def test_gains_on_one_of_two_targets_count_where_the_other_one_loses_as_much() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
    for _ in range(40):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        study.tell(trial, [snr_db, ratio, 2.0 - ratio])
    outlook = sampler.outlook()
    assert outlook is not None
    assert outlook.saving < 0.01
    assert outlook.next_gain > 2e-5


def structured_sampler(n_trials: int) -> StructureSampler:
    """After so many trials of ratios that are known to 1 %."""
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    for _ in range(n_trials):
        trial = study.ask()
        params = suggested(trial)
        trial.set_user_attr("ratio_error", 0.01)
        study.tell(trial, objectives(params))
    study.ask()
    suggested(study.ask())
    return sampler


def test_its_layout_leaves_out_schemes_that_never_ran() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    assert sampler.layout.allowed.all()
    distributions = {region: CategoricalDistribution(CHOICES) for region in REGIONS}
    for name in ("float", "a", "b"):
        params = dict.fromkeys(REGIONS, "a") | {REGIONS[0]: "b", REGIONS[1]: name}
        trial = optuna.trial.create_trial(
            params=params,  # type: ignore[arg-type]
            distributions=distributions,  # type: ignore[arg-type]
            values=list(objectives(params)),  # type: ignore[arg-type]
            user_attrs={"effective": {**params, REGIONS[0]: "float"}},
        )
        study.add_trial(trial)
    suggested(study.ask())
    assert sampler.layout.allowed[0].tolist() == [True, True, False]
    assert sampler.trust.n_recent == 0


def test_trials_without_a_latency_teach_noise_alone() -> None:
    sampler = StructureSampler(a_layout(), seed=3)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    told(study, dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    suggested(study.ask())
    probe = dict.fromkeys(map(str, REGIONS), "float") | {REGIONS[2]: "b"}
    codes = a_layout().encode(probe)[None]
    assert sampler.surrogate is not None
    before = sampler.surrogate.predict(codes)
    pruned(study, probe, state="untimed", snr_db=77.0, ratios=[], ratio_error=None, snr_by_output=[77.0])
    suggested(study.ask())
    after = sampler.surrogate.predict(codes)
    assert abs(after.snr_db[0] - 77) < abs(before.snr_db[0] - 77)
    assert after.snr_error_db[0] < before.snr_error_db[0]
    np.testing.assert_allclose(after.ratio_errors, before.ratio_errors)


def test_a_proposal_that_was_stopped_before_it_was_timed_brought_nothing() -> None:
    sampler = StructureSampler(a_layout(), seed=3)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    for name in CHOICES:
        told(study, dict.fromkeys(REGIONS, name), TrialState.COMPLETE)
    for _ in range(6):
        trial = study.ask()
        trial.set_user_attr("snr_db", objectives(suggested(trial))[0])
        study.tell(trial, state=TrialState.PRUNED)
    suggested(study.ask())
    outlook = sampler.outlook()
    assert outlook is not None
    assert 0 <= outlook.next_gain < 0.05


def test_ratios_are_hardly_below_the_least_that_is_believed() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    assert sampler.least_ratios({}) == []
    study = a_study(sampler, 60)
    below = 0
    for i in range(40):
        chosen = np.random.default_rng(i).choice(CHOICES, N_REGIONS)
        params = {str(region): str(name) for region, name in zip(REGIONS, chosen, strict=True)}
        (least,) = sampler.least_ratios({region: params[region] for region in REGIONS})
        below += objectives(params)[1] < least
        assert least < 1.5
    assert below <= 2
    assert len(study.trials) == 60
