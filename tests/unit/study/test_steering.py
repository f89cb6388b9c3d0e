from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.trial import FrozenTrial, create_trial

from autoquant.study.sampler import StructureSampler
from autoquant.study.standing import Interest
from autoquant.study.steering import Steering
from tests.unit.study.layouts import a_landscape, a_layout

N = 10
LAYOUT = a_layout(N, seed=1, share_of_edges=0.0)
LANDSCAPE = a_landscape(LAYOUT, seed=1)
SHARES = np.random.default_rng(5).dirichlet(np.full(N, 0.5))
NAMES = {str(region): names for region, names in LAYOUT.choices.items()}


def evaluated(params: dict[str, str]) -> tuple[float, float, int]:
    """SNR, ratio, bytes."""
    codes = LAYOUT.encode(params)[None]
    snr_db = -10 * np.log10(LANDSCAPE.noise_of(codes).max())
    size = 1e6 * (1 - 0.75 * SHARES[codes[0] > 0].sum())
    return float(snr_db), float(LANDSCAPE.ratios_of(codes)[0, 0]), int(size)


def a_trial(name: str, *, size_bytes: int | None = None, constraints: dict[str, float] | None = None) -> FrozenTrial:
    params = {region: name if name in names else "float" for region, names in NAMES.items()}
    return create_trial(
        params=params,
        distributions={region: CategoricalDistribution(names) for region, names in NAMES.items()},
        values=list(evaluated(params)[:2]),
        user_attrs={} if size_bytes is None else {"size_bytes": size_bytes},
        constraints=constraints,
    )


def learned(steering: Steering, *trials: FrozenTrial, is_quick: bool = False) -> Steering:
    asked = np.array([LAYOUT.encode(trial.params) for trial in trials])
    snr_db = np.array([trial.values[0] for trial in trials])
    steering.learn(trials, asked, snr_db, np.full(len(trials), is_quick))
    return steering


def test_without_demands_nothing_is_steered() -> None:
    steering = learned(Steering(LAYOUT), a_trial("a", size_bytes=7), a_trial("b"))
    assert steering.keeps.all()
    assert steering.term(0.0) is None
    assert steering.min_snr_db(12.0) == 12.0
    assert (steering.chances(np.zeros((3, N), dtype=np.int64), np.array([0.0, 30.0, 90.0])) == 1).all()
    ratios = np.ones((2, 1))
    assert steering.costs(ratios) is ratios


def test_what_is_too_large_or_breaks_a_demand_does_not_count_but_snr_and_ratio_are_others_business() -> None:
    trials = [
        a_trial("float", size_bytes=1000),
        a_trial("a", size_bytes=400, constraints={"snr_db": 5.0, "latency_ratio": 0.1}),
        a_trial("b", size_bytes=400, constraints={"drop[top1]": 0.01}),
        a_trial("b"),
    ]
    steering = learned(Steering(LAYOUT, max_size_bytes=500, modelled={"snr_db", "latency_ratio"}), *trials)
    assert steering.keeps.tolist() == [False, True, False, True]


def test_a_constraint_of_which_nothing_else_is_known_counts_whatever_its_name() -> None:
    interest, broken = Interest(max_ratio=0.9), a_trial("a", constraints={"snr_db": 5.0, "latency_ratio": 0.1})
    assert not learned(Steering(LAYOUT), broken).keeps.any()
    assert not learned(Steering(LAYOUT, modelled=interest.modelled), broken).keeps.any()
    both = replace(interest, min_snr_db=40.0)
    assert learned(Steering(LAYOUT, modelled=both.modelled), broken).keeps.all()


def test_only_what_is_kept_the_rather_at_higher_snrs_keeps_proposals_to_those() -> None:
    slow = [a_trial("float", constraints={"latency_ratio": 0.4}), a_trial("a", constraints={"latency_ratio": -0.1})] * 4
    assert learned(Steering(LAYOUT), *slow).min_snr_db(None) is None
    loud = [a_trial("float", constraints={"snr_db": -20.0}), a_trial("a", constraints={"snr_db": 5.0})] * 4
    assert learned(Steering(LAYOUT), *loud).min_snr_db(None) is not None


def test_a_file_that_is_predicted_to_be_too_large_has_no_chance() -> None:
    trials = [a_trial("float", size_bytes=1000), a_trial("a", size_bytes=310), a_trial("b", size_bytes=300)] * 6
    steering = learned(Steering(LAYOUT, max_size_bytes=600), *trials)
    float_codes, integer = np.zeros(N, dtype=np.int64), np.full(N, 2)
    low, high = steering.chances(np.array([float_codes, integer]), np.array([60.0, 30.0]))
    assert low < 0.01
    assert high > 0.99


def test_as_long_as_no_trial_says_its_size_a_limit_means_nothing_and_a_warning_says_so() -> None:
    steering, codes = Steering(LAYOUT, max_size_bytes=1), np.array([np.zeros(N), np.full(N, 2)], dtype=np.int64)
    with pytest.warns(UserWarning, match="no trial says its own; set its attribute 'size_bytes'"):
        learned(steering, a_trial("float"), a_trial("b"))
    learned(steering, a_trial("float"), a_trial("b"), a_trial("a"))  # not again
    assert steering.term(0.0) is None
    assert steering.keeps.all()
    assert (steering.chances(codes, np.array([60.0, 30.0])) == 1).all()
    learned(steering, *[a_trial("float"), a_trial("b"), a_trial("a"), a_trial("b", size_bytes=300)])
    assert steering.term(0.0) is not None
    assert (steering.chances(codes, np.array([60.0, 30.0])) < 0.01).all()


def test_sizes_that_a_trial_does_not_say_are_predicted() -> None:
    trials = [a_trial("float", size_bytes=1000), a_trial("b", size_bytes=250), a_trial("b")]
    steering = learned(Steering(LAYOUT, has_size=True), *trials)
    costs = steering.costs(np.array([[1.0], [0.5], [0.6]]))
    assert costs[:, 0].tolist() == [1.0, 0.5, 0.6]
    assert costs[:, 1] == pytest.approx([1.0, 0.25, 0.25], abs=0.02)


def test_a_demand_that_an_early_stop_seems_to_keep_is_not_believed() -> None:
    kept = [a_trial("a", constraints={"drop[top1]": -0.1})] * 5
    assert learned(Steering(LAYOUT), *kept).min_snr_db(None) is not None
    assert learned(Steering(LAYOUT), *kept, is_quick=True).min_snr_db(None) is None
    broken = [a_trial("a", constraints={"drop[top1]": 0.1})] * 5
    assert (learned(Steering(LAYOUT), *broken, is_quick=True).min_snr_db(None) or -10) > -10


def feasible(sampler: StructureSampler, *, max_bytes: float, min_snr_db: float, n_trials: int) -> list[float]:
    """Ratios of the proposals that keep both demands, the second of which only constraints tell of.

    Float, a uniform recipe and a probe of each region come first, as in a search.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    everything = dict.fromkeys(NAMES, "float")
    for params in (everything, dict.fromkeys(NAMES, "b"), *(everything | {region: "b"} for region in NAMES)):
        study.enqueue_trial(params)
    found = []
    for _ in range(2 + N + n_trials):
        trial = study.ask()
        params = {region: trial.suggest_categorical(region, names) for region, names in NAMES.items()}
        snr_db, ratio, size_bytes = evaluated(params)
        trial.set_user_attr("size_bytes", size_bytes)
        trial.set_constraint("drop[top1]", min_snr_db - snr_db)
        study.tell(trial, [snr_db, ratio])
        if size_bytes <= max_bytes and snr_db >= min_snr_db and trial.number >= 2 + N:
            found.append(ratio)
    return found


class Deaf(Steering):
    """As if no trial said a size or a constraint."""

    def learn(self, trials: Sequence[FrozenTrial], *others: Any) -> None:
        plain = [create_trial(params=t.params, distributions=t.distributions, values=t.values) for t in trials]
        super().learn(plain, *others)


def a_deaf_sampler() -> StructureSampler:
    sampler = StructureSampler(LAYOUT, seed=0)
    sampler._known.steering = Deaf(LAYOUT)
    return sampler


@pytest.mark.parametrize("max_bytes", [400_000, 600_000])
def test_with_a_largest_size_more_proposals_keep_it_than_without(max_bytes: int) -> None:
    demands = {"max_bytes": max_bytes, "min_snr_db": -100.0, "n_trials": 30}
    deaf = feasible(a_deaf_sampler(), **demands)  # type: ignore[arg-type]
    aware = feasible(StructureSampler(LAYOUT, Interest(max_size_bytes=max_bytes), seed=0), **demands)  # type: ignore[arg-type]
    assert 30 - len(aware) <= (30 - len(deaf)) / 5


def test_constraints_that_are_broken_push_proposals_away() -> None:
    deaf, aware = (
        feasible(sampler, max_bytes=1e9, min_snr_db=45.0, n_trials=30)
        for sampler in (a_deaf_sampler(), StructureSampler(LAYOUT, seed=0))
    )
    assert len(aware) > 1.5 * len(deaf)
    assert min(aware) <= min(deaf) + 0.02


def test_where_the_size_is_an_objective_files_are_smaller() -> None:
    def mean_bytes(seed: int, *, has_size: bool) -> float:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = StructureSampler(LAYOUT, Interest(has_size=has_size), seed=seed)
        study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
        sizes = []
        for _ in range(50):
            trial = study.ask()
            params = {region: trial.suggest_categorical(region, names) for region, names in NAMES.items()}
            snr_db, ratio, size_bytes = evaluated(params)
            for name, value in (("snr_db", snr_db), ("ratios", [ratio]), ("size_bytes", size_bytes)):
                trial.set_user_attr(name, value)
            study.tell(trial, [snr_db, ratio, size_bytes])
            sizes.append(size_bytes)
        assert sampler.outlook() is not None
        return float(np.mean(sizes[15:]))

    smaller, usual = (sum(mean_bytes(seed, has_size=has_size) for seed in range(4)) for has_size in (True, False))
    assert smaller < 0.95 * usual
