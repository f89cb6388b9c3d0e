import math

import optuna

from autoquant.domain.scheme import FLOAT
from experiments.search.contenders import contender
from experiments.search.greedy import GreedySampler
from experiments.search.replay import replay
from tests.experiments.search.synthetic import a_table

REGIONS = ("x", "y", "z")
SAVED = {"x": 0.1, "y": 0.3, "z": -0.1}
"""At equal noise, so that y pays best and z costs."""


def objective(trial: optuna.Trial) -> tuple[float, float]:
    chosen = [name for name in REGIONS if trial.suggest_categorical(name, (FLOAT, "a")) != FLOAT]
    noise = 1e-8 + 1e-4 * len(chosen)
    return -10 * math.log10(noise), 1 - sum(SAVED[name] for name in chosen)


def walked(n_trials: int) -> list[str]:
    study = optuna.create_study(directions=["maximize", "minimize"], sampler=GreedySampler())
    for scheme in (FLOAT, "a"):
        study.enqueue_trial(dict.fromkeys(REGIONS, scheme))
    study.optimize(objective, n_trials=n_trials)
    return ["".join(name for name in REGIONS if trial.params[name] != FLOAT) for trial in study.trials]


def test_one_region_more_is_quantized_at_a_time_the_one_that_pays_best_first() -> None:
    assert walked(7) == ["", "xyz", "x", "y", "z", "xy", "yz"]


def test_when_the_walk_is_over_proposals_are_random() -> None:
    assert len(walked(30)) == 30


def test_a_failed_step_is_passed_over() -> None:
    table = a_table(4)
    rows = replay(table, contender("greedy", 0), n_evaluations=20, seed=0)
    assert len(rows) == 20
    assert rows[1] in table.failures  # the recipe that cannot be run
    steps = (table.codes[rows[3:8]] > 0).sum(axis=1)
    assert steps.tolist() == [1, 1, 1, 2, 2]  # the last region may not take the recipe that can


def test_a_walk_goes_on_from_the_trials_of_another_study() -> None:
    first = optuna.create_study(directions=["maximize", "minimize"], sampler=GreedySampler())
    for scheme in (FLOAT, "a"):
        first.enqueue_trial(dict.fromkeys(REGIONS, scheme))
    first.optimize(objective, n_trials=4)
    second = optuna.create_study(directions=["maximize", "minimize"], sampler=GreedySampler())
    second.add_trials(first.trials)
    second.optimize(objective, n_trials=1)
    assert [second.trials[-1].params[name] for name in REGIONS] == [FLOAT, FLOAT, "a"]
