"""The sampler in studies unlike a search: with failures, threads, other samplers around it, earlier trials."""

import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna._typing import JSONSerializable
from optuna.samplers import PartialFixedSampler
from optuna.storages import InMemoryStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.study.layout import Layout
from autoquant.study.proposal import asked_for
from autoquant.study.sampler import StructureSampler
from tests.unit.study.layouts import SCHEMES
from tests.unit.study.test_sampler import CHOICES, REGIONS, a_layout, a_study, objectives, suggested, told


def failures(seed: int) -> list[int]:
    """Numbers of the trials that failed, of 40 of which one scheme of one region makes trials fail."""
    sampler = StructureSampler(a_layout(), seed=seed)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.enqueue_trial(dict.fromkeys(map(str, REGIONS), "float"))
    for name in ("a", "b"):
        study.enqueue_trial(dict.fromkeys(map(str, REGIONS), name))
    for _ in range(40):
        trial = study.ask()
        params = suggested(trial)
        if params[REGIONS[4]] == "a":
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, objectives(params))
    return [trial.number for trial in study.trials if trial.state is TrialState.FAIL]


def test_what_makes_trials_fail_is_found_and_left_alone() -> None:
    failed = [failures(seed) for seed in range(6)]
    assert max(map(len, failed)) <= 4
    assert sum(number >= 25 for numbers in failed for number in numbers) <= 3


def test_threads_may_share_it() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    study.optimize(lambda trial: objectives(suggested(trial)), n_trials=60, n_jobs=4)
    proposed = [tuple(trial.params[region] for region in REGIONS) for trial in study.trials]
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len(set(proposed)) == 60


def test_what_is_still_running_is_not_proposed_again() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    told(study, dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    open_trials = [study.ask() for _ in range(6)]  # none of them has said any parameter so far
    assert len({tuple(suggested(trial).values()) for trial in open_trials}) == 6


@pytest.mark.parametrize("generic_share", [0.0, 1.0])
def test_regions_can_be_fixed_by_another_sampler(monkeypatch: pytest.MonkeyPatch, generic_share: float) -> None:
    fixed = {str(REGIONS[0]): "b", str(REGIONS[5]): "float"}
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", generic_share)
    study = a_study(PartialFixedSampler(fixed, StructureSampler(a_layout(), seed=0)), 20)
    assert all(fixed.items() <= trial.params.items() for trial in study.trials)


@pytest.mark.parametrize("is_enqueued", [False, True])
def test_what_is_left_beside_fixed_regions_is_proposed_without_repetition(is_enqueued: bool) -> None:
    fixed = {str(region): "b" for region in REGIONS[:5] + REGIONS[7:]}
    sampler = StructureSampler(a_layout(), seed=0)
    around = sampler if is_enqueued else PartialFixedSampler(fixed, sampler)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=around)
    for _ in range(9):
        if is_enqueued:
            study.enqueue_trial(fixed)
        params = suggested(trial := study.ask())
        assert fixed.items() <= params.items()
        study.tell(trial, objectives(params))
    assert len({(trial.params[REGIONS[5]], trial.params[REGIONS[6]]) for trial in study.trials}) == 9


@pytest.mark.parametrize("is_enqueued", [False, True])
@pytest.mark.parametrize("fixed", ["a", "float"])
def test_proposals_are_for_the_regions_that_are_fixed(fixed: str, is_enqueued: bool) -> None:
    """The middle one of three regions saves less than its two borders cost, where they are unlike."""
    first, middle, last = REGIONS[:3]
    edges, work = [(first, middle), (middle, last)], dict.fromkeys(REGIONS[:3], 1 / 3)
    layout = Layout.of(dict.fromkeys(REGIONS[:3], CHOICES), SCHEMES, edges, work)
    prior = LatencyPrior(
        base=1.0,
        change=np.array([[0.0, 0.0], [-0.05, -0.05], [0.0, 0.0]]),
        spread=np.full((3, 2), 1e-4),
        border=np.full(2, 0.04),
        border_spread=np.full(2, 1e-4),
    )
    ends = {str(first): fixed, str(last): fixed}
    for seed in range(5):
        sampler = StructureSampler(layout, seed=seed, min_snr_db=0.0, prior=prior)
        around = sampler if is_enqueued else PartialFixedSampler(ends, sampler)
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=around)
        if is_enqueued:
            study.enqueue_trial(ends)
        trial = study.ask()
        is_float = trial.suggest_categorical(middle, CHOICES) == "float"
        assert is_float == (fixed == "float")


def test_neighbours_of_earlier_trials_take_what_is_fixed_since() -> None:
    study = a_study(StructureSampler(a_layout(), seed=0), 20)
    study.sampler = PartialFixedSampler({REGIONS[0]: "b", REGIONS[5]: "float"}, StructureSampler(a_layout(), seed=0))
    for _ in range(10):
        trial = study.ask()
        trial.suggest_categorical(REGIONS[1], CHOICES)
        proposed = asked_for(a_layout(), study.trials[-1])
        assert proposed is not None
        assert (proposed[0], proposed[5]) == (2, 0)
        study.tell(trial, objectives(suggested(trial)))


def test_where_all_regions_are_fixed_other_parameters_are_sampled_still() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    study.enqueue_trial(dict.fromkeys(map(str, REGIONS), "a"))
    trial = study.ask()
    assert 0 <= trial.suggest_float("threshold", 0, 1) <= 1
    assert suggested(trial) == dict.fromkeys(REGIONS, "a")


def test_processes_that_share_a_storage_propose_different_assignments(tmp_path: Path) -> None:
    """Of equal seeds, each with a sampler and a storage of its own."""
    studies = [
        optuna.create_study(
            study_name="shared",
            storage=JournalStorage(JournalFileBackend(str(tmp_path / "study.journal"))),
            directions=["maximize", "minimize"],
            sampler=StructureSampler(a_layout(), seed=0),
            load_if_exists=True,
        )
        for _ in range(2)
    ]
    told(studies[0], dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    first, second = (study.ask() for study in studies)
    first.suggest_categorical(REGIONS[0], CHOICES)  # its other parameters are not stored yet
    assert suggested(second) != suggested(first)


@pytest.mark.parametrize(("waiting", "proposed"), [("a", "float"), ("float", "a")])
def test_what_waits_to_run_is_not_proposed(waiting: str, proposed: str) -> None:
    layout = Layout.of({REGIONS[0]: ("float", "a")}, SCHEMES, [], {REGIONS[0]: 1.0})
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(layout, seed=0))
    trial = study.ask()
    study.enqueue_trial({REGIONS[0]: waiting})
    assert trial.suggest_categorical(REGIONS[0], ("float", "a")) == proposed


def test_it_can_be_pickled_and_goes_on() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    study = a_study(sampler, 15)
    study.sampler = pickle.loads(pickle.dumps(sampler))
    study.optimize(lambda trial: objectives(suggested(trial)), n_trials=5)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 20


def test_how_far_it_can_be_trusted_is_learned_of_an_earlier_study() -> None:
    """Latencies scatter by far more than what is said of their errors."""
    rng, trials = np.random.default_rng(0), a_study(optuna.samplers.RandomSampler(seed=0), 80).trials
    for trial in trials:
        trial.values = [trial.values[0], trial.values[1] * rng.choice([0.5, 1.5])]
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.add_trials(trials)
    suggested(study.ask())
    assert sampler.trust.n_recent == 60
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed == 80
    every = np.array([[i] * len(REGIONS) for i in range(3)])
    assert sampler.surrogate.predict(every).ratio_errors.min() > 0.05


def test_a_generic_proposal_is_no_repetition_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", 1.0)
    layout = Layout.of(dict.fromkeys(REGIONS[:3], CHOICES), SCHEMES, [], dict.fromkeys(REGIONS[:3], 1 / 3))
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(layout, seed=0))
    for _ in range(25):
        trial = study.ask()
        params = {region: trial.suggest_categorical(region, CHOICES) for region in REGIONS[:3]}
        study.tell(trial, objectives(dict.fromkeys(map(str, REGIONS), "float") | params))
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 25


@pytest.mark.parametrize("n_regions", [2, 12])
def test_a_generic_proposal_has_nothing_that_never_ran_or_fails(
    monkeypatch: pytest.MonkeyPatch, n_regions: int
) -> None:
    """With two regions what may be proposed is soon exhausted."""
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", 1.0)
    regions = REGIONS[:n_regions]
    layout = Layout.of(dict.fromkeys(regions, CHOICES), SCHEMES, [], dict.fromkeys(regions, 1 / n_regions))
    sampler = StructureSampler(layout, seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    everywhere = dict.fromkeys(map(str, REGIONS), "float")
    for _ in range(2):
        study.enqueue_trial({**everywhere, REGIONS[0]: "a"})
        trial = study.ask()
        suggested(trial)
        study.tell(trial, state=TrialState.FAIL)
        study.enqueue_trial({**everywhere, REGIONS[1]: "b"})
        trial = study.ask()
        suggested(trial)
        trial.set_user_attr("effective", everywhere)
        study.tell(trial, objectives(everywhere))
    for _ in range(3 if n_regions == 2 else 30):
        trial = study.ask()
        found = {region: trial.suggest_categorical(region, CHOICES) for region in regions}
        assert found[REGIONS[0]] != "a"
        assert found[REGIONS[1]] != "b"
        study.tell(trial, objectives(everywhere | found))


def test_a_highest_ratio_counts_on_every_target() -> None:
    """On the second target everything is as slow as float, so that the mean alone is low enough."""
    sampler = StructureSampler(a_layout(), seed=0, max_latency_ratio=0.9)
    study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
    for _ in range(25):
        snr_db, ratio = objectives(suggested(trial := study.ask()))
        study.tell(trial, [snr_db, ratio, 1.0])
    suggested(study.ask())
    outlook = sampler.outlook()
    assert outlook is not None
    assert min(np.mean(trial.values[1:]) for trial in study.trials if trial.values) < 0.85
    assert (outlook.saving, outlook.attainable) == (0, 0)


def test_the_noise_of_the_outlook_is_that_of_each_target() -> None:
    noise = []
    for errors in ([0.02, 0.02], [0.02, 0.0]):
        sampler = StructureSampler(a_layout(), seed=0)
        study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
        for name in CHOICES:
            study.enqueue_trial(dict.fromkeys(map(str, REGIONS), name))
            snr_db, ratio = objectives(suggested(trial := study.ask()))
            trial.set_user_attr("ratio_error", errors)
            study.tell(trial, [snr_db, ratio, ratio])
        suggested(study.ask())
        outlook = sampler.outlook()
        assert outlook is not None
        noise.append(outlook.noise)
    assert 0 < noise[1] == pytest.approx(noise[0] / 2)


@pytest.mark.parametrize("state", ["untimed", None])
@pytest.mark.parametrize("ratios", [[], [math.inf]])
def test_a_complete_trial_without_ratios_makes_no_gain_unknown(ratios: list[float], state: str | None) -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for number in range(12):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        trial.set_user_attr("snr_db", snr_db)
        trial.set_user_attr("ratios", ratios if number % 3 == 0 else [ratio])
        trial.set_user_attr("snr_error_db", math.nan if number % 3 == 1 else 0.5)
        if state is not None and number % 3 == 0:
            trial.set_user_attr("state", state)
        study.tell(trial, snr_db)
    suggested(study.ask())
    outlook = sampler.outlook()
    assert outlook is not None
    assert np.isfinite([outlook.saving, outlook.attainable, outlook.next_gain, outlook.noise]).all()
    assert {number: len(found.ratios) for number, found in sampler.beliefs().items()} == {
        number: min(1, number % 3) for number in range(12)
    }


def test_trials_of_all_brackets_are_known() -> None:
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9)
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
    for _ in range(25):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        trial.set_user_attr("snr_db", snr_db)
        trial.set_user_attr("ratios", [ratio])
        study.tell(trial, snr_db)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 25
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed == 24


def test_trials_of_another_space_do_not_end_a_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", 1.0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    other: optuna.distributions.BaseDistribution = optuna.distributions.CategoricalDistribution((*CHOICES, "another"))
    params, distributions = dict.fromkeys(map(str, REGIONS), "another"), dict.fromkeys(map(str, REGIONS), other)
    for _ in range(12):
        study.add_trial(optuna.create_trial(params=params, distributions=distributions, values=[30.0, 0.5]))
    study.optimize(lambda trial: objectives(suggested(trial)), n_trials=12)
    assert len({tuple(trial.params.values()) for trial in study.trials}) == 13


def test_an_objective_that_leaves_out_a_region_is_told_once() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))

    def run() -> None:
        trial = study.ask()
        params = {region: trial.suggest_categorical(region, CHOICES) for region in REGIONS[1:]}
        study.tell(trial, objectives({str(REGIONS[0]): "float"} | params))

    run()
    with pytest.warns(UserWarning, match=f"trial 0 has no scheme for region '{REGIONS[0]}'"):
        run()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run()


def test_without_a_seed_proposals_are_others_each_time() -> None:
    studies = [a_study(StructureSampler(a_layout(), seed=None), 8) for _ in range(3)]
    found = {tuple(tuple(trial.params.values()) for trial in study.trials) for study in studies}
    assert len(found) > 1


def test_another_study_is_begun_anew() -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    a_study(sampler, 30)
    second = a_study(sampler, 5)
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed == 4
    assert len(second.trials) == 5


def test_a_study_that_was_made_again_is_begun_anew() -> None:
    storage, sampler = InMemoryStorage(), StructureSampler(a_layout(), seed=0)
    for n_trials in (12, 5):
        study = optuna.create_study(
            study_name="again", storage=storage, directions=["maximize", "minimize"], sampler=sampler
        )
        study.optimize(lambda trial: objectives(suggested(trial)), n_trials=n_trials)
        optuna.delete_study(study_name="again", storage=storage)
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed == 4


def test_a_failed_assignment_is_not_proposed_again() -> None:
    def ask(*failures: dict[str, str]) -> dict[str, str]:
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=3))
        told(study, dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
        for params in failures:
            told(study, params, TrialState.FAIL)
        return suggested(study.ask())

    first = ask()
    second = ask(first)
    assert second != first
    assert ask(first, second) not in (first, second)


@pytest.mark.parametrize("error", [optuna.TrialPruned, RuntimeError])
def test_what_ended_before_all_regions_were_suggested_is_not_proposed_again(error: type[Exception]) -> None:
    proposed: list[tuple[str, ...]] = []

    def objective(trial: optuna.Trial) -> tuple[float, float]:
        trial.suggest_categorical(REGIONS[0], CHOICES)
        proposed.append(tuple(trial.relative_params.values()))
        raise error

    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    study.optimize(objective, n_trials=12, catch=(RuntimeError,))
    assert len(set(proposed)) == 12


class Meeting(InMemoryStorage):
    """Lets somebody else do something between a proposal and its publication, once."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[Callable[[], None]] = []

    def set_trial_system_attr(self, trial_id: int, key: str, value: JSONSerializable) -> None:
        if self.others and key.startswith("autoquant"):
            self.others.pop()()
        super().set_trial_system_attr(trial_id, key, value)


def test_what_another_process_proposes_at_the_same_time_is_left_to_it() -> None:
    storage = Meeting()
    first, second = (
        optuna.create_study(
            directions=["maximize", "minimize"],
            study_name="shared",
            storage=storage,
            load_if_exists=True,
            sampler=StructureSampler(a_layout(), seed=0),
        )
        for _ in range(2)
    )
    theirs: list[dict[str, str]] = []
    storage.others.append(lambda: theirs.append(suggested(second.ask())))
    assert suggested(first.ask()) not in theirs
    assert len(theirs) == 1
