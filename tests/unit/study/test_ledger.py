from dataclasses import dataclass
from functools import cache

import numpy as np
import optuna
import pytest
from optuna.samplers import RandomSampler
from optuna.trial import TrialState

from autoquant.domain.ledger import Estimate, Ledger, Way
from autoquant.domain.region import RegionId
from autoquant.study.landscape import Landscape
from autoquant.study.layout import Layout
from autoquant.study.ledger import ledger_of
from autoquant.study.sampler import StructureSampler
from autoquant.study.surrogate import Observations, Prediction
from tests.unit.study.layouts import CHOICES, SCHEMES, WITH_DYNAMIC, a_landscape, a_layout

FLOAT_US = {"cpu-1t": 2000.0, "cpu-2t": 1000.0}
N_PROBLEMS = 10
LAYOUT = a_layout(8)
TRUTH = a_landscape(LAYOUT, n_targets=2)


def searched(layout: Layout = LAYOUT, truth: Landscape = TRUTH, n_trials: int = 60) -> StructureSampler:
    """A sampler that saw so many evaluations of an additive problem."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = StructureSampler(layout, seed=0)
    study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
    study.enqueue_trial(dict.fromkeys(layout.regions, "float"))
    space = sampler.infer_relative_search_space(study, None)  # type: ignore[arg-type]
    for _ in range(n_trials):
        trial = study.ask(space)
        codes = layout.encode(trial.params)[None]
        study.tell(trial, [float(-10 * np.log10(truth.noise_of(codes)[0, 0])), *truth.ratios_of(codes)[0].tolist()])
    return sampler


@dataclass(frozen=True, slots=True)
class Problem:
    layout: Layout
    truth: Landscape
    ledger: Ledger


@cache
def problem(seed: int) -> Problem:
    layout = a_layout(8, seed=seed)
    truth = a_landscape(layout, n_targets=2, seed=seed)
    ledger = ledger_of(searched(layout, truth), FLOAT_US)
    assert ledger is not None
    return Problem(layout, truth, ledger)


@cache
def found() -> Ledger:
    ledger = ledger_of(searched(), FLOAT_US)
    assert ledger is not None
    return ledger


def is_inside(estimate: Estimate, truth: float) -> bool:
    assert estimate.low <= estimate.value <= estimate.high
    return estimate.low <= truth <= estimate.high


def test_intervals_of_latencies_hold_the_truth() -> None:
    inside = []
    for one in map(problem, range(N_PROBLEMS)):
        regions, schemes = one.layout.regions, one.layout.schemes
        for target, (name, us) in enumerate(FLOAT_US.items()):
            own = us * one.truth.own[target]
            for cost in one.ledger.regions:
                true_us = own[regions.index(cost.region), schemes.index(cost.scheme)]
                inside.append(is_inside(cost.change_us[name], true_us))
            for border, true in zip(one.ledger.borders, one.truth.border[target], strict=True):
                inside.append(is_inside(border.change_us[name], us * true))
    assert np.mean(inside) > 0.75


def test_intervals_of_noise_hold_the_truth() -> None:
    inside = []
    for one in map(problem, range(N_PROBLEMS)):
        for cost in one.ledger.regions:
            row, scheme = one.layout.regions.index(cost.region), one.layout.schemes.index(cost.scheme)
            inside.append(is_inside(cost.snr_db, -10 * np.log10(one.truth.noise[0, row, scheme])))
    assert np.mean(inside) > 0.85


def test_every_region_is_there_for_every_kind_that_it_may_run() -> None:
    costs = [(cost.region, cost.operators) for cost in found().regions]
    both = [(region, kind) for region in LAYOUT.regions[:-1] for kind in (Way.ALL, Way.LINEAR)]
    assert costs == [*both, (LAYOUT.regions[-1], Way.LINEAR)]
    pairs = [(LAYOUT.regions[a], LAYOUT.regions[b]) for a, b in LAYOUT.edges]
    assert [cost.regions for cost in found().borders] == pairs


def test_shares_of_the_noise_add_up_to_one_roughly() -> None:
    linear = [cost.noise_share.value for cost in found().regions if cost.operators is Way.LINEAR]
    every = [cost.noise_share.value for cost in found().regions if cost.operators is Way.ALL]
    assert sum(linear) == pytest.approx(1, abs=0.2)
    assert 0 < 1 - sum(every) < 1, "the last region runs its linear operators there"


def test_the_scheme_is_the_least_noisy_one_that_is_allowed() -> None:
    regions = LAYOUT.regions
    schemes = {**SCHEMES, "c": SCHEMES["a"]}
    choices = dict.fromkeys(regions, (*CHOICES, "c")) | {regions[0]: CHOICES}
    layout = Layout.of(choices, schemes, [], dict.fromkeys(regions, 1 / len(regions)))
    noise = np.where(np.array(layout.schemes) == "c", 1e-6, 1e-3) * np.ones((1, len(regions), 4))
    noise[..., 0] = 0
    truth = Landscape(layout, noise, TRUTH.constant, TRUTH.own[..., [0, 1, 2, 1]], np.zeros((2, 0)))
    ledger = ledger_of(searched(layout, truth), FLOAT_US)
    assert ledger is not None
    chosen = [cost.scheme for cost in ledger.regions if cost.operators is Way.ALL]
    assert chosen == ["a", *["c"] * (len(regions) - 1)]
    assert ledger.borders == ()


def test_the_same_sampler_gives_the_same_ledger() -> None:
    sampler = searched()
    assert ledger_of(sampler, FLOAT_US) == ledger_of(sampler, FLOAT_US)


def test_intervals_are_as_much_wider_as_predictions_were_wrong() -> None:
    sampler = searched()
    before = ledger_of(sampler, FLOAT_US)
    n = 60
    predicted = Prediction(np.zeros(n), np.ones(n), np.zeros((n, 2)), np.ones((n, 2)))
    wrong = np.full((n, 1), 2.5)
    codes = np.zeros((n, len(LAYOUT.regions)), dtype=np.int64)
    sampler.trust.compare(predicted, Observations(codes, wrong, wrong, np.zeros((n, 1)), np.zeros(n, dtype=bool)))
    after = ledger_of(sampler, FLOAT_US)
    assert before is not None
    assert after is not None
    assert after.latency_stretch > before.latency_stretch
    wider = after.latency_stretch / before.latency_stretch
    for was, now in zip(before.regions, after.regions, strict=True):
        first, second = was.change_us["cpu-1t"], now.change_us["cpu-1t"]
        assert second.high - second.low == pytest.approx(wider * (first.high - first.low))
        assert now.snr_db.high - now.snr_db.low > was.snr_db.high - was.snr_db.low
    assert after.foresight is not None
    assert after.foresight.n_recent == 60
    assert after.foresight.generic_share > 0


def test_what_was_predicted_before_it_was_evaluated_is_judged() -> None:
    foresight = found().foresight
    assert foresight is not None
    assert foresight.n_recent == 58, "the first has no prediction, and the last is not known before the next proposal"
    assert 0.5 < foresight.snr_share <= 1
    assert 0.5 < foresight.ratio_share <= 1


@pytest.mark.parametrize("sampler", [None, RandomSampler(), StructureSampler(LAYOUT), "no evaluation"])
def test_who_believes_nothing_has_no_ledger(sampler: RandomSampler | StructureSampler | str | None) -> None:
    asked = searched(n_trials=1) if isinstance(sampler, str) else sampler
    assert ledger_of(asked, FLOAT_US) is None


def test_where_nothing_runs_on_integers_there_is_no_ledger() -> None:
    regions = [RegionId("r0"), RegionId("r1")]
    layout = Layout.of(dict.fromkeys(regions, ("float",)), SCHEMES, [], dict.fromkeys(regions, 0.5))
    truth = Landscape(layout, np.zeros((1, 2, 3)), np.ones(2), np.zeros((2, 2, 3)), np.zeros((2, 0)))
    assert ledger_of(searched(layout, truth, n_trials=2), FLOAT_US) is None


def test_dynamic_schemes_are_a_kind_of_their_own() -> None:
    layout = a_layout(6, schemes=WITH_DYNAMIC)
    ledger = ledger_of(searched(layout, a_landscape(layout, n_targets=2)), FLOAT_US)
    assert ledger is not None
    assert [cost.scheme for cost in ledger.regions if cost.operators is Way.DYNAMIC] == ["d"] * 6
    shares = [cost.noise_share.value for cost in ledger.regions if cost.operators is Way.DYNAMIC]
    assert sum(shares) == pytest.approx(1, abs=0.25)


def test_a_search_of_two_targets_that_timed_nothing_has_none() -> None:
    """How many targets there are is known from ratios alone."""
    sampler = StructureSampler(LAYOUT, seed=0)
    study = optuna.create_study(directions=["maximize", "minimize", "minimize"], sampler=sampler)
    for _ in range(2):
        trial = study.ask(sampler.infer_relative_search_space(study, None))  # type: ignore[arg-type]
        for key, value in {"state": "untimed", "snr_db": 40.0, "ratios": []}.items():
            trial.set_user_attr(key, value)
        study.tell(trial, state=TrialState.PRUNED)
    study.ask(sampler.infer_relative_search_space(study, None))  # type: ignore[arg-type]
    assert sampler.surrogate is not None
    assert sampler.surrogate.n_observed
    assert ledger_of(sampler, FLOAT_US) is None
