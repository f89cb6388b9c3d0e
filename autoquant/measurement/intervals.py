"""Intervals whose unit is the session: what one process measures over and over says little of the next one."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri, stdtrit

__all__ = [
    "LEVEL",
    "PRIOR_SESSIONS",
    "STOPPED_LEVEL",
    "SessionInterval",
    "are_narrow",
    "difference_intervals",
    "intervals_by_target",
    "session_intervals",
    "widened",
]

PRIOR_SESSIONS = 4.0
"""The spread that all models of a measurement share counts at most as much as so many sessions of one."""
_LEAST_FREEDOM = 2.0
"""Of several models: with the one degree of two sessions that disturb all models alike an interval says nothing."""
_USUAL = 0.999
"""Share of variances that are no sign of a disturbance."""
LEVEL = 0.95
STOPPED_LEVEL = 0.975
"""Who ends as soon as intervals are narrow ends rather where the spread happens to look small: intervals of 95 % then
cover the truth in 92 % of the cases, and those of this level in 95 % or more."""
Key = TypeVar("Key")
Floats = npt.NDArray[np.float64]
NO_ROUNDS: Mapping[Any, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SessionInterval:
    """What sessions say of one value.

    Attributes:
        value: Geometric mean of the sessions' medians.
        low: Lower end of the interval of ``value``, of 95 % or the level that was asked for.
        high: Upper end.
        next_low: Lower end of the interval where the median of a further session lies with 95 %.
        next_high: Upper end.
    """

    value: float
    low: float
    high: float
    next_low: float
    next_high: float


def session_intervals(
    medians: Mapping[Key, Sequence[float]], *, rounds: Mapping[Key, float] = NO_ROUNDS, level: float = LEVEL
) -> dict[Key, SessionInterval]:
    """Student intervals of the logarithms, with variances moderated towards the one that all keys share.

    A bootstrap over three to five sessions covers the truth far less often than it says, and three sessions alone know
    their own spread badly; what was measured together shares it. What a session does to all keys alike (to ratios by
    the luck of the float model) is seen once a session however many keys there are, so that the shared spread has
    Satterthwaite's degrees of freedom of both parts. With several keys there are two at least: two sessions that
    differ only in what is common to all keys are covered in 84 % (decision 0030). Medians of few rounds that happen to
    agree are not known better than these rounds say alone.

    Args:
        medians: Positive medians, one for each session, by what was measured; two sessions at least.
        rounds: The variance of the logarithm of one of them, as far as the rounds that it is of tell; for those of
            which that is known, see ``medians.variance_of_medians``.
        level: Of the interval of the value.

    References:
        Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray
        Experiments", 2004 (moderated t); Satterthwaite, "An Approximate Distribution of Estimates of Variance
        Components", 1946; Hahn and Meeker, "Statistical Intervals", 1991 (prediction intervals).
    """
    logs = _logs(medians)
    return _moderated(logs, _freedom(list(logs.values())), rounds, level)


def intervals_by_target(
    medians: Mapping[tuple[str, str], Sequence[float]],
    *,
    rounds: Mapping[tuple[str, str], float] = NO_ROUNDS,
    level: float = LEVEL,
) -> dict[tuple[str, str], SessionInterval]:
    """``session_intervals`` of models and targets: what a session does to all models differs between targets."""
    found: dict[tuple[str, str], SessionInterval] = {}
    for name in dict.fromkeys(target for _, target in medians):
        there = {(key, target): values for (key, target), values in medians.items() if target == name}
        found |= session_intervals(there, rounds=rounds, level=level)
    return found


def difference_intervals(
    medians: Mapping[tuple[str, str], Sequence[float]],
    *,
    rounds: Mapping[tuple[str, str], float] = NO_ROUNDS,
    level: float = LEVEL,
) -> dict[tuple[str, str], SessionInterval]:
    """Intervals of the ratios of any two models, in which what a session does to all models cancels.

    Args:
        medians: Of the ratio, one for each session, by the pair; of every pair of the same models.
        rounds: As for ``session_intervals``.
        level: Of the interval of the value.
    """
    n_models = len({name for pair in medians for name in pair})
    n_sessions = min(map(len, medians.values()), default=0)
    return _moderated(_logs(medians), float((n_models - 1) * (n_sessions - 1)), rounds, level)


def _logs(medians: Mapping[Key, Sequence[float]]) -> dict[Key, Floats]:
    return {key: np.log(np.asarray(values, dtype=float)) for key, values in medians.items()}


def _freedom(logs: Sequence[Floats]) -> float:
    """Degrees of freedom of the mean variance of keys whose sessions are the same ones."""
    n = min(map(len, logs), default=0)
    if len(logs) < 2:
        return n - 1.0
    deviations = np.stack([values[:n] - np.mean(values[:n]) for values in logs])
    common = np.mean(deviations, axis=0)
    of_common = float(np.sum(common**2)) / (n - 1)
    of_rest = float(np.mean(np.sum((deviations - common) ** 2, axis=1))) / (n - 1)
    if of_common + of_rest == 0.0:
        return _LEAST_FREEDOM
    parts = of_common**2 / (n - 1) + of_rest**2 / ((n - 1) * (len(logs) - 1))
    return max(_LEAST_FREEDOM, (of_common + of_rest) ** 2 / parts)


def _moderated(
    logs: Mapping[Key, Floats], known: float, rounds: Mapping[Key, float], level: float
) -> dict[Key, SessionInterval]:
    """Intervals, where ``known`` are the degrees of freedom of the mean variance of all keys."""
    variances = {key: float(np.var(values, ddof=1)) for key, values in logs.items()}
    shared = _shared(list(variances.values()), min(map(len, logs.values()), default=0) - 1)
    found = {}
    for key, values in logs.items():
        n, centre = len(values), float(np.mean(values))
        prior = min(PRIOR_SESSIONS, max(0.0, known - (n - 1)))
        freedom = prior + n - 1
        spread = math.sqrt((prior * shared + (n - 1) * variances[key]) / freedom)
        least = math.sqrt(rounds.get(key, 0.0))  # of a normal number whose variance is known
        own, following = (
            max(float(stdtrit(freedom, (1 + of) / 2)) * spread, float(ndtri((1 + of) / 2)) * least)
            for of in (level, LEVEL)
        )
        own, following = own / math.sqrt(n), following * math.sqrt(1 + 1 / n)
        found[key] = SessionInterval(
            *(math.exp(centre + x) for x in (0.0, -own, own, -following, following)),
        )
    return found


def _shared(variances: Sequence[float], freedom: int) -> float:
    """Their mean, where none counts more than normal numbers let expect of all but one in a thousand.

    A file that something disturbed in one session alone says so in its own interval, and not in those of all others.

    References:
        Phipson, Lee, Majewski, Alexander, Smyth, "Robust Hyperparameter Estimation Protects against Hypervariable Genes
        and Improves Power to Detect Differential Expression", 2016 (winsorized variances).
    """
    if not variances:
        return 0.0
    usual = float(np.median(variances)) / (2 * gammaincinv(freedom / 2, 0.5))
    most = usual * 2 * gammaincinv(freedom / 2, _USUAL)
    return statistics.fmean(min(variance, most) if most else variance for variance in variances)


def are_narrow(found: Iterable[SessionInterval], share: float) -> bool:
    """Whether half of every interval is at most this share of its value."""
    return all(each.high - each.low <= 2 * share * each.value for each in found)


def widened(value: float, interval: tuple[float, float], spread: float) -> tuple[float, float]:
    """An interval of 95 %, widened by what it knows nothing of.

    Args:
        value: In the interval; positive, as its ends.
        interval: Low and high end.
        spread: Standard deviation of the logarithm that is added.
    """
    unseen = float(ndtri((1 + LEVEL) / 2)) * spread
    below, above = (math.hypot(math.log(end / value), unseen) for end in interval)
    return value * math.exp(-below), value * math.exp(above)
