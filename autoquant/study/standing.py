"""Where a study stands: which evaluations make up the front, and what is gained beyond them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.study.gain import Gain
from autoquant.study.layout import Floats
from autoquant.study.steering import Steering
from autoquant.study.surrogate import Observations

__all__ = ["Interest", "Standing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interest:
    """What is of interest.

    Attributes:
        min_snr_db: Lowest SNR.
        max_ratio: Highest latency ratio, on every target.
        max_size_bytes: Largest file.
        has_size: Whether smaller files count as much as a lower ratio.
    """

    min_snr_db: float | None = None
    max_ratio: float | None = None
    max_size_bytes: int | None = None
    has_size: bool = False

    @property
    def modelled(self) -> frozenset[str]:
        """Names of the constraints that say the same of a trial."""
        said = {"snr_db": self.min_snr_db, "latency_ratio": self.max_ratio, "size_bytes": self.max_size_bytes}
        return frozenset(name for name, bound in said.items() if bound is not None)

    def is_fast(self, ratios: Floats) -> npt.NDArray[np.bool_]:
        """Whether no ratio is above the highest, shape (n,) for (n, T)."""
        return np.asarray(~(ratios > (np.inf if self.max_ratio is None else self.max_ratio)).any(axis=1))


ALL_OF_INTEREST = Interest()
"""Any SNR and ratio; sizes do not count."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The front of the evaluations so far.

    Attributes:
        found: The evaluations.
        steering: What was learned of them beside SNR and latency.
        interest: What counts.
    """

    found: Observations
    steering: Steering
    interest: Interest

    @property
    def n_targets(self) -> int:
        """Number of latency ratios."""
        return int(self.found.ratios.shape[1])

    @property
    def n_weights(self) -> int:
        """One of each target, and the last one of the size, where it is an objective."""
        return self.n_targets + self.steering.has_size

    @property
    def kept(self) -> npt.NDArray[np.bool_]:
        """Which evaluations were measured to the end, keep every demand but that on SNR, and the ratio everywhere."""
        found = self.found
        return self.steering.keeps & found.is_timed & ~found.is_quick & self.interest.is_fast(found.ratios)

    def gain(self, weights: Floats, chosen: npt.NDArray[np.bool_] | bool = True) -> Gain:
        """The front of the chosen evaluations that keep all demands and were not stopped early.

        Args:
            weights: Of targets and size, with sum 1; shape (T,) or (T + 1,).
            chosen: Shape (n,).
        """
        kept = chosen & self.kept
        snr_db, costs = self.found.snr_db.min(axis=1)[kept], self._costs(weights)[kept]
        latency_share, max_ratio = weights[: self.n_targets].sum(), self.interest.max_ratio
        highest = None if max_ratio is None else 1 - latency_share * (1 - max_ratio)
        return Gain.of(snr_db, costs, min_snr_db=self.steering.min_snr_db(self.interest.min_snr_db), max_ratio=highest)

    def gain_of(self, i: int, weights: Floats, before: Gain) -> float:
        """What an evaluation brought beyond those before it; 0 where it does not count."""
        if not self.kept[i]:
            return 0.0
        return float(before.of_points(self.found.snr_db.min(axis=1)[i], self._costs(weights)[i]))

    def members(self, gain: Gain, weights: Floats) -> npt.NDArray[np.int64]:
        """Which evaluations make up the front.

        Args:
            gain: Of all of them, with these weights.
            weights: Of targets and size.
        """
        kept = np.flatnonzero(self.kept)
        return np.asarray(kept[gain.of_members(self.found.snr_db.min(axis=1)[kept], self._costs(weights)[kept])])

    def _costs(self, weights: Floats) -> Floats:
        return np.asarray(self.steering.costs(self.found.ratios) @ weights)
