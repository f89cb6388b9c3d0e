"""Steps of a recurrent network that an exporter wrote one after the other."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.rewrites.edits import Edit, Parts
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.sources import with_sources
from autoquant.rewrites.unread import drop_unread

__all__ = ["join_steps", "restack"]

_LEAST_SHARE = 0.5
"""Of what is sliced: less of it may be read by the products that are joined, but then more is computed than before."""
_MATRIX = 2
_PRODUCTS = ("Gemm", "MatMul")
_ACTIVATIONS = ("Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Sigmoid", "Softplus", "Tanh")


def join_steps(model: Model) -> Model:
    """Products of slices of one tensor with one matrix, and activations of such, become slices of one for all.

    PyTorch exports a loop over cells of an LSTM, GRU or attention as a Gather and a product a step, each of which reads
    the whole matrix for a few rows; Keras 3 a layer for all steps as a Slice, a product and an activation for each.
    Products have slices along another axis than the last.
    """
    graph = graph_of(model)
    edit = Edit(graph)
    groups: dict[Any, list[_Step]] = defaultdict(list)
    for node in graph.nodes:
        step = _step_of(graph, node)
        if step is not None:
            same = node.op_type, node.inputs[1:], tuple(sorted(node.attributes.items()))
            groups[step.taken.source, step.taken.axis, same].append(step)
    for steps in groups.values():
        if _covers(graph, steps):
            _join(edit, steps)
    return drop_unread(edit.model()) if edit.replaced else model


def restack(model: Model) -> Model:
    """A Concat of all slices of one tensor, in their order, is that tensor."""
    graph = graph_of(model)
    nodes = [node for node in graph.nodes if node.op_type == "Concat" and node.outputs[0] not in graph.pinned]
    sources = {node.outputs[0]: _stacked(graph, node) for node in nodes}
    return with_sources(model, {name: source for name, source in sources.items() if source is not None})


@dataclass(frozen=True, slots=True)
class _Taken:
    """A slice.

    Attributes:
        source: What it is taken of.
        axis: Along which.
        indices: Of what is taken; a scalar where the axis goes.
    """

    source: TensorName
    axis: int
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Step:
    """A node that reads a slice."""

    node: Node
    taken: _Taken


def _step_of(graph: Graph, node: Node) -> _Step | None:
    """None for what is neither a product of a slice and a constant matrix nor an activation of a slice."""
    is_product = node.op_type in _PRODUCTS and _has_constant_matrix(graph, node)
    if not is_product and not (node.op_type in _ACTIVATIONS and len(node.inputs) == 1):
        return None
    taken = _taken(graph, node.inputs[0])
    if taken is None or taken.source not in graph.float_tensors:
        return None
    sizes = graph.shape(taken.source)
    is_whole = sizes is not None and 0 not in sizes and (not is_product or taken.axis < len(sizes) - 1)
    return _Step(node, taken) if is_whole else None


def _has_constant_matrix(graph: Graph, node: Node) -> bool:
    if graph.rank(node.inputs[1]) != _MATRIX or node.attributes.get("transA", 0):
        return False
    if not all(graph.is_constant(name) for name in node.inputs[1:] if name):
        return False
    n_written = _n_written(graph, node)
    return len(node.inputs) <= _MATRIX or graph.shape(node.inputs[2]) in ((n_written,), (1, n_written))


def _taken(graph: Graph, name: TensorName) -> _Taken | None:
    """What a tensor is a slice of, by a Gather, or a Slice of one place and a Squeeze."""
    node = graph.producer.get(name)
    if node is None or node.op_type not in ("Gather", "Squeeze"):
        return None
    if node.op_type == "Gather":
        if not graph.is_constant(node.inputs[1]):
            return None
        axis = node.attributes.get("axis", 0) % max(graph.rank(node.inputs[0]), 1)
        return _Taken(node.inputs[0], axis, graph.constant(node.inputs[1]))
    cut = graph.producer.get(node.inputs[0])
    sizes = None if cut is None or cut.op_type != "Slice" else graph.shape(cut.inputs[0])
    if cut is None or not sizes or not all(graph.is_constant(each) for each in cut.inputs[1:]):
        return None
    axes = axes_of(graph, cut, len(sizes))
    bounds = [graph.constant(each).ravel() for each in cut.inputs[1:]]
    if axes is None or axes != axes_of(graph, node, len(sizes)) or {len(each) for each in bounds} != {1}:
        return None
    (axis,) = axes
    start, end, step = slice(*(int(each[0]) for each in (*bounds[:2], *bounds[3:]))).indices(sizes[axis])
    return _Taken(cut.inputs[0], axis, np.array(start)) if end == start + 1 and step == 1 else None


def _stacked(graph: Graph, node: Node) -> TensorName | None:
    """What all inputs of a Concat are slices of; None where some are missing or lie in another order."""
    axis, found = node.attributes["axis"] % max(graph.rank(node.outputs[0]), 1), list[_Taken]()
    for name in node.inputs:
        added = graph.producer.get(name)
        is_added = added is not None and added.op_type == "Unsqueeze"
        taken = _taken(graph, added.inputs[0]) if added is not None and is_added else None
        if added is None or taken is None or taken.indices.ndim or taken.axis != axis:
            return None
        if axes_of(graph, added, graph.rank(taken.source)) != (axis,) or taken.source != (found or [taken])[0].source:
            return None
        found.append(taken)
    n = (graph.shape(found[0].source) or (0,) * (axis + 1))[axis] if found else 0
    return found[0].source if n and [int(each.indices) % n for each in found] == list(range(n)) else None


def _n_written(graph: Graph, node: Node) -> int:
    """Columns of the matrix, as it is multiplied with."""
    sizes = graph.shape(node.inputs[1]) or ()
    return sizes[0 if node.attributes.get("transB", 0) else 1]


def _covers(graph: Graph, steps: Sequence[_Step]) -> bool:
    """Whether there are several, which read most of what is sliced."""
    taken = steps[0].taken
    n = (graph.shape(taken.source) or ())[taken.axis]
    indices = [step.taken.indices % n for step in steps]
    return len(steps) > 1 and len({int(i) for each in indices for i in each.flat}) >= _LEAST_SHARE * n


def _join(edit: Edit, steps: Sequence[_Step]) -> None:
    first = steps[0]
    parts = Parts(edit, first.node)
    joined = _joined(parts, first.taken.source)
    for step in steps:
        nodes = parts.nodes if step is first else []
        index = edit.constant(f"{step.node.name}_index", step.taken.indices)
        inputs, name = [joined, index], f"{step.node.name}_step"
        slice_ = helper.make_node("Gather", inputs, [step.node.outputs[0]], name=name, axis=first.taken.axis)
        edit.replaced[step.node.index] = (*nodes, slice_)


def _joined(parts: Parts, whole: TensorName) -> TensorName:
    """Of all slices at once."""
    node, graph = parts.node, parts.edit.graph
    sizes = graph.shape(whole) or ()
    if node.op_type != "Gemm" or len(sizes) == _MATRIX:
        return parts.add(node.op_type, [whole, *node.inputs[1:]], **node.attributes)
    flat, written = (math.prod(sizes[:-1]), sizes[-1]), (*sizes[:-1], _n_written(graph, node))
    flattened = parts.add("Reshape", [whole, parts.constant("flat", np.array(flat))], part="flatten")
    product = parts.add(node.op_type, [flattened, *node.inputs[1:]], **node.attributes)
    return parts.add("Reshape", [product, parts.constant("sizes", np.array(written))], part="unflatten")
