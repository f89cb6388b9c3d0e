"""95 % interval of a share of samples."""

import math

__all__ = ["Z_95", "wilson_interval"]

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""


def wilson_interval(share: float, n: int) -> tuple[float, float]:
    """Of the share of ``n`` samples that are right; not a point even where all of them are.

    >>> [round(end, 3) for end in wilson_interval(1.0, 16)]
    [0.806, 1.0]

    References:
        Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", JASA 22(158), 1927.
    """
    centre = (share + Z_95**2 / (2 * n)) / (1 + Z_95**2 / n)
    half = Z_95 / (1 + Z_95**2 / n) * math.sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)
