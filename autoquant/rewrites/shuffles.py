"""Channels that are shuffled, as ShuffleNet does."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.edits import Edit, Parts
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.unread import drop_unread

__all__ = ["gather_channels"]

_CHANNELS = 1
_Places = npt.NDArray[np.int64]


def gather_channels(model: Model) -> Model:
    """A Transpose of groups of channels of images between two Reshapes becomes a Gather, those of its parts for each.

    It copies whole planes, once where parts alone are read.

    References:
        Zhang et al., "ShuffleNet: An Extremely Efficient Convolutional Neural Network for Mobile Devices", CVPR 2018.
    """
    if opset_of(model) < SLICE_HAS_INPUTS:
        return model
    edit = Edit(graph_of(model))
    for node in edit.graph.nodes:
        found = _shuffle(edit.graph, node)
        if found is not None:
            source, places = found
            readers = edit.graph.consumers.get(node.outputs[0], ())
            parts = [list(_taken(edit.graph, reader)) for reader in readers]
            if node.outputs[0] in edit.graph.pinned or not all(parts):
                readers, parts = (node,), [[(node.outputs[0], slice(None))]]
            for reader, taken in zip(readers, parts, strict=True):
                _gather(edit, reader, source, places, taken)
    return drop_unread(edit.model()) if edit.replaced else model


def _gather(edit: Edit, node: Node, source: TensorName, places: _Places, taken: list[tuple[TensorName, slice]]) -> None:
    parts = Parts(edit, node)
    for i, (name, part) in enumerate(taken):
        chosen = parts.constant(f"places_{i}", places[part])
        parts.add("Gather", [source, chosen], part=f"part_{i}" if i else "", output=name, axis=_CHANNELS)
    edit.replaced[node.index] = parts.nodes


def _shuffle(graph: Graph, node: Node) -> tuple[TensorName, _Places] | None:
    """What a Reshape writes the shuffled channels of, and which come where; None where it does other things."""
    transpose = graph.producer.get(node.inputs[0]) if node.op_type == "Reshape" else None
    apart = graph.producer.get(transpose.inputs[0]) if transpose is not None else None
    if transpose is None or apart is None or transpose.op_type != "Transpose" or apart.op_type != "Reshape":
        return None
    shape, groups = graph.shape(apart.inputs[0]) or (), graph.shape(apart.outputs[0]) or ()
    if len(shape) <= SPATIAL or 0 in shape or graph.shape(node.outputs[0]) != shape:
        return None
    n_axes = len(shape) + 1
    is_apart = len(groups) == n_axes and groups[:1] + groups[3:] == shape[:1] + shape[2:]
    if not is_apart or list(transpose.attributes.get("perm", ())) != [0, 2, 1, *range(3, n_axes)]:
        return None
    return apart.inputs[0], np.arange(shape[1]).reshape(groups[1:3]).T.ravel()


def _taken(graph: Graph, node: Node) -> Iterator[tuple[TensorName, slice]]:
    """Each output of a Slice or Split of channels, and which of them it holds; nothing of other nodes."""
    shapes = [graph.shape(name) for name in (node.inputs[0], *node.outputs)]
    whole = shapes[0]
    if whole is None or any(shape is None for shape in shapes):
        return
    sizes = [shape[_CHANNELS] for shape in shapes[1:] if shape is not None]
    if node.op_type == "Split" and int(node.attributes.get("axis", 0)) % len(whole) == _CHANNELS:
        firsts = np.cumsum([0, *sizes[:-1]])
    elif node.op_type == "Slice" and axes_of(graph, node, len(whole)) == (_CHANNELS,) and _is_plain(graph, node):
        first = int(graph.constant(node.inputs[1]).item())
        firsts = np.array([max(first + whole[_CHANNELS], 0) if first < 0 else first])
    else:
        return
    yield from (
        (name, slice(int(i), int(i) + n)) for name, i, n in zip(node.outputs, firsts, sizes, strict=True) if name
    )


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether a Slice has a known start and a step of one."""
    steps = next(iter(node.inputs[4:]), TensorName(""))
    is_one = not steps or (graph.is_constant(steps) and bool((graph.constant(steps) == 1).all()))
    return is_one and graph.is_constant(node.inputs[1])
