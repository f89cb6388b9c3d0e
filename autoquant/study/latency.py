"""Latency adds up over regions and over borders between unlike neighbours."""

import itertools

import numpy as np

from autoquant.study.gaussian import Posterior, condition
from autoquant.study.latency_design import LatencyDesign, Rows
from autoquant.study.layout import Floats

__all__ = ["LatencyModel"]

_ERRORS = (0.003, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Standard deviations of a ratio around the model, beside its own error; which one it is, the evaluations say."""
_SCALES = (0.25, 0.5, 1.0, 2.0)
"""Of the prior's spread: powers of two, which leave all digits as they are."""
_FREEDOM = 4.0
"""Degrees of freedom of Student's t: a few ratios were measured while something else ran, and are far off."""


class LatencyModel:
    """Latency ratio on one target.

    Args:
        design: What it is the sum of; targets of which the same is expected share one.
    """

    def __init__(self, design: LatencyDesign) -> None:
        self.design = design
        self._error, self._scale = _ERRORS.index(0.01), _SCALES.index(1.0)
        self._n_seen = self._n_tuned = 0
        self._posterior = condition(np.zeros((0, design.n_weights)), np.zeros(0), np.zeros(0))

    @property
    def error(self) -> float:
        """Standard deviation of a ratio that is measured without error around the model's."""
        return _ERRORS[self._error]

    def fit(self, known: Rows, ratios: Floats, errors: Floats, *, n_new: int) -> None:
        """Condition on observed ratios, shape (n,), with the standard error of each.

        Those that it knew before and was still far from count less.

        Args:
            known: What its design knows: n assignments.
            ratios: Shape (n,).
            errors: Shape (n,).
            n_new: How many of the last ones it did not know before; some of the others may be left out.

        References:
            Lange, Little, Taylor, "Robust statistical modeling using the t distribution", 1989 (one step of its EM).
        """
        observed = ratios - known.means
        believed = known.design * _SCALES[self._scale] @ self._posterior.mean
        self._n_seen += n_new
        if self._n_seen >= 1.1 * self._n_tuned:
            self._tune(known, observed, errors)
            self._n_tuned = self._n_seen
        variances, old = self.error**2 + errors**2, slice(len(ratios) - n_new)
        squares = np.square(observed - believed)[old] / variances[old]
        variances[old] *= np.maximum(1.0, (_FREEDOM + squares) / (_FREEDOM + 1))
        self._posterior = _conditioned(known, observed, variances, _SCALES[self._scale])

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and variance of the ratio that would be observed without error; shapes (m,)."""
        scale = _SCALES[self._scale]
        design = rows.design * scale
        mean = rows.means + design @ self._posterior.mean
        return mean, self._posterior.variance(design, products=rows.products * scale**2) + self.error**2

    def left_out(self, ratios: Floats) -> tuple[Floats, Floats]:
        """Mean and variance, as in ``predict``, of what the other ratios say of each that it was fitted to; (n,)."""
        distances, variances = self._posterior.left_out()
        return ratios - distances, variances + self.error**2

    def coefficients(self) -> Floats:
        """By the mean of the posterior, see ``LatencyDesign.coefficients``; shape (1, 1 + R S + E)."""
        return self.design.coefficients(self._posterior.mean[None] * _SCALES[self._scale])

    def many_coefficients(self, rng: np.random.Generator, n: int) -> Floats:
        """The same of draws, shape (n, 1 + R S + E)."""
        return self.design.coefficients(self._posterior.draws(rng, n) * _SCALES[self._scale])

    def _tune(self, known: Rows, observed: Floats, errors: Floats) -> None:
        """Move the error and the prior's scale one step where that makes the observations more likely."""
        near = itertools.product(_near(self._error, len(_ERRORS)), _near(self._scale, len(_SCALES)))
        evidence = {
            (error, scale): _conditioned(known, observed, _ERRORS[error] ** 2 + errors**2, _SCALES[scale]).log_evidence
            for error, scale in near
        }
        self._error, self._scale = max(evidence, key=lambda pair: evidence[pair])


def _conditioned(known: Rows, observed: Floats, variances: Floats, scale: float) -> Posterior:
    return condition(known.design * scale, observed, variances, gram=known.products * scale**2)


def _near(index: int, n: int) -> range:
    return range(max(0, index - 1), min(n, index + 2))
