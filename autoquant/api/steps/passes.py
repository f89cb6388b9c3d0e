"""Activations are fetched in several passes where one would take too much memory."""

from collections.abc import Iterable, Sequence

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.model.activations import activation_bytes
from autoquant.model.graph import Graph

__all__ = ["in_passes"]

_PASS_BYTES = 1 << 30
"""Of the activations of the largest sample."""


def in_passes(graph: Graph, names: Iterable[TensorName], feeds: Sequence[Feed]) -> list[list[TensorName]]:
    """Names of at least one pass over the samples; each has a tensor or more, but for the only one of no names."""
    n_bytes = activation_bytes(graph, feeds)
    found: list[list[TensorName]] = [[]]
    fetched = 0
    for name in names:
        if found[-1] and fetched + n_bytes[name] > _PASS_BYTES:
            found.append([])
            fetched = 0
        found[-1].append(name)
        fetched += n_bytes[name]
    return found
