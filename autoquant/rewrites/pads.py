"""Pads, which have no integer kernel, done by operators that have one.

Each rewrite leaves its argument untouched, and gives it back where there is nothing to do.
"""

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL, UNPADDED
from autoquant.rewrites.chain import TO_THE_END, Chain, of_each_chain
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.sources import with_sources

__all__ = ["concatenate_zeros", "crop", "drop_pads", "fold_pads", "spell_pads"]

_AXES = 2
"""The input that names axes, counted from the pads."""
_LARGEST_KERNEL = 7
"""A Conv of larger ones may take longer with padding of its own: one of 64 x 1 takes 1.7 times as long."""
Pads = npt.NDArray[np.int64]
"""Before and behind along each axis, shape (2, rank)."""


def drop_pads(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Pad that puts nothing anywhere, as UNets have where sizes fit, is left out."""
    graph = graph_of(model)
    idle = [
        node
        for node in graph.nodes
        if (pads := _pads(graph, node)) is not None and not pads.any() and node.outputs[0] not in graph.pinned
    ]
    return with_sources(model, {node.outputs[0]: node.inputs[0] for node in idle})


@of_each_node()
def spell_pads(edit: Edit, node: Node) -> None:
    """A Pad that names axes says of all of them what is put there.

    Where onnxruntime moves a Transpose past one that names some, it fails: it takes its pads for those of all axes.
    """
    graph = edit.graph
    pads = _pads(graph, node)
    if pads is None or len(node.inputs) <= 1 + _AXES:
        return
    proto = graph.copy_of(node)
    proto.input[1] = edit.constant(f"{node.name}_pads", pads.ravel())
    del proto.input[1 + _AXES :]
    edit.replaced[node.index] = (proto,)


@of_each_node()
def concatenate_zeros(edit: Edit, node: Node) -> None:
    """A Pad that puts zeros before or behind the channels of tensors of known size becomes a Concat."""
    graph = edit.graph
    pads = _zeros(graph, node)
    shape = None if pads is None else graph.shape(node.inputs[0])
    if pads is None or shape is None or 0 in shape or (pads < 0).any():
        return
    if np.flatnonzero(pads.any(axis=0)).tolist() != [1]:
        return
    parts: list[str] = [node.inputs[0]]
    for n, place in zip(pads[:, 1].tolist(), (0, 1), strict=True):
        if n:
            zeros = np.zeros((shape[0], n, *shape[2:]), np.float32)
            parts.insert(place * len(parts), edit.constant(f"{node.name}_zeros", zeros))
    edit.replaced[node.index] = (helper.make_node("Concat", parts, list(node.outputs), name=node.name, axis=1),)


@of_each_chain(SLICE_HAS_INPUTS)
def crop(graph: Graph, chain: Chain) -> None:
    """A Pad of negative numbers, as crops in UNets are exported, becomes a Slice."""
    pads = _zeros(graph, chain.node)
    if pads is not None and pads.any() and not (pads > 0).any():
        axes = np.flatnonzero(pads.any(axis=0))
        ends = np.where(pads[1] < 0, pads[1], TO_THE_END)
        chain.add("Slice", {"starts": -pads[0, axes], "ends": ends[axes], "axes": axes})


@of_each_node()
def fold_pads(edit: Edit, node: Node) -> None:
    """Zeros around images become the padding of the convolutions with small kernels that alone read them.

    onnxruntime does that too, but for a Pad whose value is an empty input, as PyTorch writes it.
    """
    graph = edit.graph
    pads = _zeros(graph, node)
    if pads is None or not pads[:, SPATIAL:].any() or pads[:, :SPATIAL].any() or (pads < 0).any():
        return
    readers = graph.consumers.get(node.outputs[0], ())
    if node.outputs[0] not in graph.pinned and all(_may_pad(graph, node, reader) for reader in readers):
        edit.replaced[node.index] = ()
        for reader in readers:
            edit.replaced[reader.index] = (_padding(graph, reader, node.inputs[0], pads[:, SPATIAL:]),)


def _zeros(graph: Graph, node: Node) -> Pads | None:
    """How many zeros a Pad puts before and behind along each axis; None for other nodes."""
    pads = _pads(graph, node)
    if pads is None or node.attributes.get("mode", b"constant") != b"constant":
        return None
    if node.inputs[0] not in graph.float_tensors or not all(
        graph.is_constant(name) for name in node.inputs[1:] if name
    ):
        return None
    has_value = len(node.inputs) > _AXES and node.inputs[_AXES]
    value = graph.constant(node.inputs[_AXES]).ravel() if has_value else node.attributes.get("value", 0.0)
    return None if np.any(value) else pads


def _pads(graph: Graph, node: Node) -> Pads | None:
    """What a Pad puts along each axis, whatever it is; None where that is computed, or the node is another one."""
    if node.op_type != "Pad" or not all(graph.is_constant(name) for name in node.inputs[1:2]):
        return None
    rank, axes = graph.rank(node.inputs[0]), next(iter(node.inputs[1 + _AXES :]), "")
    pads = np.array(graph.constant(node.inputs[1]) if node.inputs[1:] else node.attributes["pads"], np.int64)
    if not axes:
        return pads.reshape(2, -1)
    if not rank or not graph.is_constant(TensorName(axes)):
        return None
    found = np.zeros((2, rank), np.int64)
    found[:, graph.constant(TensorName(axes)).ravel()] = pads.reshape(2, -1)
    return found


def _may_pad(graph: Graph, pad: Node, reader: Node) -> bool:
    """Whether it is a Conv of the padded images, without a padding of its own that depends on their size."""
    if reader.op_type != "Conv" or reader.attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED:
        return False
    kernel = (graph.shape(reader.inputs[1]) or ())[SPATIAL:]
    is_image = reader.inputs[0] == pad.outputs[0] and reader.inputs.count(pad.outputs[0]) == 1
    return is_image and bool(kernel) and max(kernel) <= _LARGEST_KERNEL


def _padding(graph: Graph, conv: Node, source: str, pads: Pads) -> onnx.NodeProto:
    proto = graph.copy_of(conv)
    proto.input[0] = source
    own = np.array(conv.attributes.get("pads", np.zeros_like(pads))).reshape(2, -1)
    for attribute in list(proto.attribute):
        if attribute.name in ("auto_pad", "pads"):
            proto.attribute.remove(attribute)
    proto.attribute.append(helper.make_attribute("pads", (own + pads).ravel().tolist()))
    return proto
