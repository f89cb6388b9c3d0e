"""Convolutions of single places before the Resizes that enlarge what they read: decision 0082."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import SCALES, SIZES, bias_of, is_float_constant
from autoquant.model.opsets import RESIZE_HAS_REGION
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["convolve_before_enlarging"]

_OF_RESIZED, _OF_ADDED = 64, 16
"""Products that take as long as a Resize takes for a value that it writes, and as a sum does: decision 0082."""
_CHANNELS = 1
_USUAL = {
    "antialias": 0,
    "coordinate_transformation_mode": b"half_pixel",
    "keep_aspect_ratio_policy": b"stretch",
    "mode": b"nearest",
}
_OUTSIDE, _SHIFTED = b"tf_crop_and_resize", b"tf_half_pixel_for_nn"
"""Places of which one may lie where another value is, and ones by which an image of the same size may be another."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Channels that a Conv reads.

    Attributes:
        tensor: What it reads.
        source: What is multiplied instead: it has as many.
        channels: Where they are in what the Conv reads.
        resize: That writes them, if it enlarges the places of the source.
    """

    tensor: TensorName
    source: TensorName
    channels: slice
    resize: Node | None

    @property
    def n_channels(self) -> int:
        """How many they are."""
        return int(self.channels.stop - self.channels.start)


@of_each_node(RESIZE_HAS_REGION)
def convolve_before_enlarging(edit: Edit, node: Node) -> None:
    """``W [up(a); up(b); c]`` becomes ``up(Wa a) + up(Wb b) + Wc c``, where ``up`` is a Resize of places.

    So heads of segmentation join what they found in images of several sizes. A Resize treats all channels alike, and
    what it makes of equal values is that value, so that the bias may come before it.
    """
    graph = edit.graph
    read = graph.producer.get(node.inputs[0]) if _is_of_single_places(graph, node) else None
    if read is None or graph.only_reader(node.inputs[0]) is not node:
        return
    groups = _groups(graph, _parts(graph, read))
    if _is_worth_it(graph, node, read, groups):
        passed = {part.tensor for own in groups for part in own if part.tensor != part.source}
        edit.replaced |= {graph.producer[name].index: () for name in passed if _is_for(graph, name, read)}
        edit.replaced |= {read.index: (), node.index: tuple(_sum(edit, node, groups))}


def _is_of_single_places(graph: Graph, node: Node) -> bool:
    """Whether it is a Conv that mixes all channels of each place by a constant matrix."""
    if node.op_type != "Conv" or not is_float_constant(node.inputs[1], graph):
        return False
    window, attributes = (graph.shape(node.inputs[1]) or ())[SPATIAL:], node.attributes
    is_plain = attributes.get("group", 1) == 1 and set(attributes.get("strides", ())) <= {1}
    return math.prod(window) == 1 and is_plain and not any(attributes.get("pads", ()))


def _parts(graph: Graph, read: Node) -> list[_Part]:
    """Of what a Resize, or a Concat of channels, writes; none where a size is not known."""
    written = graph.shape(read.outputs[0])
    if read.op_type not in ("Concat", "Resize") or written is None:
        return []
    is_joined = read.op_type == "Concat"
    if is_joined and read.attributes["axis"] % len(written) != _CHANNELS:
        return []
    parts, start = list[_Part](), 0
    for tensor in read.inputs if is_joined else read.outputs:
        shape = graph.shape(tensor)
        if shape is None or 0 in shape:
            return []
        parts.append(_part(graph, tensor, slice(start, start + shape[_CHANNELS])))
        start += shape[_CHANNELS]
    return parts


def _part(graph: Graph, tensor: TensorName, channels: slice) -> _Part:
    resize = graph.producer.get(tensor)
    if resize is not None and resize.op_type == "Resize" and _is_of_places(graph, resize):
        source = resize.inputs[0]
        before, behind = (math.prod(graph.shape(name) or ()) for name in (source, tensor))
        if before < behind:
            return _Part(tensor, source, channels, resize)
        if _is_idle(graph, resize):
            return _Part(tensor, source, channels, None)
    return _Part(tensor, tensor, channels, None)


def _is_of_places(graph: Graph, resize: Node) -> bool:
    """Whether shares of values that are near, which add up to 1, are all that it writes, of each channel by itself."""
    before, behind = graph.shape(resize.inputs[0]), graph.shape(resize.outputs[0])
    if not before or not behind or before[:SPATIAL] != behind[:SPATIAL] or resize.attributes.get("axes"):
        return False
    factors, sizes = _given(graph, resize, SCALES), _given(graph, resize, SIZES)
    is_plain = not _said(resize, "antialias") and _said(resize, "keep_aspect_ratio_policy") == b"stretch"
    is_inside = _said(resize, "coordinate_transformation_mode") != _OUTSIDE
    return is_plain and is_inside and None not in (factors, sizes) and set((factors or ())[:SPATIAL]) <= {1.0}


def _is_idle(graph: Graph, resize: Node) -> bool:
    """Whether it writes what it reads."""
    is_same = graph.shape(resize.inputs[0]) == graph.shape(resize.outputs[0])
    is_by_one = set(_given(graph, resize, SCALES) or ()) <= {1.0}
    return is_same and is_by_one and _said(resize, "coordinate_transformation_mode") != _SHIFTED


def _said(resize: Node, name: str) -> object:
    """By an attribute, or by leaving it out."""
    return resize.attributes.get(name, _USUAL[name])


def _given(graph: Graph, resize: Node, position: int) -> tuple[float, ...] | None:
    """What it reads there, nothing where it does not; None where that is not known."""
    name = resize.inputs[position] if len(resize.inputs) > position else None
    if not name:
        return ()
    return tuple(graph.constant(name).ravel().tolist()) if graph.is_constant(name) else None


def _groups(graph: Graph, parts: Sequence[_Part]) -> list[list[_Part]]:
    """Those that are enlarged alike together, and last those that are not enlarged, if there are any."""
    alike, whole = dict[object, list[_Part]](), list[_Part]()
    for part in parts:
        own = whole
        if part.resize is not None:
            said = sorted((name, str(value)) for name, value in part.resize.attributes.items())
            sizes = (graph.shape(name) or () for name in (part.source, part.tensor))
            key = (*said, *(size[SPATIAL:] for size in sizes), _given(graph, part.resize, SCALES))
            own = alike.setdefault(key, [])
        own.append(part)
    return [*alike.values(), *([whole] if whole else [])]


def _is_worth_it(graph: Graph, node: Node, read: Node, groups: Sequence[Sequence[_Part]]) -> bool:
    """By the products that are saved, and what Resizes and sums of what is written take more."""
    n_batch, n_channels, *places = graph.shape(node.outputs[0]) or (0, 0)
    n_places, n_saved, n_resized = n_batch * math.prod(places), 0, 0
    enlarged = [part for own in groups for part in own if part.resize is not None]
    for part in enlarged:
        n_before = math.prod(graph.shape(part.source) or ()) // part.n_channels
        n_saved += n_channels * part.n_channels * (n_places - n_before)
        n_resized -= part.n_channels * n_places * _is_for(graph, part.tensor, read)
    n_resized += n_channels * n_places * sum(own[0].resize is not None for own in groups)
    n_added = n_channels * n_places * (len(groups) - 1)
    if n_resized > 0 and any(part.resize and _said(part.resize, "mode") == b"cubic" for part in enlarged):
        return False
    return bool(enlarged) and n_saved > _OF_RESIZED * n_resized + _OF_ADDED * n_added


def _is_for(graph: Graph, tensor: TensorName, read: Node) -> bool:
    """Whether nothing else reads a tensor, so that its Resize is gone afterwards."""
    return tensor in read.outputs or graph.only_reader(tensor) is read


def _sum(edit: Edit, node: Node, groups: Sequence[Sequence[_Part]]) -> Iterator[onnx.NodeProto]:
    """What is not enlarged comes last: onnxruntime adds the rest, and clips all, where it convolves that."""
    total = ""
    for number, own in enumerate(groups):
        is_last = number == len(groups) - 1
        nodes = [*_joined(edit, node, own, number), _convolved(edit, node, own, number, has_bias=is_last)]
        nodes[-1].input[0] = nodes[0].output[0] if len(nodes) > 1 else own[0].source
        if own[0].resize is not None:
            nodes.append(_enlarged(edit, node, own[0].resize, nodes[-1]))
        if number:
            name = f"{node.name}_sum_{number}"
            nodes.append(helper.make_node("Add", [total, nodes[-1].output[0]], [edit.names.new(name)], name=name))
        if is_last:
            nodes[-1].output[0] = node.outputs[0]
        yield from nodes
        total = nodes[-1].output[0]


def _joined(edit: Edit, node: Node, own: Sequence[_Part], number: int) -> Iterator[onnx.NodeProto]:
    """The Concat of what is convolved together, where that are several tensors."""
    if len(own) > 1:
        name = f"{node.name}_joined_{number}"
        sources = [part.source for part in own]
        yield helper.make_node("Concat", sources, [edit.names.new(name)], name=name, axis=_CHANNELS)


def _convolved(edit: Edit, node: Node, own: Sequence[_Part], number: int, *, has_bias: bool) -> onnx.NodeProto:
    """With the part of the weight that multiplies some channels; the last one, with the bias, has the old name."""
    proto, bias, weight = edit.graph.copy_of(node), bias_of(node), edit.graph.constant(node.inputs[1])
    columns = np.concatenate([weight[:, part.channels] for part in own], axis=_CHANNELS)
    proto.name = node.name if has_bias else f"{node.name}_part_{number}"
    proto.input[1] = edit.constant(f"{node.inputs[1]}_{number}", np.ascontiguousarray(columns))
    del proto.input[2:]
    proto.input.extend([bias] if bias is not None and has_bias else [])
    proto.output[0] = edit.names.new(f"{node.outputs[0]}_{number}")
    return proto


def _enlarged(edit: Edit, node: Node, resize: Node, convolved: onnx.NodeProto) -> onnx.NodeProto:
    graph, proto = edit.graph, edit.graph.copy_of(resize)
    proto.name = f"{convolved.name}_enlarged"
    proto.input[0], proto.output[0] = convolved.output[0], edit.names.new(proto.name)
    sizes = _given(graph, resize, SIZES)
    if sizes:
        written = graph.shape(node.outputs[0]) or ()
        proto.input[SIZES] = edit.constant(f"{proto.name}_sizes", np.array(written, np.int64))
    return proto
