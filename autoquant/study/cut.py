"""Which regions run on integers where very many of them touch: minimum cuts."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import maximum_flow

from autoquant.study.layout import Codes, Floats

__all__ = ["Cut"]

_LARGEST = 2.0**30
"""Of all capacities together: flows are int32."""


class Cut:
    """Minimises what ``Labelling`` does, whatever the graph, where no border pays; one that does costs nothing here.

    Regions with label 1 are on the side of the source. Costs are rounded to 2^-30 of their sum, in which no region's
    own cost is larger than what all its borders can outweigh.

    Args:
        n_regions: Number of regions.
        edges: Pairs of touching regions, some of them perhaps in both directions; shape (E, 2).

    References:
        Greig, Porteous, Seheult, "Exact maximum a posteriori estimation for binary images", 1989; Dinic, 1970.
    """

    def __init__(self, n_regions: int, edges: Codes) -> None:
        self._source, self._sink = n_regions, n_regions + 1
        pairs, numbers = np.unique(np.sort(edges, axis=1), axis=0, return_inverse=True)
        self._merges = np.equal.outer(numbers.reshape(-1), np.arange(len(pairs))).astype(float)
        self._touches = np.equal.outer(pairs, np.arange(n_regions)).any(axis=1).astype(float)
        regions, (a, b) = np.arange(n_regions), pairs.T
        source, sink = np.full(n_regions, self._source), np.full(n_regions, self._sink)
        rows, columns = np.concatenate([source, regions, a, b]), np.concatenate([regions, sink, b, a])
        places = coo_array((1 + np.arange(len(rows)), (rows, columns)), shape=(n_regions + 2, n_regions + 2)).tocsr()
        self._indices, self._ends = places.indices.astype(np.int32), places.indptr.astype(np.int32)
        self._order = places.data - 1

    def solve(self, own: Floats, border: Floats) -> npt.NDArray[np.bool_]:
        """See ``Labelling.solve``; shapes (n, R) and (n, E) to (n, R)."""
        cost = np.maximum(border @ self._merges, 0.0)
        largest = cost @ self._touches + cost.max(axis=1, initial=1e-6, keepdims=True)
        own = np.clip(own, -largest, largest)
        capacities = np.concatenate([np.maximum(-own, 0.0), np.maximum(own, 0.0), cost, cost], axis=1)
        total = np.maximum(capacities.sum(axis=1, keepdims=True), 1e-100)
        whole = np.rint(capacities * (_LARGEST / total)).astype(np.int32)[:, self._order]
        return np.array([self._labels(each) for each in whole], dtype=bool).reshape(own.shape)

    def _labels(self, capacities: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        shape = (self._sink + 1, self._sink + 1)
        graph = csr_array((capacities, self._indices, self._ends), shape=shape)
        left = graph.toarray() > maximum_flow(graph, self._source, self._sink).flow.toarray()
        labels = np.arange(self._sink + 1) == self._source
        reached = labels
        while reached.any():  # sparse arrays would take longer
            reached = left[reached].any(axis=0) & ~labels
            labels = labels | reached
        return np.asarray(labels[: self._source])
