"""Intervals whose unit is the session: what one process measures over and over says little of the next one."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import stdtrit

__all__ = ["STOPPED_LEVEL", "SessionInterval", "are_narrow", "session_intervals"]

_PRIOR_SESSIONS = 4.0
"""The spread that all models of a measurement have in common counts as much as so many sessions of one."""
_LEVEL = 0.95
STOPPED_LEVEL = 0.975
"""Who ends as soon as intervals are narrow ends rather where the spread happens to look small: intervals of 95 % then
cover the truth in 92 % of the cases, and those of this level in 95 % or more."""
Key = TypeVar("Key")


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


def session_intervals(medians: Mapping[Key, Sequence[float]], *, level: float = _LEVEL) -> dict[Key, SessionInterval]:
    """Student intervals of the logarithms, with variances moderated towards the one that all keys have in common.

    A bootstrap over three to five sessions covers the truth far less often than it says, and three sessions alone know
    their own spread badly; what was measured together shares it.

    Args:
        medians: Positive medians, one for each session, by what was measured; two sessions at least.
        level: Of the interval of the value.

    References:
        Smyth, "Linear Models and Empirical Bayes Methods for Assessing Differential Expression in Microarray
        Experiments", 2004 (moderated t); Hahn and Meeker, "Statistical Intervals", 1991 (prediction intervals).
    """
    logs = {key: np.log(np.asarray(values, dtype=float)) for key, values in medians.items()}
    variances = [float(np.var(values, ddof=1)) for values in logs.values() if np.ptp(values) > 0]
    shared = float(np.mean(variances)) if variances else 0.0
    prior = _PRIOR_SESSIONS if len(variances) > 1 else 0.0
    found = {}
    for key, values in logs.items():
        n, centre = len(values), float(np.mean(values))
        freedom = prior + n - 1
        variance = (prior * shared + (n - 1) * float(np.var(values, ddof=1))) / freedom if np.ptp(values) > 0 else 0.0
        spread = math.sqrt(variance)
        own = float(stdtrit(freedom, (1 + level) / 2)) * spread / math.sqrt(n)
        following = float(stdtrit(freedom, (1 + _LEVEL) / 2)) * spread * math.sqrt(1 + 1 / n)
        found[key] = SessionInterval(
            *(math.exp(centre + x) for x in (0.0, -own, own, -following, following)),
        )
    return found


def are_narrow(found: Iterable[SessionInterval], share: float) -> bool:
    """Whether half of every interval is at most this share of its value."""
    return all(each.high - each.low <= 2 * share * each.value for each in found)
