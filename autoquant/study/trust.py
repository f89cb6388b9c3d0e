"""How far the models can be trusted: what evaluations said of the predictions that were made for them."""

from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.prior import LatencyPrior
from autoquant.study.layout import Floats, Layout
from autoquant.study.noise import FLOAT_NOISE
from autoquant.study.surrogate import Observations, Prediction, Surrogate

__all__ = ["Trust", "believe"]

_N_RECENT = 60
_MOST_DB = -10 * np.log10(FLOAT_NOISE)
"""Models predict no more: what is beyond it, or equal, is as predicted."""
_N_PRIOR = 10.0
_LIMITS = (0.5, 3.0)
_FARTHEST = 5.0
_REFUTED = 2.0
_N_LEAST = 20
_LARGEST_SHARE = 0.75
_N_FIRST = 10
_GROWTH, _FAST_GROWTH = 1.1, 1.5


@dataclass(slots=True)
class Trust:
    """Compares each evaluation with its prediction, made before the models knew it."""

    _snr: list[float] = field(default_factory=list)
    _ratio: list[float] = field(default_factory=list)
    _is_timed: list[bool] = field(default_factory=list)
    _n_targets: int = 1

    def compare(self, found: Prediction, evaluated: Observations) -> None:
        """Count errors in units of the predicted standard deviations."""
        snr_db = np.minimum(evaluated.snr_db.min(axis=1), _MOST_DB)
        self._snr += _standardised(snr_db - found.snr_db, evaluated.snr_scatter * found.snr_error_db)
        errors = np.sqrt(np.square(found.ratio_errors) + np.square(evaluated.errors))
        differences, timed = evaluated.ratios - found.ratios, evaluated.is_timed
        self._ratio += _standardised(differences[timed].ravel(), errors[timed].ravel())
        self._is_timed += timed.tolist()
        self._n_targets = found.ratios.shape[1]

    @property
    def stretch(self) -> tuple[float, float]:
        """What to multiply the standard deviations of SNR and ratio with, so that they are as large as the errors."""
        return _stretch(self._snr), _stretch(self._ratio, self._n_targets)

    @property
    def generic_share(self) -> float:
        """Share of the proposals that a generic sampler shall make: 0 unless recent errors refute the models."""
        worst = max(_spread(self._snr), _spread(self._ratio, self._n_targets))
        if len(self._snr) < _N_LEAST or worst <= _REFUTED:
            return 0.0
        return min(_LARGEST_SHARE, 0.25 * (worst - 1.0))

    @property
    def n_recent(self) -> int:
        """Evaluations with a latency that count as recent."""
        return min(sum(self._is_timed), _N_RECENT)

    def coverage(self) -> tuple[float, float]:
        """Share of recent SNRs and ratios, where there are both, inside the 90 % interval of their prediction."""
        snr = [is_inside for is_inside, timed in zip(_inside(self._snr), self._is_timed, strict=True) if timed]
        return _share(snr), _share(_inside(self._ratio, self._n_targets), self._n_targets)


def believe(layout: Layout, found: Observations, prior: LatencyPrior | None) -> tuple[Surrogate, Trust]:
    """Models of all evaluations, and how well those of the earlier ones predicted the recent ones.

    They are fitted to growing parts: how wide an interval must be is learned step by step.
    """
    surrogate, trust = Surrogate(layout, found.ratios.shape[1], prior), Trust()
    n, n_before = min(_N_FIRST, len(found)), 0
    while n > n_before:
        if n_before:
            new = found.of(slice(n_before, n))
            trust.compare(surrogate.predict(new.codes), new)
        surrogate.fit(found.of(slice(n)))
        n_before, n = n, min(len(found), max(int(n * _GROWTH) + 1, min(int(n * _FAST_GROWTH), len(found) - _N_RECENT)))
    return surrogate, trust


def _standardised(errors: Floats, deviations: Floats) -> list[float]:
    return [float(error) for error in np.clip(errors / np.maximum(deviations, 1e-9), -_FARTHEST, _FARTHEST)]


def _spread(errors: list[float], n_each: int = 1) -> float:
    """Root mean square of the recent errors, so many of each evaluation; a few that are as expected are added."""
    recent, n_prior = np.array(errors[-_N_RECENT * n_each :]), _N_PRIOR * n_each
    return float(np.sqrt((n_prior + np.square(recent).sum()) / (n_prior + len(recent))))


def _stretch(errors: list[float], n_each: int = 1) -> float:
    return float(np.clip(_spread(errors, n_each), *_LIMITS))


def _inside(errors: list[float], n_each: int = 1) -> list[bool]:
    """Each error is judged by the interval that was stretched by what the errors before it said."""
    return [abs(error) < 1.645 * _stretch(errors[:i], n_each) for i, error in enumerate(errors)]


def _share(inside: list[bool], n_each: int = 1) -> float:
    return float(np.mean(inside[-_N_RECENT * n_each :])) if inside else float("nan")
