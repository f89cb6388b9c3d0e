"""What is expected of a latency before candidates are timed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["LatencyPrior", "Profiled"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPrior:
    """Expected terms of a latency ratio, for R regions and E pairs of touching regions.

    Attributes:
        base: Ratio of the all-float candidate.
        change: When a region runs all its operators, or the linear ones, on integers, and, where there are schemes for
            it, the linear ones with the range of each input; shape (R, 2) or (R, 3).
        spread: Standard deviation of each; shape of ``change``.
        border: Of a pair of which one region carries integers and the other does not; shape (E,).
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

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Self:
        """The inverse of ``plain``.

        Raises:
            ValueError: It is not what ``plain`` gives, or shapes do not fit each other.
        """
        try:
            base = float(plain["base"])
            change, spread, border, border_spread = (
                np.array(plain[name], dtype=np.float64) for name in ("change", "spread", "border", "border_spread")
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no latency prior: {error}") from error
        if not change.size:
            change, spread = change.reshape(0, 2), spread.reshape(0, 2)
        if change.ndim != 2 or change.shape[1] not in (2, 3) or change.shape != spread.shape:
            raise ValueError("this is no latency prior: its regions have other shapes")
        if border.ndim != 1 or border.shape != border_spread.shape:
            raise ValueError("this is no latency prior: its borders have other shapes")
        return cls(base=base, change=change, spread=spread, border=border, border_spread=border_spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """What profiles of a few candidates say.

    Attributes:
        prior: What is expected of latencies.
        outside: What operators of no region take in the all-float candidate, by their type, as shares of the latency of
            the user's model.
    """

    prior: LatencyPrior
    outside: Mapping[str, float]
