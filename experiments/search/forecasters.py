"""What predicts evaluations from earlier ones: the models of the sampler, and plain ones to compare them with."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.optimize import nnls

from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.surrogate import Observations, Prediction, Surrogate

__all__ = ["Forecaster", "LeastSquares", "PriorOnly"]

_FIRST_ERROR_DB, _FIRST_ERROR = 10.0, 0.1
_N_FIRST = 5.0
"""Errors of that size count as much as so many later ones."""
_LEAST_NOISE = 1e-12


class Forecaster(Protocol):
    """Learns from evaluations, and predicts further ones with standard deviations."""

    def fit(self, found: Observations) -> None:
        """Learn, from more evaluations each time."""

    def predict(self, codes: Codes) -> Prediction:
        """What evaluations of these would say; shape (n, R)."""


@dataclass(frozen=True, slots=True)
class PriorOnly:
    """Never learns."""

    surrogate: Surrogate

    def fit(self, found: Observations) -> None:
        """Nothing."""

    def predict(self, codes: Codes) -> Prediction:
        """As before the first evaluation."""
        return self.surrogate.predict(codes)


@dataclass(slots=True)
class LeastSquares:
    """Linear least squares without priors.

    Relative noise power of the worst output adds up over regions by scheme, with coefficients of at least 0 and errors
    in proportion to the noise; what it knows nothing of is as quiet as the quietest so far. The latency ratio adds up
    over regions by kind and borders, with the smallest coefficients where there are several solutions. Standard
    deviations are those of its own earlier predictions.
    """

    layout: Layout
    _noise: Floats = field(init=False)
    _least: float = field(init=False)
    _terms: Floats = field(init=False)
    _squares: list[tuple[float, float]] = field(default_factory=list)
    _n_fitted: int = 0

    def fit(self, found: Observations) -> None:
        """Solve both anew."""
        if self._n_fitted:
            new = found.of(slice(self._n_fitted, None))
            predicted = self.predict(new.codes)
            snr, ratio = new.snr_db.min(axis=1) - predicted.snr_db, new.ratios[:, 0] - predicted.ratios[:, 0]
            self._squares += zip(np.square(snr[new.is_timed]), np.square(ratio[new.is_timed]), strict=True)
        self._n_fitted = len(found)
        noise = np.maximum(10 ** (-found.snr_db.min(axis=1) / 10), _LEAST_NOISE)
        self._least = float(np.min(noise[noise > _LEAST_NOISE], initial=1.0))
        self._noise, _ = nnls(self._schemes(found.codes) / noise[:, None], np.ones(len(found)))
        timed = found.of(np.flatnonzero(found.is_timed))
        terms = np.linalg.lstsq(self._kinds(timed.codes), timed.ratios[:, 0] - 1.0, rcond=None)[0]
        self._terms = terms.astype(np.float64)

    def predict(self, codes: Codes) -> Prediction:
        """What it holds most likely, with errors as large as they were."""
        first = np.square((_FIRST_ERROR_DB, _FIRST_ERROR))
        sums = _N_FIRST * first + np.sum(self._squares, axis=0) if self._squares else _N_FIRST * first
        snr_error, ratio_error = np.sqrt(sums / (_N_FIRST + len(self._squares)))
        noise = np.maximum(self._schemes(codes) @ self._noise, np.where(codes.any(axis=1), self._least, _LEAST_NOISE))
        return Prediction(
            snr_db=-10 * np.log10(noise),
            snr_error_db=np.full(len(codes), snr_error),
            ratios=(1.0 + self._kinds(codes) @ self._terms)[:, None],
            ratio_errors=np.full((len(codes), 1), ratio_error),
        )

    def _schemes(self, codes: Codes) -> Floats:
        """One column for each region and scheme but float, and one for what is always there."""
        every = np.arange(1, len(self.layout.schemes))
        columns = (codes[:, :, None] == every).reshape(len(codes), -1)
        return np.concatenate([columns, np.full((len(codes), 1), _LEAST_NOISE)], axis=1).astype(float)

    def _kinds(self, codes: Codes) -> Floats:
        kinds = self.layout.kinds[codes]
        by_kind = [kinds == kind for kind in range(1, self.layout.n_kinds + 1)]
        terms = [np.ones((len(codes), 1)), *by_kind, self.layout.unlike(codes)]
        return np.concatenate(terms, axis=1).astype(float)
