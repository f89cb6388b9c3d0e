"""Padding of channels with zeros, which has no integer kernel."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoquant.model.affine import with_nodes
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames

__all__ = ["concatenate_zeros"]

_AXES = 2
"""The input that names axes, counted from the pads."""


def concatenate_zeros(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Pad that puts zeros before or behind the channels of tensors of known size becomes a Concat.

    The argument stays as it is, and is given back where there is nothing to do.
    """
    graph = Graph(model)
    replaced: dict[int, Sequence[onnx.NodeProto]] = {}
    constants: list[onnx.TensorProto] = []
    names = NewNames(graph)
    for node in graph.nodes:
        pads, shape = _zeros(graph, node), graph.shape(node.inputs[0]) if node.inputs else None
        if pads is None or shape is None or (pads < 0).any() or 0 in shape:
            continue
        if np.flatnonzero(pads.any(axis=0)).tolist() != [1]:
            continue
        parts: list[str] = [node.inputs[0]]
        for n, place in zip(pads[:, 1].tolist(), (0, 1), strict=True):
            if n:
                zeros = np.zeros((shape[0], n, *shape[2:]), np.float32)
                constants.append(numpy_helper.from_array(zeros, names.new(f"{node.name}_zeros")))
                parts.insert(place * len(parts), constants[-1].name)
        replaced[node.index] = (helper.make_node("Concat", parts, list(node.outputs), name=node.name, axis=1),)
    return with_nodes(model, replaced, constants)


def _zeros(graph: Graph, node: Node) -> np.ndarray | None:
    """How many zeros a Pad puts before and behind along each axis, shape (2, rank); None for other nodes."""
    if node.op_type != "Pad" or node.attributes.get("mode", b"constant") != b"constant":
        return None
    source, *read = node.inputs
    rank, given = graph.rank(source), [name for name in read if name]
    if not rank or source not in graph.float_tensors or not all(map(graph.is_constant, given)):
        return None
    value = graph.constant(read[1]).ravel() if len(read) > 1 and read[1] else node.attributes.get("value", 0.0)
    if np.any(value):
        return None
    pads = np.array(graph.constant(read[0]) if read else node.attributes["pads"]).reshape(2, -1)
    if len(read) <= _AXES or not read[_AXES]:
        return pads
    found = np.zeros((2, rank), pads.dtype)
    found[:, graph.constant(read[_AXES]).ravel()] = pads
    return found
