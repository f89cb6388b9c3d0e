"""Noise power adds up over regions."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.study.gaussian import Posterior, condition
from autoquant.study.layout import Codes, Floats, Layout, pick
from autoquant.study.likeness import Likeness, alike_neighbours, alike_patterns

__all__ = ["FLOAT_NOISE", "NO_SIGNAL", "NoiseModel"]

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
NO_SIGNAL = 100.0
"""Relative noise power, -20 dB, which stands for all that is worse, and for outputs that are no numbers."""
_FAR = 3.0
"""Standard deviations from what is held: what has no signal and is farther off weighs no more."""
_N_FIRST_STEPS = 8
_LONGEST_STEP = 2.0


class NoiseModel:
    """Log noise power of each region under each scheme, for one output.

    The prior expects what a region's share of the arithmetic says and, where they are known, the errors of what it
    quantizes (decision 0033). Around that there are a level, a region effect, a scheme effect and one of the region
    under each scheme, part of which schemes of one kind share, so that one probe of a region tells much about its other
    schemes, and a few about regions that were not probed. The log of the sum over regions is fitted by Gauss-Newton.
    Region effects are correlated: two thirds of what they share by pattern, one third between neighbours (decision
    0021).

    Corrections for neighbours that are quantized too were tried on recorded searches of seven models and predicted no
    better (decision 0014).
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        self._prior = _expected(layout)
        self._own_root = _own_root(layout)
        self._sizes = (1, n_regions, n_schemes, n_regions * (n_schemes - 1))
        self._likeness = Likeness((2 * alike_patterns(layout.patterns) + alike_neighbours(n_regions)) / 3)
        self._error, self._share = _ERRORS.index(0.4), _SHARES.index(0.6)
        self._root = self._likeness.root(_SHARES[self._share])
        self._n_seen = self._n_tuned = 0
        self._believe(condition(np.zeros((0, sum(self._sizes))), np.zeros(0), np.zeros(0)))

    def _believe(self, posterior: Posterior) -> None:
        self._posterior, self._powers = posterior, self._table(posterior.mean)

    @property
    def error(self) -> float:
        """Standard deviation of the log of an observed noise power around the model's."""
        return _ERRORS[self._error]

    def fit(self, codes: Codes, noise: Floats, is_quick: npt.NDArray[np.bool_], *, n_new: int) -> None:
        """Condition on observed relative noise powers.

        Those without any signal left, as of outputs that are no numbers, weigh as if they were less far from what it
        holds: one of them would move what is held of all others.

        Args:
            codes: Scheme numbers, shape (n, R).
            noise: Relative noise power, shape (n,).
            is_quick: Whether each observation comes from a trial that was stopped early, shape (n,).
            n_new: How many of the last ones it did not know before; some of the others may be left out.

        References:
            Huber, "Robust estimation of a location parameter", 1964 (its weights squared, of one step).
        """
        n_before = len(self._posterior.observed)
        self._n_seen += n_new if n_before else len(codes)
        target = np.log(np.maximum(noise, FLOAT_NOISE))
        factors = np.where(is_quick, QUICK_VARIANCE, 1.0)
        if n_before:
            factors *= self._doubts(codes, target, factors)
        for _ in range(1 if n_before else _N_FIRST_STEPS):
            self._step(codes, target, factors)
        if self._n_seen >= 1.1 * self._n_tuned:
            self._tune(factors)
            self._n_tuned = self._n_seen

    def mean(self, codes: Codes) -> Floats:
        """Of the log noise power that would be observed; shape (n,)."""
        return np.asarray(np.log(pick(self._powers, codes).sum(axis=1) + FLOAT_NOISE))

    def variance(self, codes: Codes) -> Floats:
        """Of the log noise power that would be observed; shape (n,)."""
        _, design = self._linearised(codes)
        return self._posterior.variance(design) + self.error**2

    def table(self) -> Floats:
        """Noise powers by the mean of the posterior, shape (R, S); 0 for float."""
        return self._powers

    def tables(self, rng: np.random.Generator, n: int) -> Floats:
        """The same of draws, shape (n, R, S)."""
        return np.stack([self._table(weights) for weights in self._posterior.draws(rng, n)])

    def _table(self, weights: Floats) -> Floats:
        power = np.exp(np.clip(self._log_powers(weights), -60, 20))
        power[:, 0] = 0.0
        return np.asarray(power)

    def _doubts(self, codes: Codes, target: Floats, factors: Floats) -> Floats:
        """How many times the variance of each counts that says no more than that no signal was left; shape (n,)."""
        rows = np.flatnonzero(target >= np.log(NO_SIGNAL))
        log_total, design = self._linearised(codes[rows])
        variances = factors[rows] * self.error**2 + self._posterior.variance(design)
        doubts = np.ones(len(target))
        doubts[rows] = np.maximum(1.0, np.square(target[rows] - log_total) / (_FAR**2 * variances))
        return doubts

    def _step(self, codes: Codes, target: Floats, factors: Floats) -> None:
        before = self._posterior.mean
        log_total, design = self._linearised(codes)
        found = condition(design, target - log_total + design @ before, factors * self.error**2)
        self._believe(_shortened(found, before))

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
            self._believe(_shortened(found[share], before))

    def _reshared(self, values: Floats, before: int, share: int) -> Floats:
        """The same with the region effects multiplied by the root of another share; shape (n, U)."""
        root, found = self._likeness.root(_SHARES[share], _SHARES[before]), values.copy()
        found[:, 1 : 1 + len(root)] = values[:, 1 : 1 + len(root)] @ root
        return found

    def _linearised(self, codes: Codes) -> tuple[Floats, Floats]:
        """Log of the sum over regions, shape (n,), and its derivative by the weights at the mean, shape (n, U)."""
        power = pick(self._powers, codes)
        total = power.sum(axis=1) + FLOAT_NOISE
        return np.log(total), self._derivative(codes, power / total[:, None])

    def _log_powers(self, weights: Floats) -> Floats:
        """Of each region under each scheme, shape (R, S)."""
        common, region, scheme, own = np.split(weights, np.cumsum(self._sizes)[:-1])
        return np.asarray(
            self._prior
            + np.sqrt(_COMMON) * common
            + np.sqrt(_REGION) * (self._root @ region)[:, None]
            + np.sqrt(_SCHEME) * scheme
            + own.reshape(len(region), -1) @ self._own_root.T
        )

    def _derivative(self, codes: Codes, shares: Floats) -> Floats:
        n, n_schemes = len(codes), len(self._own_root)
        places = codes + n_schemes * np.arange(n)[:, None]
        scheme = np.bincount(places.ravel(), shares.ravel(), n * n_schemes).reshape(n, n_schemes)
        parts = [
            np.sqrt(_COMMON) * shares.sum(axis=1, keepdims=True),
            np.sqrt(_REGION) * (shares @ self._root),
            np.sqrt(_SCHEME) * scheme,
            (shares[:, :, None] * self._own_root.take(codes, axis=0)).reshape(n, self._sizes[-1]),
        ]
        return np.concatenate(parts, axis=1)


def _own_root(layout: Layout) -> Floats:
    """What makes effects of one region under each scheme of independent weights; shape (S, S - 1), 0 for float."""
    kinds = layout.kinds[1:]
    shared = np.linalg.cholesky(_KIND * (kinds[:, None] == kinds) + _REST * np.eye(len(kinds)))
    return np.concatenate([np.zeros((1, len(kinds))), shared])


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
