"""Activations are fetched in several passes where one would take too much memory."""

import math
from collections.abc import Iterable

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph

__all__ = ["in_passes"]

_PASS_BYTES = 1 << 30
"""Of the activations of one sample, as far as their shapes are known."""


def in_passes(graph: Graph, names: Iterable[TensorName]) -> list[list[TensorName]]:
    """Names of at least one pass; each has a tensor or more, but for the only one of no names."""
    found: list[list[TensorName]] = [[]]
    fetched = 0
    for name in names:
        n_bytes = 4 * math.prod(graph.shape(name) or (0,))
        if found[-1] and fetched + n_bytes > _PASS_BYTES:
            found.append([])
            fetched = 0
        found[-1].append(name)
        fetched += n_bytes
    return found
