"""Latency ratios as linear functions of weights that are standard normal before anything is measured."""

from dataclasses import dataclass

import numpy as np

from autoquant.domain.prior import LatencyPrior
from autoquant.study.layout import LINEAR, Codes, Floats, Layout
from autoquant.study.likeness import Likeness, alike_patterns

__all__ = ["LatencyDesign", "Rows"]

_BASE_SPREAD = 0.05
_SHARED = 0.8
"""Of the variance of what a region saves, so much is shared by both kinds of operators."""
_ALIKE = 0.8
"""Of the variance of what regions save and borders cost, so much is shared by those of one pattern."""
_FORMAT, _FORMAT_REST = 0.1, 0.05
"""Standard deviation of what other tensor formats than the first cost of a region's share of the
arithmetic, everywhere and beside that in each region."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Assignments.

    Attributes:
        means: Ratios by the prior alone; shape (m,).
        design: Their derivatives by the weights; shape (m, U).
        products: Of these derivatives with those of the n assignments that are known; shape (m, n).
    """

    means: Floats
    design: Floats
    products: Floats


class LatencyDesign:
    """A constant, a term for each region and kind of operators, and one for each border.

    Dynamic schemes have terms of their own, which say nothing of the others, and no borders.
    Schemes with other tensor formats than the first one cost more or less in proportion to a region's share of
    the arithmetic. Terms for the direction of a border, for borders between kinds and for float regions between integer
    ones were tried on recorded searches of seven models and predicted no better (decision 0014).

    Args:
        layout: Regions, schemes and borders.
        prior: What is expected; from the regions' shares of the arithmetic where there is none.
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
        end = 1 + (1 + layout.n_kinds) * n_regions
        self._own, self._borders = slice(1, end), slice(end, end + len(layout.edges))
        self._places: dict[bytes, int] = {}
        self._known = Rows(np.zeros(0), np.zeros((0, self.n_weights)), np.zeros((0, 0)))

    @property
    def n_weights(self) -> int:
        """U."""
        return self._mean.size

    def know(self, codes: Codes) -> Rows:
        """Assignments, shape (n, R), that are the known ones from now on; n may be 0.

        Those of the last call need no work, nor do the products of all with all: correlating borders takes longer than
        all else where regions touch many.
        """
        keys = [row.tobytes() for row in codes]
        new = list({key: i for i, key in enumerate(keys) if key not in self._places}.values())
        if new:
            n_before, more = len(self._known.means), self.further(codes[new])
            self._known = _joined(self._known, more)
            self._places |= {keys[i]: n_before + number for number, i in enumerate(new)}
        places = [self._places[key] for key in keys]
        if places != list(range(len(self._known.means))):
            before = self._known
            self._known = Rows(before.means[places], before.design[places], before.products[places][:, places])
            self._places = {key: i for i, key in enumerate(keys)}
        return self._known

    def further(self, codes: Codes) -> Rows:
        """Assignments beside the known ones; shape (m, R)."""
        features = self._features(codes)
        design = self._alike(features * self._spread)
        return Rows(features @ self._mean, design, design @ self._known.design.T)

    def coefficients(self, weights: Floats) -> Floats:
        """The constant, the terms of each region by scheme (float first), those of borders.

        Args:
            weights: Shape (n, U).

        Returns:
            Shape (n, 1 + R S + E).
        """
        alike = np.concatenate([self._alike(each) for each in weights[:, None]])  # sums of several would differ by bits
        layout, n, n_regions, n_formats = self._layout, len(weights), len(self._layout.regions), self._n_formats
        n_dynamic = layout.n_kinds - LINEAR
        sizes = [1, n_regions, 2 * n_regions, n_dynamic * n_regions, len(layout.edges), n_formats]
        found = np.split(self._mean + alike * self._spread, np.cumsum(sizes), axis=1)
        constant, own, kind, dynamic, border, formats, rest = found
        static, nothing = own[:, None] + kind.reshape(n, 2, n_regions), np.zeros((n, 1, n_regions))
        by_kind = np.concatenate([nothing, static, dynamic.reshape(n, n_dynamic, n_regions)], axis=1)
        shares = formats[:, :, None] + rest.reshape(n, n_formats, n_regions)
        by_format = np.concatenate([nothing, shares * layout.work], axis=1)
        by_scheme = by_kind[:, layout.kinds] + by_format[:, layout.formats]
        return np.concatenate([constant, by_scheme.transpose(0, 2, 1).reshape(n, -1), border], axis=1)

    def _alike(self, values: Floats) -> Floats:
        """Weights or their design, shape (n, U), those of regions and of borders correlated by pattern."""
        own, found = values[:, self._own], values.copy()
        by_kind = own.reshape(len(values), 1 + self._layout.n_kinds, len(self._root))
        found[:, self._own] = (by_kind @ self._root).reshape(own.shape)
        found[:, self._borders] = values[:, self._borders] @ self._border_root
        return found

    def _features(self, codes: Codes) -> Floats:
        """Shape (n, U): 1 + (1 + K) R + E with K kinds, and for each format but the first one 1 + R."""
        layout = self._layout
        kinds, integer = layout.kinds[codes], layout.carries_integers(codes)
        by_kind = [kinds == kind for kind in range(1, layout.n_kinds + 1)]
        ones = np.ones((len(codes), 1))
        further = range(1, self._n_formats + 1)
        formats = [(layout.formats[codes] == number) * layout.work for number in further]
        sums = [work.sum(axis=1, keepdims=True) for work in formats]
        return np.concatenate([ones, integer, *by_kind, layout.unlike(codes), *sums, *formats], axis=1).astype(float)


def _joined(known: Rows, more: Rows) -> Rows:
    """All of them, and the products of all with all; ``numpy.block`` takes many times as long."""
    n, n_all = len(known.means), len(known.means) + len(more.means)
    products = np.empty((n_all, n_all))
    products[:n, :n], products[n:, :n], products[:n, n:] = known.products, more.products, more.products.T
    products[n:, n:] = more.design @ more.design.T
    return Rows(np.concatenate([known.means, more.means]), np.concatenate([known.design, more.design]), products)


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
