"""What an assignment would add to the front."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from autoquant.study.layout import Floats
from autoquant.study.surrogate import Prediction

__all__ = ["Gain"]

_STEP_DB = 1.0
_HIGHEST_DB = 64.0
_LOWEST_DB = 8.0
_ROOM_DB = 10.0
_LEAST_ERROR = 1e-9
_MISSED_DB = 0.01
"""A decibel too few counts as so much of float's latency too much, where nothing is expected to gain."""


@dataclass(frozen=True, slots=True)
class Gain:
    """Mean latency saving over SNR demands: the hypervolume between the front and float, SNR in decibels.

    Attributes:
        demands_db: Where the front is looked at; shape (D,).
        best: Lowest ratio that meets each demand so far, ``highest`` where none does.
        highest: Ratio of interest: float's 1, or less.
    """

    demands_db: Floats
    best: Floats
    highest: float

    @classmethod
    def of(
        cls, snr_db: Floats, ratios: Floats, *, min_snr_db: float | None = None, max_ratio: float | None = None
    ) -> "Gain":
        """The front of evaluations, shapes (n,), between the demands that are of interest."""
        low = _LOWEST_DB if min_snr_db is None else min_snr_db
        demands = np.arange(low, max(_HIGHEST_DB, low + _ROOM_DB) + _STEP_DB / 2, _STEP_DB)
        highest = 1.0 if max_ratio is None else max_ratio
        return cls(demands, np.full(demands.size, highest), highest).with_points(snr_db, ratios)

    @property
    def saving(self) -> float:
        """Of the front so far, as a mean over the demands."""
        return float(np.mean(self.highest - self.best))

    def with_points(self, snr_db: Floats, ratios: Floats) -> "Gain":
        """The front with these points too, shapes (n,)."""
        met = np.where(snr_db[:, None] >= self.demands_db, ratios[:, None], self.highest)
        return Gain(self.demands_db, np.minimum(self.best, met.min(axis=0, initial=self.highest)), self.highest)

    def of_points(self, snr_db: Floats, ratios: Floats) -> Floats:
        """What each point alone would add to the mean saving; shape (...,)."""
        saved = np.maximum(self.best - ratios[..., None], 0.0)
        return np.asarray((saved * (snr_db[..., None] >= self.demands_db)).mean(axis=-1))

    def missed(self, snr_db: Floats, ratios: Floats) -> Floats:
        """How far points are from what is of interest, as a share of float's latency; shape (n,)."""
        missing_db = np.maximum(self.demands_db[0] - snr_db, 0.0)
        return np.asarray(np.maximum(ratios - self.highest, 0.0) + _MISSED_DB * missing_db)

    def of_members(self, snr_db: Floats, ratios: Floats) -> npt.NDArray[np.int64]:
        """Which of the evaluations, shapes (n,), are the lowest at some demand."""
        if not len(ratios):
            return np.zeros(0, dtype=np.int64)
        met = np.where(snr_db[:, None] >= self.demands_db, ratios[:, None], np.inf)
        return np.unique(met.argmin(axis=0)[met.min(axis=0) <= self.best])

    def expected(self, found: Prediction, weights: Floats, stretch: tuple[float, float]) -> Floats:
        """Mean of that over a prediction's uncertainty, SNR and ratio being independent and normal; shape (n,).

        Args:
            found: Of n assignments.
            weights: Of the targets, with sum 1; shape (T,).
            stretch: What the standard deviations of SNR and of ratios are multiplied with.

        References:
            Jones, Schonlau, Welch, "Efficient Global Optimization of Expensive Black-Box Functions", 1998 (expected
            improvement); Emmerich, Giannakoglou, Naujoks, "Single- and multiobjective evolutionary optimization
            assisted by Gaussian random field metamodels", 2006 (of hypervolume).
        """
        errors = stretch[1] * np.sqrt(np.square(found.ratio_errors) @ np.square(weights))
        errors, snr_errors = (
            np.maximum(each, _LEAST_ERROR)[:, None] for each in (errors, stretch[0] * found.snr_error_db)
        )
        below = (self.best - (found.ratios @ weights)[:, None]) / errors
        saved = errors * (below * ndtr(below) + np.exp(-np.square(below) / 2) / np.sqrt(2 * np.pi))
        chances = ndtr((found.snr_db[:, None] - self.demands_db) / snr_errors)
        return np.asarray((saved * chances).mean(axis=1))
