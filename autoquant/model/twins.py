"""Nodes that compute the same of the same."""

from collections.abc import Mapping

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node

__all__ = ["twins_of"]


def twins_of(graph: Graph) -> Mapping[int, Node]:
    """The first node of those alike, by index of each of the others; of such onnxruntime keeps one.

    Alike are nodes of one operator, attributes, bodies among them, and inputs, where outputs of those alike are one
    tensor. Constants of equal values are two.
    """
    found: dict[int, Node] = {}
    known: dict[tuple[str, tuple[TensorName, ...]], list[Node]] = {}
    same: dict[TensorName, TensorName] = {}
    for node in graph.nodes:
        before = known.setdefault((node.op_type, tuple(same.get(name, name) for name in node.inputs)), [])
        first = next((other for other in before if _attributes(other, graph) == _attributes(node, graph)), None)
        if first is None:
            before.append(node)
        else:
            found[node.index] = first
            same |= zip(node.outputs, first.outputs, strict=False)
    return found


def _attributes(node: Node, graph: Graph) -> list[onnx.AttributeProto]:
    return sorted(graph.model.graph.node[node.index].attribute, key=lambda attribute: attribute.name)
