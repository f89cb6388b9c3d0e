"""An additive problem of twelve regions, and studies of it."""

from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from autoquant.domain.region import RegionId
from autoquant.study.layout import Layout
from tests.unit.study.layouts import SCHEMES

N_REGIONS = 12
REGIONS = tuple(RegionId(f"r{i:02d}") for i in range(N_REGIONS))
CHOICES = ("float", "a", "b")
RNG = np.random.default_rng(11)
NOISE = 10 ** RNG.uniform(-6, -2.5, (N_REGIONS, 3)) * np.array([0, 1, 1])
WORK = RNG.dirichlet(np.ones(N_REGIONS))
SAVED = WORK[:, None] * np.array([0.0, 0.6, 0.4])
BORDER = 0.015


def a_layout() -> Layout:
    edges = [(REGIONS[i], REGIONS[i + 1]) for i in range(N_REGIONS - 1)]
    work = dict(zip(REGIONS, WORK.tolist(), strict=True))
    return Layout.of(dict.fromkeys(REGIONS, CHOICES), SCHEMES, edges, work)


def objectives(params: dict[str, str]) -> tuple[float, float]:
    """SNR and ratio of an additive problem: noise and savings of regions, costs of borders."""
    codes = np.array([CHOICES.index(params[region]) for region in REGIONS])
    rows = np.arange(N_REGIONS)
    noise = NOISE[rows, codes].sum() + 1e-10
    ratio = 1 - SAVED[rows, codes].sum() + BORDER * ((codes[1:] > 0) != (codes[:-1] > 0)).sum()
    return float(-10 * np.log10(noise)), float(ratio)


def suggested(trial: optuna.Trial) -> dict[str, str]:
    return {region: trial.suggest_categorical(region, CHOICES) for region in REGIONS}


def a_study(sampler: BaseSampler, n_trials: int) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=sampler)
    study.optimize(lambda trial: objectives(suggested(trial)), n_trials=n_trials)
    return study


def told(study: optuna.Study, params: dict[str, str], state: TrialState) -> None:
    distributions = {region: CategoricalDistribution(CHOICES) for region in REGIONS}
    values = list(objectives(params)) if state is TrialState.COMPLETE else None
    study.add_trial(
        optuna.trial.create_trial(state=state, params=params, distributions=distributions, values=values)  # type: ignore[arg-type]
    )


def pruned(study: optuna.Study, params: dict[str, str], **attributes: Any) -> None:
    distributions = {region: CategoricalDistribution(CHOICES) for region in REGIONS}
    study.add_trial(
        optuna.trial.create_trial(
            state=TrialState.PRUNED,
            params=params,
            distributions=distributions,  # type: ignore[arg-type]
            user_attrs=attributes,
        )
    )
