"""Whether one front gives what another one gave."""

from autoquant.domain.front import FLOAT_ID, Front, Member
from autoquant.domain.objective import LATENCY, SIZE, SNR

__all__ = ["unmatched"]

_EQUAL_DB = 0.01


def unmatched(before: Front, now: Front) -> list[str]:
    """Ids of members of an earlier front of which none is as good now, in every objective.

    Float is as good as itself alone: the others were better, also those whose intervals reach beyond 1.

    Args:
        before: Measured at another time: a ratio is as good that is not beyond its interval.
        now: Of the same model and targets.
    """
    return [old.id for old in before.members if not any(_is_as_good(new, old, now) for new in now.members)]


def _is_as_good(new: Member, old: Member, front: Front) -> bool:
    may_be = new.id != FLOAT_ID or old.id == FLOAT_ID
    return may_be and all(_keeps(new, old, name) for name in front.objectives)


def _keeps(new: Member, old: Member, objective: str) -> bool:
    if objective == LATENCY:
        names = new.latency.keys() & old.latency.keys()
        return all(new.latency[name].ratio <= old.latency[name].ratio_high for name in names)
    if objective == SIZE:
        return new.size_bytes <= old.size_bytes
    if objective == SNR:
        return new.worst_db >= old.worst_db - _EQUAL_DB
    known = objective in new.metrics and objective in old.metrics
    return not known or new.metrics[objective].drop.all.value <= old.metrics[objective].drop.all.value
