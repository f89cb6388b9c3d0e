"""Adds before a LayerNormalization, which onnxruntime fuses with it unless they are written as Sums."""

import math
from collections.abc import Collection

from autoquant.model.excerpts import Excerpt, excerpt
from autoquant.model.graph import Graph, Node

__all__ = ["residual_adds", "residual_excerpts"]


def residual_adds(graph: Graph) -> frozenset[int]:
    """Indices of Adds of two activations of one shape that a LayerNormalization reads."""
    return frozenset(
        node.index
        for node in graph.nodes
        if node.op_type == "Add"
        and graph.shape(node.inputs[0]) == graph.shape(node.inputs[1]) == graph.shape(node.outputs[0])
        and not any(graph.is_constant(name) for name in node.inputs)
        and _norms_behind(graph, node)
    )


def residual_excerpts(graph: Graph, adds: Collection[int]) -> tuple[Excerpt, Excerpt] | None:
    """The largest of these Adds and the LayerNormalizations behind it, to be run alone: as they are, and with a Sum.

    One that these alone read comes before all others, which are not fused.

    Returns:
        None where sizes are not known.
    """
    largest = max((graph.nodes[index] for index in sorted(adds)), key=lambda node: _weight(graph, node))
    nodes = [largest, *_norms_behind(graph, largest)]
    plain, other = excerpt(graph, nodes), excerpt(graph, nodes, {largest.index: "Sum"})
    return None if plain is None or other is None else (plain, other)


def _norms_behind(graph: Graph, add: Node) -> list[Node]:
    return [node for node in graph.consumers.get(add.outputs[0], ()) if node.op_type == "LayerNormalization"]


def _weight(graph: Graph, add: Node) -> tuple[bool, int]:
    """Whether an Add may be fused, and how many values it has."""
    written = add.outputs[0]
    is_alone = written not in graph.pinned and len(_norms_behind(graph, add)) == len(graph.consumers[written])
    return is_alone, math.prod(graph.shape(written) or (0,))
