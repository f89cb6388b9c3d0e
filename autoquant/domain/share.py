"""95 % intervals of what samples say."""

import math

__all__ = ["FEWEST_RESAMPLED", "Z_95", "tail_of_few", "wilson_interval"]

Z_95 = 1.959963984540054
"""The normal quantile of a two-sided interval of 95 %."""
FEWEST_RESAMPLED = 6
"""Resamples of fewer samples cover the truth in less than 95 % of the cases: of 5 in 1 - 2 / 2 ** 5 at most."""


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


def tail_of_few(n: int) -> float:
    """Share of the resamples of ``n`` samples that lie beyond each end of an interval of 95 %.

    Of few samples plain percentiles are too narrow: these are as much wider as Student's t is.

    References:
        Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 5.3; Hesterberg, "What Teachers
        Should Know About the Bootstrap", The American Statistician 69(4), 2015: expanded percentiles.
    """
    from scipy.special import ndtr, stdtrit  # noqa: PLC0415 - takes long, and processes that compare outputs need none

    return float(ndtr(stdtrit(n - 1, 0.025) * math.sqrt(n / (n - 1))))
