"""Sums over the edges of a graph, as PyTorch writes them, by whole rows."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.affine import with_nodes
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames
from autoquant.model.unread import drop_unread

__all__ = ["scatter_rows"]

_REDUCTIONS = {b"add": 16, b"mul": 16, b"max": 18, b"min": 18}
"""With the opset from which on a ScatterND has them."""
_NEVER = 1 << 30


def scatter_rows(model: Model) -> Model:
    """A ScatterElements whose indices are one column, spread over the row, becomes ScatterND: decision 0051.

    That goes row by row and not element by element.

    Args:
        model: Stays as it is, and is given back where there is nothing to do.
    """
    graph = Graph(model)
    names, replaced, shapes = NewNames(graph), dict[int, Sequence[onnx.NodeProto]](), list[onnx.TensorProto]()
    for node in graph.nodes:
        column = _column(graph, node)
        if column is not None:
            shapes.append(numpy_helper.from_array(np.array([-1, 1], np.int64), names.new(f"{node.name}_column")))
            rows = names.new(f"{node.name}_rows")
            read = [node.inputs[0], rows, node.inputs[2]]
            replaced[node.index] = (
                helper.make_node("Reshape", [column, shapes[-1].name], [rows], name=f"{node.name}_Reshape"),
                helper.make_node(
                    "ScatterND", read, list(node.outputs), name=node.name, reduction=node.attributes["reduction"]
                ),
            )
    return drop_unread(with_nodes(model, replaced, shapes)) if replaced else model


def _column(graph: Graph, node: Node) -> TensorName | None:
    """What holds a row's index once; None for other nodes."""
    reduction = node.attributes.get("reduction", b"none") if node.op_type == "ScatterElements" else b"none"
    if opset_of(graph.model) < _REDUCTIONS.get(reduction, _NEVER) or node.attributes.get("axis", 0) != 0:
        return None
    spread = graph.producer.get(node.inputs[1])
    if spread is None or spread.op_type != "Expand":
        return None
    data, indices, updates = (graph.sizes(name) or () for name in node.inputs)
    (n_rows, *row), column = indices or (None,), graph.sizes(spread.inputs[0]) or ()
    is_whole = None not in row and [*data[1:]] == row and updates == indices and n_rows is not None
    return spread.inputs[0] if row and is_whole and column == (n_rows, *[1] * len(row)) else None
