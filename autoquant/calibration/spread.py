"""Some samples that stand for all: data are often sorted, e.g. by class, or repeat."""

import math

from autoquant.calibration.batches import select
from autoquant.domain.feed import Samples

__all__ = ["spread", "spread_order"]

_GOLDEN = (math.sqrt(5) - 1) / 2


def spread_order(n: int) -> list[int]:
    """The numbers below ``n`` in an order of which every beginning is spread evenly, in step with no period.

    References:
        Weyl, "Über die Gleichverteilung von Zahlen mod. Eins", Mathematische Annalen 77, 1916: multiples of an
        irrational number.
    """
    return sorted(range(n), key=lambda number: number * _GOLDEN % 1)


def spread(samples: Samples, n: int, part: str) -> Samples:
    """So many of the samples if there are more, evenly spread and in their order; messages call them ``part``."""
    return select(samples, sorted(spread_order(len(samples))[:n]), part)
