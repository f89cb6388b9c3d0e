"""Bayesian linear models with few observations and many weights."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dtrtri

from autoquant.study.layout import Floats

__all__ = ["Posterior", "condition"]


@dataclass(frozen=True, slots=True)
class Posterior:
    """Standard normal weights, conditioned on linear observations of them.

    The work is in the observations (n) rather than in the weights (U), of which there are many more.

    Attributes:
        design: What was observed of the weights; shape (n, U).
        variances: Of the observations; shape (n,).
        root: Lower Cholesky factor of the observations' covariance; shape (n, n).
        observed: Shape (n,).
        solved: The inverse of that covariance times what was observed; shape (n,).
        mean: Of the weights, or what is taken for it; shape (U,).
        log_evidence: Log density of the observations, without its constant.
    """

    design: Floats
    variances: Floats
    root: Floats
    observed: Floats
    solved: Floats
    mean: Floats
    log_evidence: float

    def variance(self, design: Floats, *, products: Floats | None = None) -> Floats:
        """Variance of further linear functions of the weights; (m,) for (m, U).

        Args:
            design: Of these.
            products: ``design @ self.design.T``, shape (m, n), which is overwritten; None where it is not known.
        """
        shared = (design @ self.design.T if products is None else products).T  # in LAPACK's order, to be no copy
        explained = solve_triangular(self.root, shared, lower=True, overwrite_b=True, check_finite=False)
        return np.asarray(np.maximum(_squares(design, "nu,nu->n") - _squares(explained, "nm,nm->m"), 0.0))

    def left_out(self) -> tuple[Floats, Floats]:
        """How far each observation is from what the others say, and the variance of that without its own noise; (n,).

        References:
            Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, equation 5.12.
        """
        inverse, _ = dtrtri(self.root, lower=1)
        variances = 1 / np.square(inverse).sum(axis=0)
        return variances * self.solved, np.maximum(variances - self.variances, 0.0)

    def draws(self, rng: np.random.Generator, n: int) -> Floats:
        """Weights of independent draws around the mean, shape (n, U).

        References:
            Journel and Huijbregts, "Mining Geostatistics", 1978 (conditioning by kriging, Matheron's rule).
        """
        prior = rng.standard_normal((n, self.mean.size))
        seen = prior @ self.design.T + np.sqrt(self.variances) * rng.standard_normal((n, len(self.observed)))
        explained = cho_solve((self.root, True), seen.T, check_finite=False).T @ self.design
        return np.asarray(self.mean + prior - explained)


def condition(design: Floats, observed: Floats, variances: Floats, *, gram: Floats | None = None) -> Posterior:
    """Condition standard normal weights.

    Args:
        design: Shape (n, U), n may be 0.
        observed: ``design @ weights`` plus noise; shape (n,).
        variances: Of that noise; shape (n,).
        gram: ``design @ design.T``, shape (n, n), which is overwritten; None where it is not known.
    """
    if not len(observed):
        empty = np.zeros((0, 0))
        return Posterior(design, variances, empty, observed, observed, np.zeros(design.shape[1]), -math.inf)
    covariance = design @ design.T if gram is None else gram
    covariance[np.diag_indices(len(observed))] += variances
    root = cholesky(covariance.T, lower=True, overwrite_a=True, check_finite=False)
    solved = cho_solve((root, True), observed, check_finite=False)
    log_evidence = -0.5 * float(observed @ solved) - float(np.log(np.diag(root)).sum())
    return Posterior(design, variances, root, observed, solved, design.T @ solved, log_evidence)


def _squares(values: Floats, axes: str) -> Floats:
    """Sums of squares, without the array of these."""
    return np.asarray(np.einsum(axes, values, values))
