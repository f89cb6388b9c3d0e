"""What is expected of a latency before candidates are timed."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["LatencyPrior"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPrior:
    """Expected terms of a latency ratio, for R regions and E pairs of touching regions.

    Attributes:
        base: Ratio of the all-float candidate.
        change: When a region runs all its operators, or the linear ones, on integers; shape (R, 2).
        spread: Standard deviation of each; shape (R, 2).
        border: Of a pair of which one region is float and the other is not; shape (E,).
        border_spread: Standard deviation of each; shape (E,).
    """

    base: float
    change: Floats
    spread: Floats
    border: Floats
    border_spread: Floats

    def plain(self) -> Mapping[str, object]:
        """For JSON."""
        return {
            "base": self.base,
            "change": self.change.tolist(),
            "spread": self.spread.tolist(),
            "border": self.border.tolist(),
            "border_spread": self.border_spread.tolist(),
        }
