"""Nodes that compute the same of the same."""

import math
from collections.abc import Hashable, Mapping

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.subgraphs import bodies_of

__all__ = ["twins_of"]

_MOST_SHARED = 8
_SHARED_DTYPES = frozenset({"float16", "float32", "float64", "int32", "int64"})
"""Equal constants of these types with so few numbers are one for onnxruntime, see its ``constant_sharing.cc``."""


def twins_of(graph: Graph) -> Mapping[int, Node]:
    """The first node of those alike, by index of each of the others; of such onnxruntime keeps one.

    Alike are nodes of one operator, attributes and inputs, where outputs of those alike are one tensor and so are small
    constants that are equal. Neither are nodes with bodies, nor those that draw numbers.
    """
    found: dict[int, Node] = {}
    known: dict[tuple[str, tuple[Hashable, ...]], list[Node]] = {}
    same: dict[TensorName, TensorName] = {}
    drawing = set(graph.drawing)
    for node in graph.nodes:
        if node.name in drawing or any(True for _ in bodies_of(graph.model.graph.node[node.index])):
            continue
        inputs = tuple(_shared(same.get(name, name), graph) for name in node.inputs)
        before = known.setdefault((node.op_type, inputs), [])
        first = next((other for other in before if _computes(other, node, graph)), None)
        if first is None:
            before.append(node)
        else:
            found[node.index] = first
            same |= {name: kept for name, kept in zip(node.outputs, first.outputs, strict=False) if name}
    return found


def _shared(tensor: TensorName, graph: Graph) -> Hashable:
    """What is equal for tensors that are one."""
    if tensor not in graph.constants or graph.dtype(tensor) not in _SHARED_DTYPES:
        return tensor
    shape = graph.shape(tensor)
    if shape is None or math.prod(shape) > _MOST_SHARED:
        return tensor
    return graph.dtype(tensor), shape, graph.constant(tensor).tobytes()


def _computes(first: Node, node: Node, graph: Graph) -> bool:
    """Whether a node of the same operator and inputs gives all outputs that the other one does."""
    has_all = len(node.outputs) <= len(first.outputs) and all(
        kept for name, kept in zip(node.outputs, first.outputs, strict=False) if name
    )
    return has_all and _attributes(first, graph) == _attributes(node, graph)


def _attributes(node: Node, graph: Graph) -> list[onnx.AttributeProto]:
    return sorted(graph.model.graph.node[node.index].attribute, key=lambda attribute: attribute.name)
