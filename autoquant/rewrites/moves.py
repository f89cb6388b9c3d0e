"""Axes that nodes name, nodes that only move or drop elements, and where these put an axis of what they read."""

from collections.abc import Sequence
from math import prod

from autoquant.model.graph import Graph, Node

__all__ = ["FAR", "REDUCING", "REGROUPING", "axes_of", "axis_behind", "only_moves"]

FAR = (1 << 31) - 1
"""An end from which on a Slice is taken to take all that is left: exporters write this one or a larger one."""
_AXES_OF_SLICE = 3
"""The input that names axes; of other operators it is the second one."""
REDUCING = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")
"""Operators that make one number of all that are along some axes."""
REGROUPING = ("Flatten", "Reshape")
"""Operators that split and merge axes."""


def axes_of(graph: Graph, node: Node, n_axes: int) -> tuple[int, ...] | None:
    """Those that a node names by a constant or, in old opsets, by an attribute, counted from the front.

    Args:
        graph: It is in.
        node: Such as Slice, Squeeze, Unsqueeze or a reduction.
        n_axes: Of the tensor whose axes they are; 0 where that is not known.

    Returns:
        None where the node names none, or computes them, and where they cannot be counted.
    """
    named = node.attributes.get("axes")
    if named is None:
        slot = _AXES_OF_SLICE if node.op_type == "Slice" else 1
        tensor = next(iter(node.inputs[slot:]), None)
        named = None if tensor is None or not graph.is_constant(tensor) else graph.constant(tensor).ravel()
    return None if named is None or not n_axes else tuple(int(axis) % n_axes for axis in named)


def only_moves(node: Node) -> bool:
    """Whether all values of the output are values of the first input; a Pad adds values of its own."""
    return node.op_type in (*REGROUPING, "DepthToSpace", "Slice", "Squeeze", "Transpose", "Unsqueeze")


def axis_behind(graph: Graph, node: Node, axis: int) -> int | None:
    """The axis of a mover's output along which an element has the index that it had along an axis of the input.

    Args:
        graph: With shapes.
        node: Any node.
        axis: Of its first input, counted from the front.

    Returns:
        None where the axis is split, merged, cut or gone, where that is known at run time only, and where the node does
        more than to move elements.
    """
    n_before, n_behind = graph.rank(node.inputs[0]) if node.inputs else 0, graph.rank(node.outputs[0])
    if not only_moves(node) or not n_before or not n_behind:
        return None
    if node.op_type == "DepthToSpace":
        return None if axis else 0
    if node.op_type == "Transpose":
        return list(node.attributes.get("perm", range(n_before)[::-1])).index(axis)
    if node.op_type in REGROUPING:
        return _regrouped(graph.shape(node.inputs[0]), graph.shape(node.outputs[0]), axis)
    axes = axes_of(graph, node, max(n_before, n_behind))
    if axes is None or (axis in axes and node.op_type != "Unsqueeze"):
        return None
    if node.op_type == "Slice":
        return axis
    kept = [i for i in range(max(n_before, n_behind)) if i not in axes]
    return kept[axis] if node.op_type == "Unsqueeze" else kept.index(axis)


def _regrouped(before: Sequence[int] | None, behind: Sequence[int] | None, axis: int) -> int | None:
    """The axis of the same size that has as many elements before it, and so behind it, as one of the old shape."""
    if before is None or behind is None or 0 in before:
        return None
    wanted = (prod(before[:axis]), before[axis])
    return next((i for i, size in enumerate(behind) if (prod(behind[:i]), size) == wanted), None)
