"""GELUs, whose approximation by tanh may have the faster kernel: decision 0054."""

import math
from collections.abc import Iterator, Mapping

from autoquant.model.excerpts import Excerpt, excerpt
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import MOVING_KINDS, kind_of

__all__ = ["APPROXIMATE", "exact_gelus", "gelu_excerpts"]

APPROXIMATE: Mapping[str, str] = {"approximate": "tanh"}
"""Attributes of a Gelu that is computed so."""
_EXACT = b"none"


def exact_gelus(graph: Graph) -> Mapping[int, frozenset[int]]:
    """Indices of exact Gelus, and of the operators beside each, where what only moves values does not count."""
    found = [node for node in graph.nodes if node.op_type == "Gelu" and _is_exact(node)]
    return {node.index: frozenset({*_before(graph, node), *_behind(graph, node)}) for node in found}


def gelu_excerpts(graph: Graph, gelus: Mapping[int, frozenset[int]]) -> tuple[Excerpt, Excerpt] | None:
    """The largest of these Gelus alone, exact and approximate; None where its size is not known."""
    sizes = {index: math.prod(graph.shape(graph.nodes[index].outputs[0]) or (0,)) for index in sorted(gelus)}
    largest = graph.nodes[max(sizes, key=sizes.__getitem__)]
    exact, other = excerpt(graph, [largest]), excerpt(graph, [largest], attributes={largest.index: APPROXIMATE})
    return None if exact is None or other is None else (exact, other)


def _is_exact(node: Node) -> bool:
    return bool(node.attributes.get("approximate", _EXACT) == _EXACT)


def _before(graph: Graph, node: Node) -> Iterator[int]:
    producer = graph.producer.get(node.inputs[0])
    while producer is not None and kind_of(producer) in MOVING_KINDS:
        producer = graph.producer.get(producer.inputs[0])
    if producer is not None:
        yield producer.index


def _behind(graph: Graph, node: Node) -> Iterator[int]:
    for reader in graph.consumers.get(node.outputs[0], ()):
        if kind_of(reader) in MOVING_KINDS:
            yield from _behind(graph, reader)
        else:
            yield reader.index
