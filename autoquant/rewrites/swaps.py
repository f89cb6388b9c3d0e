"""Arithmetic in another place."""

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.blocks import ARITHMETIC
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.rewrites.edits import Edit

__all__ = ["transpose_first"]

_MAX_PASSES = 16


def transpose_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """Arithmetic with constants goes behind a Transpose that alone reads it and puts the last axis second.

    There convolutions take it in; over a last axis of few channels it is slow, too. The argument stays as it is, and is
    given back where there is nothing to do.
    """
    for _ in range(_MAX_PASSES):
        graph = graph_of(model)
        edit = Edit(graph)
        for node in graph.nodes:
            transpose = _transpose_behind(graph, node)
            if transpose is not None and edit.claim(node, transpose):
                _swap(edit, node, transpose)
        if not edit.replaced:
            return model
        model = edit.model()
    return model


def _transpose_behind(graph: Graph, node: Node) -> Node | None:
    """The Transpose that a node can change places with."""
    if node.op_type not in ARITHMETIC or sum(map(graph.is_constant, node.inputs)) != 1:
        return None
    reader, rank = graph.only_reader(node.outputs[0]), graph.rank(node.outputs[0])
    if reader is None or reader.op_type != "Transpose" or node.outputs[0] not in graph.float_tensors:
        return None
    source, constant = sorted(node.inputs, key=graph.is_constant)
    is_kept = graph.rank(source) == rank >= graph.constant(constant).ndim
    is_to_second = rank > 2 and list(reader.attributes.get("perm", ()))[1:2] == [rank - 1]
    return reader if is_kept and is_to_second else None


def _swap(edit: Edit, node: Node, transpose: Node) -> None:
    """The Transpose of what the node reads comes first, and behind it the node with its constant transposed."""
    graph = edit.graph
    source, constant = sorted(node.inputs, key=graph.is_constant)
    values = graph.constant(constant)
    wide = values.reshape((1,) * (graph.rank(source) - values.ndim) + values.shape)
    turned = edit.constant(f"{constant}_transposed", wide.transpose(transpose.attributes["perm"]))
    first, then = graph.copy_of(transpose), graph.copy_of(node)
    first.input[0], first.output[0] = source, edit.names.new(f"{source}_transposed")
    renamed: dict[TensorName, str] = {source: first.output[0], constant: turned}
    del then.input[:]
    then.input.extend(renamed[name] for name in node.inputs)
    then.output[0] = transpose.outputs[0]
    edit.replaced |= {node.index: (first,), transpose.index: (then,)}
