"""Arithmetic in another place."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.edits import with_nodes
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames

__all__ = ["transpose_first"]

_MAX_PASSES = 16
_ARITHMETIC = ("Add", "Div", "Mul", "Sub")


def transpose_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """Arithmetic with constants goes behind a Transpose that alone reads it and puts the last axis second.

    There convolutions take it in; over a last axis of few channels it is slow, too. The argument stays as it is, and is
    given back where there is nothing to do.
    """
    for _ in range(_MAX_PASSES):
        graph = Graph(model)
        names = NewNames(graph)
        constants: list[onnx.TensorProto] = []
        replaced: dict[int, Sequence[onnx.NodeProto]] = {}
        for node in graph.nodes:
            transpose = _transpose_behind(graph, node)
            if transpose is not None and not {node.index, transpose.index} & replaced.keys():
                first, then, constant = _swapped(graph, node, transpose, names)
                replaced |= {node.index: (first,), transpose.index: (then,)}
                constants.append(constant)
        if not replaced:
            return model
        model = with_nodes(model, replaced, constants)
    return model


def _transpose_behind(graph: Graph, node: Node) -> Node | None:
    """The Transpose that a node can change places with."""
    if node.op_type not in _ARITHMETIC or sum(map(graph.is_constant, node.inputs)) != 1:
        return None
    reader, rank = graph.only_reader(node.outputs[0]), graph.rank(node.outputs[0])
    if reader is None or reader.op_type != "Transpose" or node.outputs[0] not in graph.float_tensors:
        return None
    source, constant = sorted(node.inputs, key=graph.is_constant)
    is_kept = graph.rank(source) == rank >= graph.constant(constant).ndim
    is_to_second = rank > 2 and list(reader.attributes.get("perm", ()))[1:2] == [rank - 1]
    return reader if is_kept and is_to_second else None


def _swapped(
    graph: Graph, node: Node, transpose: Node, names: NewNames
) -> tuple[onnx.NodeProto, onnx.NodeProto, onnx.TensorProto]:
    """The Transpose of what the node reads, the node behind it, and its constant."""
    source, constant = sorted(node.inputs, key=graph.is_constant)
    values = graph.constant(constant)
    wide = values.reshape((1,) * (graph.rank(source) - values.ndim) + values.shape)
    turned = numpy_helper.from_array(
        np.ascontiguousarray(wide.transpose(transpose.attributes["perm"])), names.new(f"{constant}_transposed")
    )
    first, then = graph.copy_of(transpose), graph.copy_of(node)
    first.input[0], first.output[0] = source, names.new(f"{source}_transposed")
    renamed: dict[TensorName, str] = {source: first.output[0], constant: turned.name}
    del then.input[:]
    then.input.extend(renamed[name] for name in node.inputs)
    then.output[0] = transpose.outputs[0]
    return first, then, turned
