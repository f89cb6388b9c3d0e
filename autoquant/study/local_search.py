"""The fastest assignment within a noise power, by local search over runs of consecutive regions."""

import numpy as np
import numpy.typing as npt

from autoquant.study.surrogate import Codes, Floats, Landscape, Layout

__all__ = ["LocalSearch"]

_N_MOVES = 6000
_MAX_STEPS = 15


class LocalSearch:
    """Steps from an assignment to its best neighbour: a run of consecutive regions takes one scheme.

    All neighbours are valued at once: what a run changes in noise and latency is a difference of prefix sums, borders
    are looked up by run.

    Args:
        layout: Regions, schemes and borders.
        rng: Chooses runs where there are too many.
    """

    def __init__(self, layout: Layout, rng: np.random.Generator) -> None:
        self._layout = layout
        n_regions, n_schemes = layout.allowed.shape
        runs = np.array([(i, j) for i in range(n_regions) for j in range(i, n_regions)], dtype=np.int64)
        n_runs = max(n_regions, _N_MOVES // n_schemes)
        if len(runs) > n_runs:
            single = runs[:, 0] == runs[:, 1]
            longer = rng.choice(np.flatnonzero(~single), n_runs - n_regions, replace=False)
            runs = np.concatenate([runs[single], runs[longer]])
        position = np.arange(n_regions)
        self._runs = runs
        self._inside: npt.NDArray[np.bool_] = (position >= runs[:, :1]) & (position <= runs[:, 1:])
        self._quantizable = layout.allowed[:, 1:].any(axis=1)

    def fastest(self, landscape: Landscape, noise_limit: float, starts: Codes) -> Codes:
        """The best assignment that steps from the best start lead to.

        Args:
            landscape: Values assignments.
            noise_limit: Relative noise power; an excess costs its logarithm.
            starts: Scheme numbers, shape (n, R).

        Returns:
            Scheme numbers, shape (R,).
        """
        values = _objective(landscape, starts, noise_limit)
        current, best = starts[int(np.argmin(values))], float(values.min())
        for _ in range(_MAX_STEPS):
            candidate = self._best_neighbour(landscape, current, noise_limit)
            value = float(_objective(landscape, candidate[None], noise_limit)[0])
            if value >= best - 1e-6:
                break
            current, best = candidate, value
        return np.asarray(current)

    def _best_neighbour(self, landscape: Landscape, codes: Codes, noise_limit: float) -> Codes:
        layout = self._layout
        rows = np.arange(len(codes))
        kinds = layout.kinds[codes]
        own_ratio = landscape.per_kind[rows, kinds]
        ratio_change = np.where(layout.allowed, landscape.per_kind[:, layout.kinds] - own_ratio[:, None], 0.0)
        ratio = float(landscape.coefficients[0] + own_ratio.sum()) + self._sums(ratio_change)
        ratio += self._borders(landscape, kinds > 0)[:, (layout.kinds > 0) * 1]
        noise = np.max([self._noise_after(table, codes) for table in landscape.noise], axis=0)
        excess = np.log(np.maximum(noise, 1e-15) / noise_limit)
        run, scheme = divmod(int(np.argmin(ratio + np.maximum(excess, 0.0) + 1e-9 * excess)), len(layout.kinds))
        return np.where(self._inside[run] & layout.allowed[:, scheme], scheme, codes)

    def _noise_after(self, table: Floats, codes: Codes) -> Floats:
        """Noise power of one output after each run took each scheme, shape (runs, S)."""
        own = table[np.arange(len(codes)), codes]
        change = np.where(self._layout.allowed, table - own[:, None], 0.0)
        return np.asarray(own.sum() + self._sums(change))

    def _sums(self, change: Floats) -> Floats:
        """Change of each run under each scheme, shape (runs, S), from that of each region."""
        prefix = np.concatenate([np.zeros((1, change.shape[1])), np.cumsum(change, axis=0)])
        return np.asarray(prefix[self._runs[:, 1] + 1] - prefix[self._runs[:, 0]])

    def _borders(self, landscape: Landscape, integer: npt.NDArray[np.bool_]) -> Floats:
        """Cost of all borders after each run became float or integer, shape (runs, 2)."""
        as_float = integer & ~self._inside
        as_integer = integer | (self._inside & self._quantizable)
        return np.stack([landscape.border_cost(as_float), landscape.border_cost(as_integer)], axis=1)


def _objective(landscape: Landscape, codes: Codes, noise_limit: float) -> Floats:
    excess = np.log(np.maximum(landscape.noise_of(codes), 1e-15) / noise_limit)
    return np.asarray(landscape.ratio_of(codes) + np.maximum(excess, 0.0) + 1e-9 * excess)
