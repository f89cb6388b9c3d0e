"""Softmax along an axis that is not the last, for which onnxruntime copies all of it to and fro: decision 0048."""

import math

import numpy as np
import onnx
from onnx import helper

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import is_float_constant
from autoquant.model.opsets import SOFTMAX_OF_ONE_AXIS
from autoquant.rewrites.chain import Chain
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["expect_last", "split_softmax", "transpose_softmax"]

_AXES_ARE_INPUTS = 18
"""The opset from which on they are of ReduceMax."""
_LEAST_BEHIND = 1024
"""Values that lie behind one of the axis at least: with few of them the parts take longer."""
_RANK = 4


@of_each_node(_AXES_ARE_INPUTS)
def split_softmax(edit: Edit, node: Node) -> None:
    """A Softmax of channels, as of segmentation, becomes the exponentials of differences by their sum."""
    shape, axis = _along(edit.graph, node)
    if shape and math.prod(shape[axis + 1 :]) >= _LEAST_BEHIND:
        edit.replaced[node.index] = _parts(edit, node, axis)


@of_each_node(SOFTMAX_OF_ONE_AXIS)
def transpose_softmax(edit: Edit, node: Node) -> None:
    """A Transpose that alone reads a Softmax and puts its axis last comes before it, as in attention over tokens."""
    shape, axis = _along(edit.graph, node)
    reader = edit.graph.only_reader(node.outputs[0]) if shape and axis < len(shape) - 1 else None
    if reader is None or reader.op_type != "Transpose":
        return
    perm = list(reader.attributes.get("perm", range(len(shape))[::-1]))
    if perm[-1] != axis:
        return
    chain = Chain(edit, node, output=reader.outputs[0])
    chain.add("Transpose", part="last", perm=perm)
    chain.add("Softmax", axis=-1)
    edit.replaced |= {node.index: chain.nodes, reader.index: ()}


@of_each_node(SOFTMAX_OF_ONE_AXIS)
def expect_last(edit: Edit, node: Node) -> None:
    """A mean that a Softmax of channels weights, written as a Conv of 1 x 1, is of a last axis, as a product.

    Detectors like YOLOv8 have distances to the edges of boxes so: a Transpose, a Softmax, and a Conv with one output.
    """
    graph = edit.graph
    softmax = graph.producer.get(node.inputs[0]) if node.op_type == "Conv" else None
    transpose = None if softmax is None else graph.producer.get(softmax.inputs[0])
    if softmax is None or transpose is None or not _is_expectation(graph, transpose, softmax, node):
        return
    n, n_channels, *places = graph.shape(node.inputs[0]) or ()
    chain = Chain(edit, node, transpose.inputs[0])
    chain.add("Transpose", part="last", perm=[transpose.attributes["perm"][i] for i in (0, 2, 3, 1)])
    chain.add("Softmax", part="shares", axis=-1)
    chain.add("MatMul", {"weight": graph.constant(node.inputs[1]).reshape(n_channels, 1)})
    chain.reshape((n, 1, *places), "expected")
    edit.replaced |= {transpose.index: (), softmax.index: (), node.index: chain.nodes}


def _along(graph: Graph, node: Node) -> tuple[tuple[int, ...], int]:
    """The shape of what a Softmax reads, and its axis; no shape for all else."""
    is_softmax = node.op_type == "Softmax" and node.inputs[0] in graph.float_tensors
    shape = graph.shape(node.inputs[0]) if is_softmax else None
    if not shape or 0 in shape:
        return (), 0
    return shape, int(node.attributes.get("axis", -1)) % len(shape)


def _parts(edit: Edit, node: Node, axis: int) -> list[onnx.NodeProto]:
    axes = edit.constant(f"{node.name}_axes", np.array([axis], np.int64))
    largest, apart, powers, total = (
        edit.names.new(f"{node.name}_{part}") for part in ("largest", "apart", "powers", "total")
    )
    rows = (
        ("ReduceMax", [node.inputs[0], axes], largest),
        ("Sub", [node.inputs[0], largest], apart),
        ("Exp", [apart], powers),
        ("ReduceSum", [powers, axes], total),
        ("Div", [powers, total], node.outputs[0]),
    )
    return [
        helper.make_node(op_type, read, [written], name=f"{node.name}_{op_type}") for op_type, read, written in rows
    ]


def _is_expectation(graph: Graph, transpose: Node, softmax: Node, conv: Node) -> bool:
    """Whether nothing else reads what is between them, and the Conv sums up the channels that the Softmax is of."""
    shape, axis = _along(graph, softmax)
    weight = graph.shape(conv.inputs[1]) or ()
    is_sum = is_float_constant(conv.inputs[1], graph) and len(shape) == _RANK and weight == (1, shape[1], 1, 1)
    is_plain = len(conv.inputs) == 2 and set(conv.attributes.get("strides", ())) <= {1}
    is_plain = is_plain and not any(conv.attributes.get("pads", ())) and transpose.op_type == "Transpose"
    are_alone = graph.only_reader(transpose.outputs[0]) is softmax and graph.only_reader(softmax.outputs[0]) is conv
    return is_sum and axis == 1 and is_plain and are_alone and "perm" in transpose.attributes
