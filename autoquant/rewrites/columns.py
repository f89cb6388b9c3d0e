"""Columns of numbers that are looked up in a table each, as in networks for recommendations and tables of data."""

import numpy as np
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import SPLIT_HAS_INPUTS
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.moves import axes_of

__all__ = ["split_columns"]

_LEAST = 4
"""Columns: with fewer there is little to save."""
_Column = tuple[Node, Node, Node]
"""What takes it, what looks it up, and what gives its axis back."""


def split_columns(model: Model) -> Model:
    """Columns that are taken one by one, looked up and unsqueezed are split at once, and keep their axis."""
    if opset_of(model) < SPLIT_HAS_INPUTS:
        return model
    edit = Edit(graph_of(model))
    for tensor in dict.fromkeys(node.inputs[0] for node in edit.graph.nodes if node.op_type == "Gather"):
        for axis in range(edit.graph.rank(tensor)):
            found = _columns(edit.graph, tensor, axis)
            if len(found) >= _LEAST:
                _split(edit, tensor, axis, found)
    return edit.model()


def _columns(graph: Graph, tensor: TensorName, axis: int) -> list[_Column]:
    """Those along an axis of known size."""
    sizes = graph.sizes(tensor)
    if sizes is None or sizes[axis] is None or graph.is_constant(tensor):
        return []
    found = (_column(graph, node, axis) for node in graph.consumers.get(tensor, ()))
    return [column for column in found if column is not None]


def _column(graph: Graph, node: Node, axis: int) -> _Column | None:
    if node.op_type != "Gather" or node.attributes.get("axis", 0) % graph.rank(node.inputs[0]) != axis:
        return None
    if not graph.is_constant(node.inputs[1]) or graph.constant(node.inputs[1]).ndim:
        return None
    looked_up = graph.only_reader(node.outputs[0])
    if looked_up is None or looked_up.op_type != "Gather" or looked_up.inputs[1] != node.outputs[0]:
        return None
    if not graph.is_constant(looked_up.inputs[0]) or looked_up.attributes.get("axis", 0) != 0:
        return None
    widened = graph.only_reader(looked_up.outputs[0])
    if widened is None or widened.op_type != "Unsqueeze":
        return None
    is_it = axes_of(graph, widened, graph.rank(widened.outputs[0])) == (axis,)
    return (node, looked_up, widened) if is_it else None


def _split(edit: Edit, tensor: TensorName, axis: int, found: list[_Column]) -> None:
    size = (edit.graph.sizes(tensor) or ())[axis]
    assert size is not None
    pieces = [edit.names.new(f"{tensor}_column{number}") for number in range(size)]
    first = min((column[0] for column in found), key=lambda node: node.index)
    for taken, looked_up, widened in found:
        piece = pieces[int(edit.graph.constant(taken.inputs[1])) % size]
        table = looked_up.inputs[0]
        edit.replaced[taken.index] = edit.replaced[widened.index] = ()
        edit.replaced[looked_up.index] = [
            helper.make_node("Gather", [table, piece], [widened.outputs[0]], name=looked_up.name, axis=0)
        ]
    sizes = edit.constant(f"{tensor}_columns", np.ones(size, np.int64))
    edit.replaced[first.index] = [
        helper.make_node("Split", [tensor, sizes], pieces, name=f"{first.name}_columns", axis=axis)
    ]
