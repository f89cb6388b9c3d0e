"""Noise power adds up over regions."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.study.gaussian import Posterior, condition
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.likeness import Likeness

__all__ = ["FLOAT_NOISE", "NoiseModel"]

FLOAT_NOISE = 1e-12
"""Relative noise power of an all-float model, 120 dB."""
_COMMON, _REGION, _KIND, _SCHEME, _REST = 9.0, 4.0, 0.5, 0.6, 1.0
"""Prior variances of the log of a region's noise power under a scheme, by what they are shared with."""
_ERRORS = (0.1, 0.15, 0.25, 0.4, 0.65, 1.0, 1.5)
"""Standard deviations of the log of the sum; which one it is, the evaluations say."""
_SHARES = (0.0, 0.3, 0.6, 0.85)
"""Of the variance of what is a region's own, so much is shared by its pattern; which one it is, the evaluations say."""
_QUICK_VARIANCE = 3.0
"""A trial that was stopped early ran a few samples only: its variance counts so many times."""
_N_FIRST_STEPS = 8
_LONGEST_STEP = 2.0


class NoiseModel:
    """Log noise power of each region under each scheme, for one output.

    The prior is a level, a region effect, one for its kind of operators, a scheme effect and a rest, so that one probe
    of a region tells much about its other schemes, and a few about regions that were not probed. The log of the sum
    over regions is fitted by Gauss-Newton.

    Corrections for neighbours, and effects that repeated blocks share, were tried on recorded searches of seven models
    and predicted no better (decision 0014).
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        self._prior: Floats = np.log(1e-3 * (0.2 / n_regions + layout.work))
        self._sizes = (1, n_regions, 3 * n_regions, n_schemes, n_regions * n_schemes)
        self._likeness = Likeness(layout.patterns)
        self._error, self._share = _ERRORS.index(0.4), _SHARES.index(0.6)
        self._n_tuned = 0
        self._posterior = condition(np.zeros((0, sum(self._sizes))), np.zeros(0), np.zeros(0))

    @property
    def error(self) -> float:
        """Standard deviation of the log of an observed noise power around the model's."""
        return _ERRORS[self._error]

    def fit(self, codes: Codes, noise: Floats, is_quick: npt.NDArray[np.bool_]) -> None:
        """Condition on observed relative noise powers.

        Args:
            codes: Scheme numbers, shape (n, R).
            noise: Relative noise power, shape (n,).
            is_quick: Whether each observation comes from a trial that was stopped early, shape (n,).
        """
        target = np.log(np.maximum(noise, FLOAT_NOISE))
        factors = np.where(is_quick, _QUICK_VARIANCE, 1.0)
        for _ in range(1 if len(self._posterior.observed) else _N_FIRST_STEPS):
            self._step(codes, target, factors)
        if len(codes) >= 1.1 * self._n_tuned:
            self._tune(factors)
            self._n_tuned = len(codes)

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and variance of the log noise power that would be observed; shapes (n,)."""
        log_total, design = self._linearised(codes, self._posterior.mean)
        return log_total, self._posterior.variance(design) + self.error**2

    def table(self, rng: np.random.Generator, scale: float) -> Floats:
        """Noise powers of one draw, shape (R, S); 0 for float. ``scale`` 0 gives the mean."""
        return self._table(self._posterior.draw(rng, scale))

    def tables(self, rng: np.random.Generator, n: int) -> Floats:
        """The same of many draws, shape (n, R, S)."""
        return np.stack([self._table(weights) for weights in self._posterior.draws(rng, n)])

    def _table(self, weights: Floats) -> Floats:
        n_regions, n_schemes = self._layout.allowed.shape
        every = np.broadcast_to(np.arange(n_schemes)[:, None], (n_schemes, n_regions))
        power = np.exp(np.clip(self._log_power(every, weights), -60, 20)).T
        power[:, 0] = 0.0
        return np.asarray(power)

    def _step(self, codes: Codes, target: Floats, factors: Floats) -> None:
        before = self._posterior.mean
        log_total, design = self._linearised(codes, before)
        found = condition(design, target - log_total + design @ before, factors * self.error**2)
        self._posterior = _shortened(found, before)

    def _tune(self, factors: Floats) -> None:
        """Move the error one step where that makes the observations more likely."""
        posterior = self._posterior
        near = [i for i in (self._error - 1, self._error + 1) if 0 <= i < len(_ERRORS)]
        found = {i: condition(posterior.design, posterior.observed, factors * _ERRORS[i] ** 2) for i in near}
        found[self._error] = posterior
        self._error = max(found, key=lambda i: found[i].log_evidence)
        if self._likeness.has_repeated:
            self._tune_share(factors * self.error**2, found[self._error])

    def _tune_share(self, variances: Floats, posterior: Posterior) -> None:
        near = [i for i in (self._share - 1, self._share + 1) if 0 <= i < len(_SHARES)]
        found = {i: condition(self._reshared(posterior.design, i, self._share), posterior.observed, variances) for i in near}
        found[self._share] = posterior
        share = max(found, key=lambda i: found[i].log_evidence)
        if share != self._share:
            before = self._reshared(posterior.mean[None], self._share, share)[0]
            self._share, self._posterior = share, _shortened(found[share], before)

    def _reshared(self, values: Floats, share: int, before: int) -> Floats:
        """Designs or weights that were mixed with one share mixed with another; shape (n, U)."""
        common, *own, scheme, rest = self._split(values)
        region, kind, rest = (
            self._likeness.mixed(part, _SHARES[share], _SHARES[before]).reshape(len(values), -1)
            for part in (*own, rest)
        )
        return np.concatenate([common, region, kind, scheme, rest], axis=1)

    def _split(self, weights: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """By effect, of weights or designs of shape (..., U): those of regions with shape (..., R, K)."""
        common, region, kind, scheme, rest = np.split(weights, np.cumsum(self._sizes)[:-1], axis=-1)
        region, kind, rest = (part.reshape(*part.shape[:-1], self._sizes[1], -1) for part in (region, kind, rest))
        return common, region, kind, scheme, rest

    def _linearised(self, codes: Codes, weights: Floats) -> tuple[Floats, Floats]:
        """Log of the sum over regions, shape (n,), and its derivative by the weights, shape (n, U)."""
        power = np.exp(np.clip(self._log_power(codes, weights), -60, 20)) * (codes != 0)
        total = power.sum(axis=1) + FLOAT_NOISE
        return np.log(total), self._derivative(codes, power / total[:, None])

    def _log_power(self, codes: Codes, weights: Floats) -> Floats:
        """Of each region under its scheme, shape (n, R)."""
        common, *own, scheme, rest = self._split(weights)
        region, kind, rest = (self._likeness.mixed(part, _SHARES[self._share]) for part in (*own, rest))
        rows = np.arange(codes.shape[1])
        return np.asarray(
            self._prior
            + np.sqrt(_COMMON) * common
            + np.sqrt(_REGION) * region[:, 0]
            + np.sqrt(_KIND) * kind[rows, self._layout.kinds[codes]]
            + np.sqrt(_SCHEME) * scheme[codes]
            + np.sqrt(_REST) * rest[rows, codes]
        )

    def _derivative(self, codes: Codes, shares: Floats) -> Floats:
        n, n_regions = codes.shape
        rows, n_schemes = np.arange(n_regions), self._layout.allowed.shape[1]
        kind, rest = np.zeros((n, 3 * n_regions)), np.zeros((n, n_regions * n_schemes))
        np.put_along_axis(kind, 3 * rows + self._layout.kinds[codes], shares, axis=1)
        np.put_along_axis(rest, n_schemes * rows + codes, shares, axis=1)
        scheme = rest.reshape(n, n_regions, n_schemes).sum(axis=1)
        own = [part.reshape(n, n_regions, -1) for part in (shares, kind, rest)]
        region, kind, rest = (self._likeness.mixed(part, _SHARES[self._share]).reshape(n, -1) for part in own)
        parts = [
            np.sqrt(_COMMON) * shares.sum(axis=1, keepdims=True),
            np.sqrt(_REGION) * region,
            np.sqrt(_KIND) * kind,
            np.sqrt(_SCHEME) * scheme,
            np.sqrt(_REST) * rest,
        ]
        return np.concatenate(parts, axis=1)


def _shortened(found: Posterior, before: Floats) -> Posterior:
    """With a mean that is not too far from the one before."""
    mean = before + np.clip(found.mean - before, -_LONGEST_STEP, _LONGEST_STEP)
    return replace(found, mean=mean)
