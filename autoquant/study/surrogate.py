"""What a search knows: noise power adds up over regions, latency over regions and borders.

Both are Bayesian linear models with Gaussian priors, refitted after every evaluation; a draw from the posterior is what
a proposal is made for (Thompson sampling).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.prior import LatencyPrior
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import FLOAT, Operators, Scheme

__all__ = ["Landscape", "Layout", "LatencyModel", "NoiseModel"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_FLOAT_NOISE = 1e-12
"""Relative noise power of an all-float model, 120 dB."""
_SNR_ERROR = 0.35
"""Standard deviation of the log of the additive model of noise power; facts put it at 1.5 to 3 dB."""
_LATENCY_ERROR = 0.015
_N_FIRST_STEPS = 8
_N_NEWTON_STEPS = 2
"""A fit starts from the one before, so that few steps are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Regions, schemes and borders as arrays.

    Attributes:
        regions: In topological order.
        schemes: Names of all schemes, float first.
        kinds: For each scheme 0 float, 1 all operators, 2 linear operators only; shape (S,).
        allowed: Which schemes each region may take; shape (R, S).
        edges: Pairs of touching regions; shape (E, 2).
        work: Estimated share of the arithmetic; shape (R,).
    """

    regions: tuple[RegionId, ...]
    schemes: tuple[str, ...]
    kinds: Codes
    allowed: npt.NDArray[np.bool_]
    edges: Codes
    work: Floats

    @classmethod
    def of(
        cls,
        choices: Mapping[RegionId, Sequence[str]],
        schemes: Mapping[str, Scheme],
        edges: Sequence[tuple[RegionId, RegionId]],
        work: Mapping[RegionId, float],
    ) -> "Layout":
        """Arrays from names."""
        regions = tuple(choices)
        names = (FLOAT, *schemes)
        position = {region: i for i, region in enumerate(regions)}
        pairs = [(position[a], position[b]) for a, b in edges if a in position and b in position]
        kinds = [0, *(2 if scheme.operators is Operators.LINEAR else 1 for scheme in schemes.values())]
        return cls(
            regions=regions,
            schemes=names,
            kinds=np.array(kinds),
            allowed=np.array([[name in choices[region] for name in names] for region in regions]),
            edges=np.array(pairs, dtype=np.int64).reshape(-1, 2),
            work=np.array([work[region] for region in regions]),
        )

    def encode(self, params: Mapping[str, str]) -> Codes:
        """Scheme numbers by region; shape (R,)."""
        return np.array([self.schemes.index(params[region]) for region in self.regions])

    def decode(self, codes: Codes) -> dict[str, str]:
        """The inverse of ``encode``."""
        return {region: self.schemes[code] for region, code in zip(self.regions, codes, strict=True)}


class NoiseModel:
    """Log noise power of each region under each scheme.

    The prior of a region's scheme is a region effect, a scheme effect and a rest, so that one probe of a region tells
    much about its other schemes. The sum over regions is fitted to the log of the observed power by Gauss-Newton.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        region = np.repeat(np.arange(n_regions), n_schemes)
        scheme = np.tile(np.arange(n_schemes), n_regions)
        same_region, same_scheme = region[:, None] == region, scheme[:, None] == scheme
        kind = layout.kinds[scheme]
        same_kind = same_region & (kind[:, None] == kind)
        covariance = 4.0 * same_region + 0.6 * same_scheme + 0.5 * same_kind + 1.0 * np.eye(len(region))
        self._precision = np.linalg.inv(covariance)
        self._mean = np.log(1e-3 * (0.2 / n_regions + layout.work[region]))
        self._is_fitted = False
        self._theta: Floats = self._mean
        self._root: npt.NDArray[np.floating] = np.linalg.cholesky(self._precision)

    def fit(self, codes: Codes, noise: Floats, weights: Floats) -> None:
        """Condition on observed relative noise powers.

        Args:
            codes: Scheme numbers, shape (n, R).
            noise: Relative noise power, shape (n,).
            weights: Trust in each observation, shape (n,).
        """
        n_regions, n_schemes = self._layout.allowed.shape
        columns = codes + np.arange(n_regions) * n_schemes
        target = np.log(np.maximum(noise, _FLOAT_NOISE))
        theta, active = self._theta, (codes != 0).astype(float)
        for _ in range(_N_NEWTON_STEPS if self._is_fitted else _N_FIRST_STEPS):
            power = np.exp(np.clip(theta[columns], -60, 20)) * active
            total = power.sum(axis=1) + _FLOAT_NOISE
            jacobian = np.zeros((len(codes), theta.size))
            np.put_along_axis(jacobian, columns, power / total[:, None], axis=1)
            scaled = jacobian.T * (weights / _SNR_ERROR**2)
            precision = scaled @ jacobian + self._precision
            gradient = scaled @ (target - np.log(total)) - self._precision @ (theta - self._mean)
            theta = theta + np.clip(np.linalg.solve(precision, gradient), -3, 3)
        self._theta, self._is_fitted = theta, True
        self._root = np.linalg.cholesky(precision)

    def draw(self, rng: np.random.Generator, scale: float) -> Floats:
        """Noise powers of one draw, shape (R, S); 0 for float. ``scale`` 0 gives the mean."""
        theta = _drawn(self._theta, self._root, rng, scale)
        table = np.exp(np.clip(theta, -60, 20)).reshape(self._layout.allowed.shape)
        table[:, 0] = 0.0
        return np.asarray(table)


class LatencyModel:
    """Latency ratio: a constant, a term for each region and kind of operators, and a term for each border."""

    def __init__(self, layout: Layout, prior: LatencyPrior | None = None) -> None:
        self._layout = layout
        prior = prior or _prior_of_work(layout)
        n_regions = len(layout.regions)
        regions, spread = np.repeat(np.arange(n_regions), 2), prior.spread.ravel()
        shared = 0.8 * (regions[:, None] == regions) + 0.2 * np.eye(2 * n_regions)
        self._mean = np.concatenate([[prior.base], prior.change.ravel(), prior.border])
        covariance = np.diag(np.concatenate([[0.05**2], np.ones(2 * n_regions), prior.border_spread**2]))
        covariance[1 : 1 + 2 * n_regions, 1 : 1 + 2 * n_regions] = shared * np.outer(spread, spread)
        self._precision = np.linalg.inv(covariance)
        self._theta: Floats = self._mean
        self._root: npt.NDArray[np.floating] = np.linalg.cholesky(self._precision)

    def features(self, codes: Codes) -> Floats:
        """Design matrix, shape (n, 1 + 2 R + E)."""
        layout = self._layout
        kinds = layout.kinds[codes]
        own = np.stack([kinds == 1, kinds == 2], axis=2).reshape(len(codes), -1)
        integer = kinds > 0
        borders = integer[:, layout.edges[:, 0]] != integer[:, layout.edges[:, 1]]
        return np.concatenate([np.ones((len(codes), 1)), own, borders], axis=1).astype(float)

    def fit(self, codes: Codes, ratios: Floats, errors: Floats) -> None:
        """Condition on observed ratios, shape (n,), with the standard error of each."""
        design = self.features(codes)
        scaled = design.T / (_LATENCY_ERROR**2 + errors**2)
        precision = scaled @ design + self._precision
        self._theta = np.linalg.solve(precision, scaled @ ratios + self._precision @ self._mean)
        self._root = np.linalg.cholesky(precision)

    def draw(self, rng: np.random.Generator, scale: float) -> Floats:
        """Coefficients of one draw; ``scale`` 0 gives the mean."""
        return _drawn(self._theta, self._root, rng, scale)


def _prior_of_work(layout: Layout) -> LatencyPrior:
    """Half of each operator's share of the arithmetic is saved, more or less."""
    n_regions, n_edges = len(layout.regions), len(layout.edges)
    work = np.stack([layout.work, layout.work], axis=1)
    return LatencyPrior(
        base=1.0,
        change=-0.5 * work,
        spread=0.5 * work + 0.02,
        border=np.full(n_edges, 0.25 / max(n_regions, 1)),
        border_spread=np.full(n_edges, 0.02),
    )


def _drawn(mean: Floats, root: npt.NDArray[np.floating], rng: np.random.Generator, scale: float) -> Floats:
    """A draw from the Gaussian whose precision matrix has the Cholesky factor ``root``."""
    if scale == 0:
        return mean
    return np.asarray(mean + scale * np.linalg.solve(root.T, rng.standard_normal(mean.size)))


@dataclass(frozen=True, slots=True)
class Landscape:
    """One draw of both models.

    Attributes:
        layout: What the tables are about.
        noise: Noise power by output, region and scheme, shape (O, R, S).
        coefficients: Of the latency model.
    """

    layout: Layout
    noise: Floats
    coefficients: Floats

    def noise_of(self, codes: Codes) -> Floats:
        """Relative noise power of the worst output, shape (n,)."""
        rows = np.arange(len(self.layout.regions))
        return np.asarray(self.noise[:, rows, codes].sum(axis=2).max(axis=0) + _FLOAT_NOISE)

    def ratio_of(self, codes: Codes) -> Floats:
        """Latency ratio, shape (n,)."""
        layout, kinds = self.layout, self.layout.kinds[codes]
        own = self.per_kind[np.arange(len(layout.regions)), kinds].sum(axis=1)
        return np.asarray(self.coefficients[0] + own + self.border_cost(kinds > 0))

    @property
    def per_kind(self) -> Floats:
        """Latency term of each region by kind, 0 for float; shape (R, 3)."""
        n_regions = len(self.layout.regions)
        table = np.zeros((n_regions, 3))
        table[:, 1:] = self.coefficients[1 : 1 + 2 * n_regions].reshape(n_regions, 2)
        return table

    def border_cost(self, integer: npt.NDArray[np.bool_]) -> Floats:
        """Sum over the borders between unlike neighbours; shape (n,) for (n, R)."""
        edges = self.layout.edges
        unlike = integer[:, edges[:, 0]] != integer[:, edges[:, 1]]
        return np.asarray(unlike @ self.coefficients[1 + 2 * len(self.layout.regions) :])
