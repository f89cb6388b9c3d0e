"""The sampler in studies unlike a search: with failures, several targets, other spaces, earlier trials."""

import math
import pickle
import warnings

import numpy as np
import optuna
import pytest
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState, create_trial

from autoquant.errors import UsageError
from autoquant.study.layout import Layout
from autoquant.study.sampler import StructureSampler
from autoquant.study.standing import Interest
from tests.unit.study.additive import CHOICES, REGIONS, a_layout, a_study, objectives, suggested, told
from tests.unit.study.layouts import SCHEMES


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


def test_a_refuted_model_leaves_the_proposal_to_the_generic_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    study = a_study(StructureSampler(a_layout()), 12)
    wanted = dict.fromkeys(map(str, REGIONS), "a") | {REGIONS[0]: "float", REGIONS[5]: "float"}
    assert wanted not in [trial.params for trial in study.trials]
    monkeypatch.setattr(TPESampler, "sample_relative", lambda *_: wanted)
    for share, is_followed in ((0.0, False), (1.0, True)):
        monkeypatch.setattr("autoquant.study.trust.Trust.generic_share", share)
        assert (suggested(study.ask()) == wanted) is is_followed


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
        trial.set_user_attr("state", "failed")
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
    sampler = StructureSampler(a_layout(), Interest(max_ratio=0.9), seed=0)
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


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ratios", [0.0], "trial 9 has 0 as a latency ratio"),
        ("snr_db", None, "trial 9 has values or user attributes that cannot be read"),
        ("size_bytes", -1, "trial 9 has -1 in 'size_bytes'"),
        ("snr_error_db", -1, "-1 in 'snr_error_db'"),
        ("ratios", [0.5, 0.6], "it has latency ratios on 2 targets, and others on 1"),
    ],
)
def test_nothing_is_learned_of_one_trial_that_cannot_be_read_after_others(
    name: str, value: object, message: str
) -> None:
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for number in range(12):
        trial = study.ask()
        if number == 10:
            with pytest.warns(UserWarning, match=f"nothing is learned of trial 9: .*{message}"):
                snr_db, ratio = objectives(suggested(trial))
        else:
            snr_db, ratio = objectives(suggested(trial))
        for key, found in {"snr_db": snr_db, "ratios": [ratio], **({name: value} if number == 9 else {})}.items():
            trial.set_user_attr(key, found)
        study.tell(trial, snr_db)
    suggested(study.ask())
    assert sampler.beliefs().keys() == set(range(12)) - {9}


@pytest.mark.parametrize("odd", [0, 5])
def test_trials_that_were_there_before_are_read_whichever_of_them_is_odd(odd: int) -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    for number in range(9):
        trial = study.ask()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            snr_db, ratio = objectives(suggested(trial))
        trial.set_user_attr("snr_db", snr_db)
        trial.set_user_attr("ratios", [-1.0 if number == odd else ratio])
        study.tell(trial, snr_db)
    sampler = StructureSampler(a_layout(), seed=0)
    other = optuna.create_study(direction="maximize", sampler=sampler)
    other.add_trials(study.trials)
    with pytest.warns(UserWarning, match=f"nothing is learned of trial {odd}: trial {odd} has -1 as a latency ratio"):
        suggested(other.ask())
    assert sampler.beliefs().keys() == set(range(9)) - {odd}


def test_a_study_goes_on_after_a_first_trial_that_nobody_can_mend() -> None:
    """A finished trial keeps its attributes: raising at each further one made a stored study unusable."""
    storage, name = optuna.storages.InMemoryStorage(), "stored"

    def opened() -> optuna.Study:
        sampler = StructureSampler(a_layout(), seed=0)
        return optuna.create_study(
            storage=storage,
            study_name=name,
            directions=["maximize", "minimize"],
            sampler=sampler,
            load_if_exists=True,
        )

    def tell(study: optuna.Study, ratios: object) -> None:
        trial = study.ask()
        values = objectives(suggested(trial))
        trial.set_user_attr("snr_db", values[0])
        trial.set_user_attr("ratios", ratios)
        study.tell(trial, values)

    study = opened()
    tell(study, 0.5)
    with pytest.raises(UsageError, match=r"trial 0 has 0\.5 in 'ratios'"):
        tell(study, [0.5])
    tell(study, [0.5])  # the same process goes on, too
    with pytest.warns(UserWarning, match=r"nothing is learned of trial 0: trial 0 has 0\.5 in 'ratios'"):
        tell(opened(), [0.5])


def test_of_many_trials_that_cannot_be_read_one_warning_tells() -> None:
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials([create_trial(value=1.0) for _ in range(3)])
    study.sampler = StructureSampler(a_layout(), seed=0)
    with pytest.warns(UserWarning, match="nothing is learned of 3 trials, the first of them 0: the study has the dir"):
        suggested(study.ask())


@pytest.mark.filterwarnings("ignore:sizes are of interest:UserWarning")
@pytest.mark.parametrize("n_known", [0, 6])
def test_sizes_of_0_are_unknown(n_known: int) -> None:
    sampler = StructureSampler(a_layout(), Interest(max_size_bytes=5_000_000, has_size=True), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    for number in range(10):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        trial.set_user_attr("size_bytes", 4_000_000 if number < n_known else 0)
        study.tell(trial, [snr_db, ratio])
    assert len({tuple(trial.params.items()) for trial in study.trials}) == 10
