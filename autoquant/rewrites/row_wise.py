"""Nodes that compute each row, or column, of what they write from one of what they read."""

from collections.abc import Callable, Container, Mapping, Sequence
from math import prod
from typing import TypeVar

from autoquant.model.by_element import BROADCASTING, FUNCTIONS
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import SOFTMAX_OF_ONE_AXIS
from autoquant.rewrites.moves import REDUCING, REGROUPING, axes_of, axis_behind

__all__ = ["Axes", "axes_read", "that_pay"]

Axes = tuple[int | None, ...]
"""For each input the axis along which its places are those of the output, None where it is read whole."""
_BY_ELEMENT = (
    *FUNCTIONS,
    *BROADCASTING,
    *("And", "Cast", "Equal", "Greater", "IsInf", "IsNaN", "Less", "Not", "Or", "Where"),
)
_MOVING = ("Squeeze", "Transpose", "Unsqueeze")
_Found = TypeVar("_Found")


def axes_read(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Where a node reads what it writes at a place of an axis: at the same place of these axes.

    Args:
        graph: With shapes.
        node: That writes one tensor.
        axis: Of that, counted from the front.

    Returns:
        None where other places count too, and where that is not known. Along an axis of open size it holds of the first
        and the last place alone: what is broadcast may have no other.
    """
    rule = _RULES.get(node.op_type)
    if rule is None or len(node.outputs) != 1 or not graph.rank(node.outputs[0]):
        return None
    if rule is not _by_element and not graph.rank(node.inputs[0]):
        return None
    found = rule(graph, node, axis)
    return None if found is None or all(each is None for each in found) else found


def that_pay(graph: Graph, found: Mapping[int, _Found], paying: Container[str]) -> dict[int, _Found]:
    """Without nodes before which nothing is computed that takes longer than to pick places.

    Args:
        graph: It is of.
        found: Something of nodes, by index.
        paying: Operators that take longer.

    Returns:
        Those of these operators, and those that read what one writes that is returned.
    """
    kept = dict[int, _Found]()
    for index in sorted(found):
        node = graph.nodes[index]
        producers = (graph.producer[name].index for name in node.inputs if name in graph.producer)
        if node.op_type in paying or any(producer in kept for producer in producers):
            kept[index] = found[index]
    return kept


def _by_element(graph: Graph, node: Node, axis: int, first: int = 0) -> Axes | None:
    """Of inputs that are broadcast, from the first of these on."""
    written, axes = graph.sizes(node.outputs[0]) or (), list[int | None]()
    for name in node.inputs[first:]:
        sizes = graph.sizes(name) if name else ()
        if sizes is None:
            return None
        own = axis - len(written) + len(sizes)
        is_one = own < 0 or (sizes[own] == 1 and written[axis] != 1)
        if not is_one and sizes[own] != written[axis]:
            return None
        axes.append(None if is_one else own)
    return tuple(axes)


def _first_alone(node: Node, axis: int | None) -> Axes | None:
    return None if axis is None else (axis, *(None for _ in node.inputs[1:]))


def _by_product(graph: Graph, node: Node, axis: int) -> Axes | None:
    ranks = [graph.rank(name) for name in node.inputs]
    if min(ranks) < 2:
        return None
    from_last = graph.rank(node.outputs[0]) - axis
    of_factors = {1: (None, ranks[1] - 1), 2: (ranks[0] - 2, None)}
    return of_factors.get(from_last) or _by_element(graph, node, axis)


def _by_gemm(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Rows are of the first matrix, columns of the second one."""
    turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    factors = (int(turned[0]), None) if axis == 0 else (None, int(not turned[1]))
    bias = _by_element(graph, node, axis, len(factors))
    return None if bias is None else (*factors, *bias)


def _beside_normalised(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Scales may be of each row."""
    first = int(node.attributes.get("axis", -1)) % graph.rank(node.inputs[0])
    return _by_element(graph, node, axis) if axis < first else None


def _beside_channels(graph: Graph, node: Node, axis: int) -> Axes | None:
    """Before opset 9 scales may be of each place."""
    return _first_alone(node, None if axis == 1 or graph.rank(node.inputs[1]) > 1 else axis)


def _beside_softmax(graph: Graph, node: Node, axis: int) -> Axes | None:
    rank = graph.rank(node.inputs[0])
    if opset_of(graph.model) < SOFTMAX_OF_ONE_AXIS:
        return _first_alone(node, axis if axis < int(node.attributes.get("axis", 1)) % rank else None)
    return _first_alone(node, axis if axis != int(node.attributes.get("axis", -1)) % rank else None)


def _beside_reduced(graph: Graph, node: Node, axis: int) -> Axes | None:
    rank = graph.rank(node.inputs[0])
    taken = axes_of(graph, node, rank)
    if not taken:
        return None
    kept = [i for i in range(rank) if i not in taken or node.attributes.get("keepdims", 1)]
    return _first_alone(node, None if kept[axis] in taken else kept[axis])


def _moved(graph: Graph, node: Node, axis: int) -> Axes | None:
    before = (i for i in range(graph.rank(node.inputs[0])) if axis_behind(graph, node, i) == axis)
    return _first_alone(node, next(before, None))


def _regrouped(graph: Graph, node: Node, axis: int) -> Axes | None:
    """With as many elements before the axis and behind it; one size that is written may be open."""
    read, written = graph.sizes(node.inputs[0]) or (), graph.sizes(node.outputs[0]) or ()
    if written.count(None) > 1 or 0 in written:
        return None
    wanted = _around(written, axis)
    return _first_alone(node, next((i for i in range(len(read)) if _around(read, i) == wanted), None))


def _around(sizes: Sequence[int | None], axis: int) -> tuple[object, ...]:
    """The elements before an axis, along it and behind it: those that are known, and whether that are all."""
    parts = sizes[:axis], sizes[axis : axis + 1], sizes[axis + 1 :]
    return tuple((prod(size or 1 for size in part), None in part) for part in parts)


def _joined(graph: Graph, node: Node, axis: int) -> Axes | None:
    is_other = axis != int(node.attributes["axis"]) % graph.rank(node.outputs[0])
    return tuple(axis for _ in node.inputs) if is_other else None


def _sliced(graph: Graph, node: Node, axis: int) -> Axes | None:
    taken = axes_of(graph, node, graph.rank(node.inputs[0]))
    return None if taken is None else _first_alone(node, None if axis in taken else axis)


def _gathered(graph: Graph, node: Node, axis: int) -> Axes | None:
    rank, n_more = graph.rank(node.inputs[0]), graph.rank(node.outputs[0]) - graph.rank(node.inputs[0])
    own = int(node.attributes.get("axis", 0)) % rank
    if axis < own:
        return _first_alone(node, axis)
    return _first_alone(node, axis - n_more if axis > own + n_more else None)


def _gathered_elements(graph: Graph, node: Node, axis: int) -> Axes | None:
    data, places = (graph.sizes(name) or () for name in node.inputs)
    if axis == int(node.attributes.get("axis", 0)) % graph.rank(node.inputs[0]):
        return (None, axis)
    is_as_long = data[axis] is not None and data[axis : axis + 1] == places[axis : axis + 1]
    return (axis, axis) if is_as_long else None


_RULES: Mapping[str, Callable[[Graph, Node, int], Axes | None]] = {
    **dict.fromkeys(_BY_ELEMENT, _by_element),
    **dict.fromkeys(_MOVING, _moved),
    **dict.fromkeys(REGROUPING, _regrouped),
    **dict.fromkeys(REDUCING, _beside_reduced),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _beside_softmax),
    "BatchNormalization": _beside_channels,
    "Concat": _joined,
    "Gather": _gathered,
    "GatherElements": _gathered_elements,
    "Gemm": _by_gemm,
    "LayerNormalization": _beside_normalised,
    "MatMul": _by_product,
    "Slice": _sliced,
}
