"""The price of a decibel along the front."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from autoquant.domain.front import Front

__all__ = ["DecibelPrice", "decibel_prices"]


@dataclass(frozen=True, slots=True)
class DecibelPrice:
    """What each decibel costs from one member to a more accurate one.

    Attributes:
        us_per_db: Latency on the first target.
        faster_id: Of the member that it is counted from.
    """

    us_per_db: float
    faster_id: str


def decibel_prices(front: Front) -> Mapping[str, DecibelPrice]:
    """Prices between neighbours in the order of the ratio on the first target, by the id of the slower one.

    Latencies are ratios times that of the float model. There is no price from a member to one that is not more
    accurate, nor to equal outputs, which are infinitely many decibels away: so none to the float model.
    """
    target = front.targets[0].name
    float_us = 1e3 * front.members[-1].latency[target].median_ms
    ordered = sorted(front.members, key=lambda member: member.latency[target].ratio)
    prices = {}
    for faster, slower in pairwise(ordered):
        gained_db = slower.worst_db - faster.worst_db
        if math.isfinite(gained_db) and gained_db > 0:
            paid_us = float_us * (slower.latency[target].ratio - faster.latency[target].ratio)
            prices[slower.id] = DecibelPrice(paid_us / gained_db, faster.id)
    return prices
