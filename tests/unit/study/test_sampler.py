from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import RegionId
from autoquant.study.layout import Layout
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
from tests.unit.study.layouts import SCHEMES


@cache
def structured(seed: int, n_trials: int) -> optuna.Study:
    return a_study(StructureSampler(a_layout(), seed=seed), n_trials)


def hypervolume(study: optuna.Study) -> float:
    """Area between the front and (0 dB, ratio 1.2)."""
    area, best = 0.0, 0.0
    for ratio, snr in sorted((t.values[1], t.values[0]) for t in study.trials):
        area += max(snr - best, 0.0) * max(1.2 - ratio, 0.0)
        best = max(best, snr)
    return area


@pytest.mark.parametrize("seed", [0, 1])
def test_it_beats_random_sampling_in_a_study_that_a_user_makes(seed: int) -> None:
    random = a_study(RandomSampler(seed=seed), 80)
    assert hypervolume(structured(seed, 80)) > 1.1 * hypervolume(random)


def test_no_assignment_is_proposed_twice() -> None:
    proposed = [tuple(t.params.values()) for t in structured(0, 80).trials]
    assert len(set(proposed)) == len(proposed)


def test_the_same_seed_gives_the_same_proposals_and_another_seed_others() -> None:
    first = [t.params for t in structured(0, 80).trials[:20]]
    again = [t.params for t in a_study(StructureSampler(a_layout(), seed=0), 20).trials]
    other = [t.params for t in a_study(StructureSampler(a_layout(), seed=1), 20).trials]
    assert first == again
    assert first != other


def test_enqueued_trials_are_taken_as_they_are() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout()))
    params: dict[str, str] = dict.fromkeys(map(str, REGIONS), "b") | {REGIONS[3]: "float"}
    study.enqueue_trial(params)
    assert suggested(study.ask()) == params


def test_parameters_that_are_no_regions_are_sampled_too() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout()))
    trial = study.ask()
    suggested(trial)
    assert 0 <= trial.suggest_float("threshold", 0, 1) <= 1


def test_a_region_never_takes_what_it_is_not_allowed() -> None:
    choices = {region: CHOICES if i % 2 else ("float", "b") for i, region in enumerate(REGIONS)}
    layout = Layout.of(choices, SCHEMES, [], dict.fromkeys(REGIONS, 1 / N_REGIONS))
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(layout))
    for _ in range(15):
        trial = study.ask({region: CategoricalDistribution(names) for region, names in choices.items()})
        assert all(name in choices[RegionId(region)] for region, name in trial.params.items())
        study.tell(trial, objectives(trial.params))


@pytest.mark.parametrize("min_snr_db", [None, 40.0])
def test_a_demand_draws_proposals_to_it(min_snr_db: float | None) -> None:
    studies = [
        a_study(StructureSampler(a_layout(), Interest(min_snr_db=min_snr_db), seed=seed), 60) for seed in range(4)
    ]
    snrs: npt.NDArray[np.float64] = np.array([t.values[0] for study in studies for t in study.trials[30:]])
    share = float(np.mean(snrs >= 38))
    assert share > 0.5 if min_snr_db else share < 0.4


def test_a_demand_that_nothing_is_believed_to_keep_draws_proposals_to_what_comes_nearest() -> None:
    layout, optimistic = a_layout(), 0.3
    study = a_study(StructureSampler(layout, Interest(max_ratio=optimistic), seed=0), 40)
    ratios = [t.values[1] for t in study.trials]
    assert min(ratios) > optimistic
    assert float(np.median(ratios[20:])) < min(ratios) + 0.15


def test_a_space_that_was_searched_through_still_gets_a_proposal() -> None:
    layout = Layout.of({REGIONS[0]: ("float", "a")}, SCHEMES, [], {REGIONS[0]: 1.0})
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(layout))
    value: Callable[[str], tuple[float, float]] = lambda name: (60.0, 1.0) if name == "float" else (30.0, 0.5)  # noqa: E731
    found = []
    for _ in range(4):
        trial = study.ask()
        found.append(trial.suggest_categorical(REGIONS[0], ("float", "a")))
        study.tell(trial, value(found[-1]))
    assert set(found[:2]) == {"float", "a"}


def test_proposals_do_not_depend_on_the_objectives_of_the_study() -> None:
    """Where they are not SNR and ratio, those are in user attributes."""
    usual = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=5))
    other = optuna.create_study(directions=["minimize"] * 3, sampler=StructureSampler(a_layout(), seed=5))
    for i in range(12):
        first, second = usual.ask(), other.ask()
        params = suggested(first)
        assert suggested(second) == params
        snr_db, ratio = objectives(params)
        second.set_user_attr("snr_db", snr_db)
        second.set_user_attr("ratios", [ratio])
        usual.tell(first, [snr_db, ratio])
        other.tell(second, [i % 3 / 10, ratio, 1000.0 + i])


def test_a_prior_steers_proposals_before_anything_was_measured() -> None:
    change = np.full((N_REGIONS, 2), 0.3)
    change[:4] = -0.2
    prior = LatencyPrior(
        base=1.0,
        change=change,
        spread=np.full((N_REGIONS, 2), 0.001),
        border=np.full(N_REGIONS - 1, 0.001),
        border_spread=np.full(N_REGIONS - 1, 0.001),
    )
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), Interest(min_snr_db=0.0), prior=prior)
    )
    for _ in range(5):
        params = suggested(study.ask())
        assert all(params[region] == "float" for region in REGIONS[4:])


def test_a_scheme_that_never_ran_is_not_proposed_any_more() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=2))
    for name in ("a", "b"):
        study.enqueue_trial(dict.fromkeys(map(str, REGIONS), name))
    proposed = []
    for _ in range(20):
        trial = study.ask()
        params = suggested(trial)
        ran = {region: "float" if name == "b" and region == REGIONS[0] else name for region, name in params.items()}
        trial.set_user_attr("effective", ran)
        study.tell(trial, objectives(ran))
        proposed.append(params[REGIONS[0]])
    assert proposed[:2] == ["a", "b"]
    assert proposed[2:].count("b") <= 1
    assert proposed[2:].count("a") > 0


def test_what_is_known_to_have_run_is_not_proposed() -> None:
    """Asked for on the first region alone, a scheme ran nowhere: float is known then, though nobody asked for it."""
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=2))
    everywhere_float: dict[str, str] = dict.fromkeys(map(str, REGIONS), "float")
    study.enqueue_trial(everywhere_float | {REGIONS[0]: "a"})
    trial = study.ask()
    suggested(trial)
    trial.set_user_attr("effective", everywhere_float)
    study.tell(trial, objectives(everywhere_float))
    for _ in range(30):
        trial = study.ask()
        params = suggested(trial)
        assert params != everywhere_float
        study.tell(trial, objectives(params))


def test_a_surrogate_that_is_refuted_leaves_proposals_to_a_generic_sampler() -> None:
    """Values that have nothing to do with the assignment."""
    sampler = StructureSampler(a_layout(), seed=0)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    rng = np.random.default_rng(0)
    for _ in range(12):
        study.tell(trial := study.ask(), objectives(suggested(trial)))
    for _ in range(40):
        suggested(trial := study.ask())
        study.tell(trial, [float(rng.uniform(-100, 100)), float(rng.uniform(0.1, 9))])
    suggested(study.ask())
    assert sampler.trust.generic_share > 0


def test_it_learns_how_many_targets_there_are_from_the_first_trial() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        directions=["maximize", "minimize", "minimize"], sampler=StructureSampler(a_layout(), seed=0)
    )
    for _ in range(4):
        trial = study.ask()
        snr_db, ratio = objectives(suggested(trial))
        study.tell(trial, [snr_db, ratio, 0.9 * ratio])
    assert len(study.trials) == 4


@pytest.mark.parametrize(("state", "proposed"), [("untimed", {"a"}), ("rejected-early", {"b"})])
def test_what_was_not_timed_is_proposed_again_unless_it_was_rejected(state: str, proposed: set[str]) -> None:
    layout = Layout.of({REGIONS[0]: CHOICES}, SCHEMES, [], {REGIONS[0]: 1.0})
    distributions: dict[str, BaseDistribution] = {REGIONS[0]: CategoricalDistribution(CHOICES)}
    attributes = {"state": state, "snr_db": 30.0, "ratios": []}
    make = optuna.trial.create_trial
    trials = [
        make(params={REGIONS[0]: "float"}, distributions=distributions, values=[60.0, 1.0]),
        make(
            state=TrialState.PRUNED, params={REGIONS[0]: "a"}, distributions=distributions, user_attrs=dict(attributes)
        ),
    ]
    found = set()
    for seed in range(12):
        sampler = StructureSampler(layout, seed=seed)
        study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
        study.add_trials(trials)
        found.add(study.ask().suggest_categorical(REGIONS[0], CHOICES))
    assert found == proposed


def test_where_nothing_is_ever_timed_proposals_do_not_repeat() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=0))
    found = set[tuple[str, ...]]()
    for _ in range(30):
        trial = study.ask()
        found.add(tuple(suggested(trial).values()))
        for name, value in (("state", "untimed"), ("ratios", []), ("snr_db", objectives(trial.params)[0])):
            trial.set_user_attr(name, value)
        study.tell(trial, state=TrialState.PRUNED)
    assert len(found) == 30


def test_pruned_trials_that_say_nothing_teach_nothing() -> None:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=StructureSampler(a_layout(), seed=3))
    told(study, dict.fromkeys(REGIONS, "a"), TrialState.COMPLETE)
    pruned(study, dict.fromkeys(REGIONS, "b"))
    assert suggested(study.ask()) not in (dict.fromkeys(REGIONS, "a"), dict.fromkeys(REGIONS, "b"))
