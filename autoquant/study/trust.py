"""How far the models can be trusted: what evaluations said of the predictions that were made for them."""

from dataclasses import dataclass, field

import numpy as np

from autoquant.study.layout import Floats
from autoquant.study.surrogate import Observations, Prediction

__all__ = ["Trust"]

_N_RECENT = 60
_N_PRIOR = 10.0
_LIMITS = (0.5, 3.0)
_FARTHEST = 5.0
_REFUTED = 2.0
_N_LEAST = 20
_LARGEST_SHARE = 0.75


@dataclass(slots=True)
class Trust:
    """Compares each evaluation with its prediction, made before the models knew it."""

    _snr: list[float] = field(default_factory=list)
    _ratio: list[float] = field(default_factory=list)

    def compare(self, found: Prediction, evaluated: Observations) -> None:
        """Count errors in units of the predicted standard deviations."""
        snr_db = evaluated.snr_db.min(axis=1)
        self._snr += _standardised(snr_db - found.snr_db, found.snr_error_db)
        errors = np.sqrt(np.square(found.ratio_errors[:, 0]) + np.square(evaluated.errors))
        differences, timed = evaluated.ratios[:, 0] - found.ratios[:, 0], evaluated.is_timed
        self._ratio += _standardised(differences[timed], errors[timed])

    @property
    def stretch(self) -> tuple[float, float]:
        """What to multiply the standard deviations of SNR and ratio with, so that they are as large as the errors."""
        return _stretch(self._snr), _stretch(self._ratio)

    @property
    def generic_share(self) -> float:
        """Share of the proposals that a generic sampler shall make: 0 unless recent errors refute the models."""
        worst = max(_spread(self._snr), _spread(self._ratio))
        if len(self._snr) < _N_LEAST or worst <= _REFUTED:
            return 0.0
        return min(_LARGEST_SHARE, 0.25 * (worst - 1.0))

    @property
    def n_recent(self) -> int:
        """Evaluations with a latency that count as recent."""
        return min(len(self._ratio), _N_RECENT)

    def coverage(self) -> tuple[float, float]:
        """Share of recent SNRs and ratios inside the 90 % interval of their prediction."""
        return _coverage(self._snr), _coverage(self._ratio)


def _standardised(errors: Floats, deviations: Floats) -> list[float]:
    return [float(error) for error in np.clip(errors / np.maximum(deviations, 1e-9), -_FARTHEST, _FARTHEST)]


def _spread(errors: list[float]) -> float:
    """Root mean square of the recent errors; a few that are as expected are added."""
    recent = np.array(errors[-_N_RECENT:])
    return float(np.sqrt((_N_PRIOR + np.square(recent).sum()) / (_N_PRIOR + len(recent))))


def _stretch(errors: list[float]) -> float:
    return float(np.clip(_spread(errors), *_LIMITS))


def _coverage(errors: list[float]) -> float:
    """Each error is judged by the interval that was stretched by what the errors before it said."""
    inside = [abs(error) < 1.645 * _stretch(errors[:i]) for i, error in enumerate(errors)][-_N_RECENT:]
    return float(np.mean(inside)) if inside else float("nan")
