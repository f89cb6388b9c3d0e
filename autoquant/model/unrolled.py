"""Steps of a recurrent network that an exporter wrote one after the other."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.edits import Edit, Parts
from autoquant.model.graph import Graph, Node
from autoquant.model.unread import drop_unread

__all__ = ["join_steps"]

_LEAST_SHARE = 0.5
"""Of what is sliced: less of it may be read by the products that are joined, but then more is computed than before."""
_MATRIX = 2
_PRODUCTS = ("Gemm", "MatMul")


def join_steps(model: Model) -> Model:
    """Products of slices of one tensor with one matrix become slices of one product of the whole tensor.

    PyTorch exports a loop over cells of an LSTM, GRU or attention as a Gather and a product a step, each of which reads
    the whole matrix for a few rows. Slices are those that Gather takes along another axis than the last.
    """
    graph = Graph(model)
    edit = Edit(graph)
    groups: dict[Any, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        gather = _slice_of(graph, node)
        if gather is not None:
            same = node.op_type, node.inputs[1:], tuple(sorted(node.attributes.items()))
            groups[gather.inputs[0], _axis(graph, gather), same].append(node)
    for steps in groups.values():
        if _covers(graph, steps):
            _join(edit, steps)
    return drop_unread(edit.model()) if edit.replaced else model


def _slice_of(graph: Graph, node: Node) -> Node | None:
    """The Gather that a product of a matrix reads; None for what is no such product."""
    if node.op_type not in _PRODUCTS or graph.rank(node.inputs[1]) != _MATRIX:
        return None
    if node.attributes.get("transA", 0) or not all(graph.is_constant(name) for name in node.inputs[1:] if name):
        return None
    n_written = _n_written(graph, node)
    if len(node.inputs) > _MATRIX and graph.shape(node.inputs[2]) not in ((n_written,), (1, n_written)):
        return None
    gather = graph.producer.get(node.inputs[0])
    if gather is None or gather.op_type != "Gather" or not graph.is_constant(gather.inputs[1]):
        return None
    sizes = graph.shape(gather.inputs[0])
    is_whole = sizes is not None and 0 not in sizes and _axis(graph, gather) < len(sizes) - 1
    return gather if is_whole and gather.inputs[0] in graph.float_tensors else None


def _axis(graph: Graph, gather: Node) -> int:
    axis: int = gather.attributes.get("axis", 0)
    return axis % max(graph.rank(gather.inputs[0]), 1)


def _n_written(graph: Graph, node: Node) -> int:
    """Columns of the matrix, as it is multiplied with."""
    sizes = graph.shape(node.inputs[1]) or ()
    return sizes[0 if node.attributes.get("transB", 0) else 1]


def _covers(graph: Graph, steps: Sequence[Node]) -> bool:
    """Whether there are several, which read most of what is sliced."""
    gather = graph.producer[steps[0].inputs[0]]
    n = (graph.shape(gather.inputs[0]) or ())[_axis(graph, gather)]
    indices = [graph.constant(graph.producer[step.inputs[0]].inputs[1]) % n for step in steps]
    return len(steps) > 1 and len({int(i) for each in indices for i in each.flat}) >= _LEAST_SHARE * n


def _join(edit: Edit, steps: Sequence[Node]) -> None:
    graph, first = edit.graph, steps[0]
    gather = graph.producer[first.inputs[0]]
    axis, parts = _axis(graph, gather), Parts(edit, first)
    joined = _product(parts, gather.inputs[0])
    for step in steps:
        nodes = parts.nodes if step is first else []
        taken = graph.producer[step.inputs[0]]
        inputs, name = [joined, taken.inputs[1]], f"{step.name}_step"
        slice_ = helper.make_node("Gather", inputs, [step.outputs[0]], name=name, axis=axis)
        edit.replaced[step.index] = (*nodes, slice_)


def _product(parts: Parts, whole: TensorName) -> TensorName:
    """Of all slices at once."""
    node, graph = parts.node, parts.edit.graph
    sizes = graph.shape(whole) or ()
    if node.op_type == "MatMul" or len(sizes) == _MATRIX:
        return parts.add(node.op_type, [whole, *node.inputs[1:]], **node.attributes)
    flat, written = (math.prod(sizes[:-1]), sizes[-1]), (*sizes[:-1], _n_written(graph, node))
    flattened = parts.add("Reshape", [whole, parts.constant("flat", np.array(flat))], part="flatten")
    product = parts.add(node.op_type, [flattened, *node.inputs[1:]], **node.attributes)
    return parts.add("Reshape", [product, parts.constant("sizes", np.array(written))], part="unflatten")
