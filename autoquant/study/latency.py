"""Latency adds up over regions and over borders between unlike neighbours."""

import itertools

import numpy as np

from autoquant.domain.prior import LatencyPrior
from autoquant.study.gaussian import condition
from autoquant.study.layout import LINEAR, Codes, Floats, Layout
from autoquant.study.likeness import Likeness, alike_patterns

__all__ = ["LatencyModel"]

_ERRORS = (0.003, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Standard deviations of a ratio around the model, beside its own error; which one it is, the evaluations say."""
_BASE_SPREAD = 0.05
_SHARED = 0.8
"""Of the variance of what a region saves, so much is shared by both kinds of operators."""
_ALIKE = 0.8
"""Of the variance of what regions save and borders cost, so much is shared by those of one pattern."""
_FORMAT, _FORMAT_REST = 0.1, 0.05
"""Standard deviation of what other tensor formats than the first cost of a region's share of the
arithmetic, everywhere and beside that in each region."""
_SCALES = (0.25, 0.5, 1.0, 2.0)
"""Of the prior's spread."""
_FREEDOM = 4.0
"""Degrees of freedom of Student's t: a few ratios were measured while something else ran, and are far off."""


class LatencyModel:
    """Latency ratio on one target: a constant, a term for each region and kind of operators, and one for each border.

    Dynamic schemes have terms of their own, which say nothing of the others, and no borders.
    Schemes with other tensor formats than the first one cost more or less in proportion to a region's share of
    the arithmetic. Terms for the direction of a border, for borders between kinds and for float regions between integer
    ones were tried on recorded searches of seven models and predicted no better (decision 0014).
    """

    def __init__(self, layout: Layout, prior: LatencyPrior | None = None) -> None:
        self._layout = layout
        expected = prior or _prior_of_work(layout)
        static, dynamic = np.split(expected.change, [LINEAR], axis=1)
        own = static.mean(axis=1)
        kinds = (static - own[:, None]).T
        self._mean = np.concatenate([[expected.base], own, kinds.ravel(), dynamic.ravel(), expected.border])
        self._n_formats, n_regions = int(layout.formats.max()), len(layout.regions)
        self._mean = np.concatenate([self._mean, np.zeros(self._n_formats * (1 + n_regions))])
        static, dynamic = np.split(expected.spread, [LINEAR], axis=1)
        spread, rest = np.sqrt(_SHARED) * static.mean(axis=1), np.sqrt(1 - _SHARED) * static.T.ravel()
        formats = np.repeat([_FORMAT, _FORMAT_REST], [self._n_formats, self._n_formats * n_regions])
        own = np.concatenate([spread, rest, dynamic.ravel()])
        self._spread = np.concatenate([[_BASE_SPREAD], own, expected.border_spread, formats])
        first, second = layout.patterns[layout.edges].T
        pairs = n_regions * first + second
        self._root, self._border_root = (
            Likeness(alike_patterns(patterns)).root(_ALIKE) for patterns in (layout.patterns, pairs)
        )
        self._error, self._scale = _ERRORS.index(0.01), _SCALES.index(1.0)
        self._n_seen = self._n_tuned = 0
        self._known: dict[bytes, int] = {}
        self._means, self._rows, self._gram = np.zeros(0), np.zeros((0, self._mean.size)), np.zeros((0, 0))
        self._posterior = condition(np.zeros((0, self._mean.size)), np.zeros(0), np.zeros(0))

    @property
    def error(self) -> float:
        """Standard deviation of a ratio that is measured without error around the model's."""
        return _ERRORS[self._error]

    def fit(self, codes: Codes, ratios: Floats, errors: Floats, *, n_new: int) -> None:
        """Condition on observed ratios, shape (n,), with the standard error of each.

        Those that it knew before and was still far from count less.

        Args:
            codes: Scheme numbers, shape (n, R).
            ratios: Shape (n,).
            errors: Shape (n,).
            n_new: How many of the last ones it did not know before; some of the others may be left out.

        References:
            Lange, Little, Taylor, "Robust statistical modeling using the t distribution", 1989 (one step of its EM).
        """
        expected, spread = self._known_rows(codes)
        observed = ratios - expected
        believed = spread * _SCALES[self._scale] @ self._posterior.mean
        self._n_seen += n_new
        if self._n_seen >= 1.1 * self._n_tuned:
            self._tune(spread, observed, errors)
            self._n_tuned = self._n_seen
        scaled, variances = spread * _SCALES[self._scale], self.error**2 + errors**2
        known = slice(len(codes) - n_new)
        squares = np.square(observed - believed)[known] / variances[known]
        variances[known] *= np.maximum(1.0, (_FREEDOM + squares) / (_FREEDOM + 1))
        self._posterior = condition(scaled, observed, variances, gram=self._gram_at(self._scale))

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Mean and variance of the ratio that would be observed without error; shapes (n,)."""
        design = self._features(codes)
        spread = self._alike(design * (self._spread * _SCALES[self._scale]))
        mean = design @ self._mean + spread @ self._posterior.mean
        return mean, self._posterior.variance(spread) + self.error**2

    def left_out(self, ratios: Floats) -> tuple[Floats, Floats]:
        """Mean and variance, as in ``predict``, of what the other ratios say of each that it was fitted to; (n,)."""
        distances, variances = self._posterior.left_out()
        return ratios - distances, variances + self.error**2

    def coefficients(self) -> Floats:
        """By the mean of the posterior: the constant, those of each region by scheme (float first), those of borders.

        Returns:
            Shape (1 + R S + E,).
        """
        return self._coefficients(self._posterior.mean)

    def many_coefficients(self, rng: np.random.Generator, n: int) -> Floats:
        """The same of draws, shape (n, 1 + R S + E)."""
        return np.stack([self._coefficients(weights) for weights in self._posterior.draws(rng, n)])

    def _coefficients(self, weights: Floats) -> Floats:
        found = self._mean + self._alike(weights[None])[0] * self._spread * _SCALES[self._scale]
        layout, n_regions, n_formats = self._layout, len(self._layout.regions), self._n_formats
        n_dynamic = layout.n_kinds - LINEAR
        sizes = [1, n_regions, 2 * n_regions, n_dynamic * n_regions, len(layout.edges), n_formats]
        constant, own, kind, dynamic, border, formats, rest = np.split(found, np.cumsum(sizes))
        static = own + kind.reshape(2, -1)
        by_kind = np.concatenate([np.zeros((1, n_regions)), static, dynamic.reshape(n_dynamic, n_regions)])
        shares = formats[:, None] + rest.reshape(n_formats, n_regions)
        by_format = np.concatenate([np.zeros((1, n_regions)), shares * layout.work])
        return np.concatenate([constant, (by_kind[layout.kinds] + by_format[layout.formats]).T.ravel(), border])

    def _tune(self, spread: Floats, observed: Floats, errors: Floats) -> None:
        """Move the error and the prior's scale one step where that makes the observations more likely."""
        near = itertools.product(_near(self._error, len(_ERRORS)), _near(self._scale, len(_SCALES)))
        evidence = {}
        for error, scale in near:
            scaled, variances, gram = spread * _SCALES[scale], _ERRORS[error] ** 2 + errors**2, self._gram_at(scale)
            evidence[error, scale] = condition(scaled, observed, variances, gram=gram).log_evidence
        self._error, self._scale = max(evidence, key=lambda pair: evidence[pair])

    def _gram_at(self, scale: int) -> Floats:
        return self._gram * _SCALES[scale] ** 2

    def _known_rows(self, codes: Codes) -> tuple[Floats, Floats]:
        """Ratios by the prior alone, (n,), and their derivatives by the weights at its own scale, (n, U); n may be 0.

        Those of the last call are known, and so are the products of all with all: correlating borders takes longer than
        all else where regions touch many.
        """
        keys = [row.tobytes() for row in codes]
        new = list({key: i for i, key in enumerate(keys) if key not in self._known}.values())
        if new:
            design, n_before = self._features(codes[new]), len(self._rows)
            rows = self._alike(design * self._spread)
            self._means = np.concatenate([self._means, design @ self._mean])
            self._gram = _grown(self._gram, self._rows, rows)
            self._rows = np.concatenate([self._rows, rows])
            self._known |= {keys[i]: n_before + number for number, i in enumerate(new)}
        places = [self._known[key] for key in keys]
        if places != list(range(len(self._rows))):
            self._means, self._rows = self._means[places], self._rows[places]
            self._gram = self._gram[np.ix_(places, places)]
            self._known = {key: i for i, key in enumerate(keys)}
        return self._means, self._rows

    def _alike(self, values: Floats) -> Floats:
        """Weights or their design, shape (n, U), those of regions and of borders correlated by pattern."""
        n, n_regions, n_edges = len(values), len(self._root), len(self._border_root)
        n_own = 1 + self._layout.n_kinds
        constant, own, border, formats = np.split(values, np.cumsum([1, n_own * n_regions, n_edges]), axis=1)
        own = (own.reshape(n, n_own, n_regions) @ self._root).reshape(own.shape)
        return np.concatenate([constant, own, border @ self._border_root, formats], axis=1)

    def _features(self, codes: Codes) -> Floats:
        """Design matrix, shape (n, U): 1 + (1 + K) R + E with K kinds, and for each format but the first one 1 + R."""
        layout = self._layout
        kinds, integer = layout.kinds[codes], layout.carries_integers(codes)
        by_kind = [kinds == kind for kind in range(1, layout.n_kinds + 1)]
        ones = np.ones((len(codes), 1))
        further = range(1, self._n_formats + 1)
        formats = [(layout.formats[codes] == number) * layout.work for number in further]
        sums = [work.sum(axis=1, keepdims=True) for work in formats]
        return np.concatenate([ones, integer, *by_kind, layout.unlike(codes), *sums, *formats], axis=1).astype(float)


def _grown(gram: Floats, rows: Floats, more: Floats) -> Floats:
    """The products of all rows with all, from those of the first ones; ``numpy.block`` takes many times as long."""
    n = len(rows)
    found = np.empty((n + len(more), n + len(more)))
    found[:n, :n] = gram
    found[n:, :n] = more @ rows.T
    found[:n, n:] = found[n:, :n].T
    found[n:, n:] = more @ more.T
    return found


def _near(index: int, n: int) -> range:
    return range(max(0, index - 1), min(n, index + 2))


def _prior_of_work(layout: Layout) -> LatencyPrior:
    """Half of each operator's share of the arithmetic is saved, more or less."""
    n_regions, n_edges = len(layout.regions), len(layout.edges)
    work = np.stack([layout.work] * layout.n_kinds, axis=1)
    return LatencyPrior(
        base=1.0,
        change=-0.5 * work,
        spread=0.5 * work + 0.02,
        border=np.full(n_edges, 0.25 / max(n_regions, 1)),
        border_spread=np.full(n_edges, 0.02),
    )
