"""Elementwise operators of tensors of which one has a single element along the last axis."""

from math import prod

from autoquant.model.blocks import ARITHMETIC
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["multiply_outer", "repeat_last"]

_MOST = 6
"""Elements along the last axis: onnxruntime goes through each such row by itself, for so few slower than a copy."""
_LEAST_SPANS = 1024
"""Of them: fewer take no time."""


@of_each_node()
def repeat_last(edit: Edit, node: Node) -> None:
    """An operand with one element along a short last axis is repeated along it, so that all is one span.

    Coordinates and vectors in space have such axes. Concat copies faster than Expand and Tile do.
    """
    short, n = _broadcast(edit.graph, node)
    if n and _sizes(edit.graph, node, short)[:-1] == _sizes(edit.graph, node, 1 - short)[:-1]:
        parts, inputs = Parts(edit, node), [*node.inputs]
        inputs[short] = parts.add("Concat", [inputs[short]] * n, part="repeat", axis=-1)
        parts.add(node.op_type, inputs, output=node.outputs[0])
        edit.replaced[node.index] = parts.nodes


@of_each_node()
def multiply_outer(edit: Edit, node: Node) -> None:
    """A Mul of a column and a short row is a MatMul."""
    column, n = _broadcast(edit.graph, node)
    if not n or node.op_type != "Mul":
        return
    left, right = (_sizes(edit.graph, node, place) for place in (column, 1 - column))
    if len(left) > 1 and left[:-2] == right[:-2] and right[-2] == 1 != left[-2]:
        parts = Parts(edit, node)
        parts.add("MatMul", [node.inputs[column], node.inputs[1 - column]], output=node.outputs[0])
        edit.replaced[node.index] = parts.nodes


def _broadcast(graph: Graph, node: Node) -> tuple[int, int]:
    """Which operand has one element along the last axis, and how many the other one has; 0 where that is not so."""
    if node.op_type not in ARITHMETIC or not graph.float_tensors.issuperset(node.inputs):
        return 0, 0
    shapes = [shape for shape in map(graph.shape, node.inputs) if shape]
    if len(shapes) < len(node.inputs) or len({len(shape) for shape in shapes}) > 1:
        return 0, 0
    lasts = [shape[-1] for shape in shapes]
    is_short = min(lasts) == 1 < max(lasts) <= _MOST
    if not is_short or prod(max(sizes) for sizes in list(zip(*shapes, strict=True))[:-1]) < _LEAST_SPANS:
        return 0, 0
    return lasts.index(1), max(lasts)


def _sizes(graph: Graph, node: Node, place: int) -> tuple[int, ...]:
    return graph.shape(node.inputs[place]) or ()
