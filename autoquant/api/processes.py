"""How far processes differ in a run, and what that leaves open of trials, each of which ran in one."""

import math
from collections.abc import Sequence
from dataclasses import replace

from scipy.special import stdtrit

from autoquant.domain.front import FLOAT_ID, Front
from autoquant.domain.measurement import Evaluation, Latency, Measurement
from autoquant.measurement.differences import UNSEEN_SPREAD
from autoquant.measurement.intervals import LEVEL, PRIOR_SESSIONS, widened

__all__ = ["process_errors", "seen_by_others"]


def seen_by_others(evaluations: Sequence[Evaluation], front: Front) -> list[Evaluation]:
    """The same, where intervals of ratios say where 95 % of further processes have theirs, as those of members do.

    A trial knows what a repetition in its own process would give. Both that process and the other one have luck of
    their own, as large as members of the front say (decision 0084).
    """
    names = [target.name for target in front.targets]
    errors = dict(zip(names, process_errors(front, names), strict=True))
    return [_seen_by_others(evaluation, errors) for evaluation in evaluations]


def _seen_by_others(evaluation: Evaluation, errors: dict[str, float]) -> Evaluation:
    outcome = evaluation.outcome
    if not isinstance(outcome, Measurement):
        return evaluation
    latency = {name: _widened(found, errors[name]) for name, found in outcome.latency.items()}
    return replace(evaluation, outcome=replace(outcome, latency=latency))


def _widened(latency: Latency, error: float) -> Latency:
    low, high = widened(latency.ratio, (latency.ratio_low, latency.ratio_high), math.sqrt(2) * error)
    return replace(latency, ratio_low=low, ratio_high=high)


def process_errors(front: Front | None, targets: Sequence[str]) -> list[float]:
    """Standard deviations of a ratio's logarithm between processes, by target, as the members of a front say them.

    Where there are none, or none was measured in several processes, an idle machine's is assumed. Intervals of members
    are Student's, of a further process and with a variance that members share: what they say is undone with as many
    degrees of freedom as they have at most.
    """
    members = () if front is None else [member for member in front.members if member.id != FLOAT_ID]
    return [_process_error([m.latency[name] for m in members if name in m.latency]) for name in targets]


def _process_error(known: Sequence[Latency]) -> float:
    several = [each for each in known if each.n_sessions > 1]
    squares = [_spread(each, len(several)) ** 2 for each in several]
    return math.sqrt(sum(squares) / len(squares)) if squares else UNSEEN_SPREAD


def _spread(latency: Latency, n_members: int) -> float:
    n = latency.n_sessions
    freedom = n - 1 + min(PRIOR_SESSIONS, (n_members - 1) * (n - 1))
    half_width = math.log(latency.ratio_high / latency.ratio_low) / 2
    return float(half_width / (stdtrit(freedom, (1 + LEVEL) / 2) * math.sqrt(1 + 1 / n)))
