"""Noise power adds up over regions."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.study.gaussian import Posterior, condition
from autoquant.study.layout import Codes, Floats, Layout
from autoquant.study.likeness import Likeness, alike_neighbours, alike_patterns

__all__ = ["FLOAT_NOISE", "NoiseModel"]

FLOAT_NOISE = 1e-12
"""Relative noise power of an all-float model, 120 dB."""
_COMMON, _REGION, _KIND, _SCHEME, _REST = 9.0, 4.0, 0.5, 0.6, 1.0
"""Prior variances of the log of a region's noise power under a scheme, by what they are shared with."""
_LEVEL = 1e-3
"""Of the noise that a model is expected to have."""
_LEAST_OWN_ERROR = 1e-8
"""Smaller errors of what a region quantizes are no better."""
_ERRORS = (0.1, 0.15, 0.25, 0.4, 0.65, 1.0, 1.5)
"""Standard deviations of the log of the sum; which one it is, the evaluations say."""
_SHARES = (0.0, 0.3, 0.6, 0.9)
"""Of the variance of region effects, so much is shared with those that are alike; how much, the evaluations say."""
QUICK_VARIANCE = 3.0
"""A trial that was stopped early ran a few samples only: its variance counts so many times."""
_N_FIRST_STEPS = 8
_LONGEST_STEP = 2.0


class NoiseModel:
    """Log noise power of each region under each scheme, for one output.

    The prior expects what a region's share of the arithmetic says and, where they are known, the errors of what it
    quantizes (decision 0033). Around that there are a level, a region effect, one for its kind of operators, a scheme
    effect and a rest, so that one probe of a region tells much about its other schemes, and a few about regions that
    were not probed. The log of the sum over regions is fitted by Gauss-Newton. Region effects are correlated: two
    thirds of what they share by pattern, one third between neighbours (decision 0021).

    Corrections for neighbours that are quantized too were tried on recorded searches of seven models and predicted no
    better (decision 0014).
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        self._prior = _expected(layout)
        self._n_kinds = 1 + layout.n_kinds
        self._sizes = (1, n_regions, self._n_kinds * n_regions, n_schemes, n_regions * n_schemes)
        self._likeness = Likeness((2 * alike_patterns(layout.patterns) + alike_neighbours(n_regions)) / 3)
        self._error, self._share = _ERRORS.index(0.4), _SHARES.index(0.6)
        self._root = self._likeness.root(_SHARES[self._share])
        self._n_seen = self._n_tuned = 0
        self._posterior = condition(np.zeros((0, sum(self._sizes))), np.zeros(0), np.zeros(0))

    @property
    def error(self) -> float:
        """Standard deviation of the log of an observed noise power around the model's."""
        return _ERRORS[self._error]

    def fit(self, codes: Codes, noise: Floats, is_quick: npt.NDArray[np.bool_], *, n_new: int) -> None:
        """Condition on observed relative noise powers.

        Args:
            codes: Scheme numbers, shape (n, R).
            noise: Relative noise power, shape (n,).
            is_quick: Whether each observation comes from a trial that was stopped early, shape (n,).
            n_new: How many it did not know before; some of the others may be left out.
        """
        n_before = len(self._posterior.observed)
        self._n_seen += n_new if n_before else len(codes)
        target = np.log(np.maximum(noise, FLOAT_NOISE))
        factors = np.where(is_quick, QUICK_VARIANCE, 1.0)
        for _ in range(1 if n_before else _N_FIRST_STEPS):
            self._step(codes, target, factors)
        if self._n_seen >= 1.1 * self._n_tuned:
            self._tune(factors)
            self._n_tuned = self._n_seen

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and variance of the log noise power that would be observed; shapes (n,)."""
        log_total, design = self.linearised(codes)
        return log_total, self.variance(design)

    def linearised(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean of the log noise power, shape (n,), and its derivative by the weights, shape (n, U)."""
        return self._linearised(codes, self._posterior.mean)

    def variance(self, design: Floats) -> Floats:
        """Of the log noise power that would be observed where it has these derivatives; shape (n,)."""
        return self._posterior.variance(design) + self.error**2

    def table(self) -> Floats:
        """Noise powers by the mean of the posterior, shape (R, S); 0 for float."""
        return self._table(self._posterior.mean)

    def tables(self, rng: np.random.Generator, n: int) -> Floats:
        """The same of draws, shape (n, R, S)."""
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
        """Move the error one step where that makes the observations more likely, and then the share."""
        posterior = self._posterior
        near = [i for i in (self._error - 1, self._error + 1) if 0 <= i < len(_ERRORS)]
        found = {i: condition(posterior.design, posterior.observed, factors * _ERRORS[i] ** 2) for i in near}
        found[self._error] = posterior
        self._error = max(found, key=lambda i: found[i].log_evidence)
        self._tune_share(found[self._error])

    def _tune_share(self, posterior: Posterior) -> None:
        found = {self._share: posterior}
        for share in (self._share - 1, self._share + 1):
            if 0 <= share < len(_SHARES):
                design = self._reshared(posterior.design, self._share, share)
                found[share] = condition(design, posterior.observed, posterior.variances)
        share = max(found, key=lambda i: found[i].log_evidence)
        if share != self._share:
            before = self._reshared(self._posterior.mean[None], share, self._share)[0]
            self._share, self._root = share, self._likeness.root(_SHARES[share])
            self._posterior = _shortened(found[share], before)

    def _reshared(self, values: Floats, before: int, share: int) -> Floats:
        """The same with the region effects multiplied by the root of another share; shape (n, U)."""
        root, found = self._likeness.root(_SHARES[share], _SHARES[before]), values.copy()
        found[:, 1 : 1 + len(root)] = values[:, 1 : 1 + len(root)] @ root
        return found

    def _linearised(self, codes: Codes, weights: Floats) -> tuple[Floats, Floats]:
        """Log of the sum over regions, shape (n,), and its derivative by the weights, shape (n, U)."""
        power = np.exp(np.clip(self._log_power(codes, weights), -60, 20)) * (codes != 0)
        total = power.sum(axis=1) + FLOAT_NOISE
        return np.log(total), self._derivative(codes, power / total[:, None])

    def _log_power(self, codes: Codes, weights: Floats) -> Floats:
        """Of each region under its scheme, shape (n, R)."""
        common, region, kind, scheme, rest = np.split(weights, np.cumsum(self._sizes)[:-1])
        rows = np.arange(codes.shape[1])
        return np.asarray(
            self._prior[rows, codes]
            + np.sqrt(_COMMON) * common
            + np.sqrt(_REGION) * (self._root @ region)
            + np.sqrt(_KIND) * kind.reshape(-1, self._n_kinds)[rows, self._layout.kinds[codes]]
            + np.sqrt(_SCHEME) * scheme[codes]
            + np.sqrt(_REST) * rest.reshape(len(rows), -1)[rows, codes]
        )

    def _derivative(self, codes: Codes, shares: Floats) -> Floats:
        n, n_regions = codes.shape
        rows, n_schemes = np.arange(n_regions), self._layout.allowed.shape[1]
        kind, rest = np.zeros((n, self._n_kinds * n_regions)), np.zeros((n, n_regions * n_schemes))
        np.put_along_axis(kind, self._n_kinds * rows + self._layout.kinds[codes], shares, axis=1)
        np.put_along_axis(rest, n_schemes * rows + codes, shares, axis=1)
        scheme = rest.reshape(n, n_regions, n_schemes).sum(axis=1)
        parts = [
            np.sqrt(_COMMON) * shares.sum(axis=1, keepdims=True),
            np.sqrt(_REGION) * (shares @ self._root),
            np.sqrt(_KIND) * kind,
            np.sqrt(_SCHEME) * scheme,
            np.sqrt(_REST) * rest,
        ]
        return np.concatenate(parts, axis=1)


def _expected(layout: Layout) -> Floats:
    """Log noise power of each region under each scheme before anything is observed; shape (R, S)."""
    n_regions, n_schemes = layout.allowed.shape
    share = np.log(0.2 / n_regions + layout.work)[:, None]
    if layout.own_errors is None:
        return np.asarray(np.log(_LEVEL) + np.tile(share, n_schemes))
    errors = np.log(np.maximum(layout.own_errors, _LEAST_OWN_ERROR))
    usual = errors[:, 1:][layout.allowed[:, 1:]].mean() if layout.allowed[:, 1:].any() else 0.0
    return np.asarray(np.log(_LEVEL) + (share - np.log(n_regions) + errors - usual) / 2)


def _shortened(found: Posterior, before: Floats) -> Posterior:
    """With a mean that is near that of before."""
    return replace(found, mean=before + np.clip(found.mean - before, -_LONGEST_STEP, _LONGEST_STEP))
