"""What one would write by hand: quantize one region more at a time, the one that pays best."""

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.search_space import IntersectionSearchSpace
from optuna.trial import FrozenTrial, TrialState

from autoquant.domain.scheme import FLOAT

__all__ = ["GreedySampler"]

Key = tuple[str, ...]
Values = tuple[float, float]


class GreedySampler(BaseSampler):
    """Goes from float to a uniform recipe, one region at a time, then along the next recipe.

    At each step every region that is still float is tried on top of those chosen so far, and the one with the most
    latency saved by noise power added stays. Recipes come in the order of their SNR, where they were evaluated. The
    steps follow from the trials alone, so that a study can be resumed. When all is done, proposals are random.

    Args:
        seed: Of the random proposals.
    """

    def __init__(self, seed: int = 0) -> None:
        self._common = IntersectionSearchSpace()
        self._random = RandomSampler(seed=seed)

    def infer_relative_search_space(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002 - of the port
    ) -> dict[str, BaseDistribution]:
        """The parameters of the trials so far."""
        return self._common.calculate(study)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,  # noqa: ARG002 - of the port
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """The next assignment of the walk; nothing where there is none, so that each parameter is sampled alone."""
        choices = {
            name: [str(choice) for choice in found.choices]
            for name, found in search_space.items()
            if isinstance(found, CategoricalDistribution)
        }
        known = _known(study, list(choices))
        for scheme in _recipes(choices, known):
            proposal = _next_step(choices, scheme, known)
            if proposal is not None:
                return dict(zip(choices, proposal, strict=True))
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """At random."""
        return self._random.sample_independent(study, trial, param_name, param_distribution)


def _known(study: optuna.Study, names: Sequence[str]) -> dict[Key, Values | None]:
    """SNR and worst ratio of each assignment that was told; None where it failed or was pruned."""
    found: dict[Key, Values | None] = {}
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)):
        if set(names) <= trial.params.keys():
            key = tuple(str(trial.params[name]) for name in names)
            is_complete = trial.state is TrialState.COMPLETE
            found[key] = (trial.values[0], max(trial.values[1:])) if is_complete else None
    return found


def _recipes(choices: Mapping[str, Sequence[str]], known: Mapping[Key, Values | None]) -> list[str]:
    """Schemes, the one whose uniform recipe has the highest SNR first."""
    schemes = dict.fromkeys(name for names in choices.values() for name in names if name != FLOAT)

    def snr_db(scheme: str) -> float:
        values = known.get(tuple(scheme if scheme in names else FLOAT for names in choices.values()))
        return values[0] if values else float("-inf")

    return sorted(schemes, key=snr_db, reverse=True)


def _next_step(choices: Mapping[str, Sequence[str]], scheme: str, known: Mapping[Key, Values | None]) -> Key | None:
    """The first assignment of one recipe's walk that was not evaluated; None at its end."""
    base: Key = (FLOAT,) * len(choices)
    while True:
        steps = [
            (*base[:i], scheme, *base[i + 1 :])
            for i, names in enumerate(choices.values())
            if base[i] == FLOAT and scheme in names
        ]
        for step in steps:
            if step not in known:
                return step
        valued = {step: values for step in steps if (values := known[step])}
        start = known.get(base)
        if not valued or start is None:
            return None
        base = _best(start, valued)


def _best(start: Values, valued: Mapping[Key, Values]) -> Key:
    """The step with the most latency saved by noise power added; one that saves nothing comes last."""

    def merit(step: Key) -> tuple[bool, float]:
        snr_db, ratio = valued[step]
        noise = 10 ** (-snr_db / 10) - 10 ** (-start[0] / 10)
        saved = start[1] - ratio
        return saved > 0, saved / max(noise, 1e-12) if saved > 0 else saved

    return max(valued, key=merit)
