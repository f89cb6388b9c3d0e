"""Products of what is joined repeated: one vector to each place of an image, what nodes of a graph hold to edges."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, is_float_constant
from autoquant.model.opsets import GEMM_WITHOUT_BIAS
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["multiply_before_repeating"]

_LEAST_FLOPS = 32
"""Of each value that another sum writes, which no longer are computed: it takes about as long as so many."""
_LEAST_REPEATED = 2
_CHANNELS = 1
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """What a Concat joins.

    Attributes:
        tensor: That it reads.
        channels: Where they are in what it writes.
        repeating: What writes it, if that repeats rows of what it reads.
    """

    tensor: TensorName
    channels: slice
    repeating: Node | None

    @property
    def source(self) -> TensorName:
        """What is multiplied."""
        return self.tensor if self.repeating is None else self.repeating.inputs[0]

    @property
    def gather(self) -> Node | None:
        """What repeats rows, where no sum does that by itself."""
        return self.repeating if self.repeating is not None and self.repeating.op_type == "Gather" else None


@of_each_node()
def multiply_before_repeating(edit: Edit, node: Node) -> None:
    """``W [a; b]`` becomes ``Wa a + Wb b``, each product taken before what it multiplies is repeated.

    So PointNet joins the features of a whole cloud to those of each point, segmentation those of a whole image to each
    place, and a graph network those of both nodes to each edge.
    """
    graph = edit.graph
    concat = graph.producer.get(node.inputs[0]) if _is_product(graph, node) else None
    if concat is None or concat.op_type != "Concat" or graph.only_reader(node.inputs[0]) is not node:
        return
    parts = _parts(graph, node, concat)
    if len(parts) > 1 and _is_worth_it(graph, node, parts):
        edit.replaced |= dict.fromkeys((concat.index, *_unread(edit, concat, parts)), ())
        edit.replaced[node.index] = tuple(_sum(edit, node, concat, parts))


def _is_product(graph: Graph, node: Node) -> bool:
    """Of rows or places with a constant matrix, one by one."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or not is_float_constant(node.inputs[1], graph):
        return False
    shape, attributes = graph.shape(node.inputs[1]) or (), node.attributes
    if node.op_type != "Conv":
        is_too_old = node.op_type == "Gemm" and opset_of(graph.model) < GEMM_WITHOUT_BIAS
        return len(shape) == 2 and not attributes.get("transA", 0) and not is_too_old
    is_of_places = math.prod(shape[2:]) == 1 and set(attributes.get("strides", ())) <= {1}
    return is_of_places and attributes.get("group", 1) == 1 and not any(attributes.get("pads", ()))


def _parts(graph: Graph, node: Node, concat: Node) -> list[_Part]:
    """Nothing where other axes than that of channels are joined, or a size is not known."""
    shapes = [graph.shape(name) for name in (*concat.inputs, concat.outputs[0])]
    known = [shape for shape in shapes if shape and 0 not in shape]
    if len(known) < len(shapes) or concat.attributes["axis"] % len(known[-1]) != _channel_axis(node, known[-1]):
        return []
    parts, start = list[_Part](), 0
    for tensor, shape in zip(concat.inputs, known, strict=False):
        stop = start + shape[_channel_axis(node, shape)]
        repeating = graph.producer.get(tensor)
        is_it = repeating is not None and _repeats(graph, node, repeating)
        parts.append(_Part(tensor, slice(start, stop), repeating if is_it else None))
        start = stop
    return parts


def _channel_axis(node: Node, shape: Shape) -> int:
    return _CHANNELS if node.op_type == "Conv" else len(shape) - 1


def _repeats(graph: Graph, node: Node, repeating: Node) -> bool:
    """Whether rows, or places, of what it reads are there several times in what it writes, and nothing else is."""
    source, written = graph.shape(repeating.inputs[0]), graph.shape(repeating.outputs[0])
    if not source or not written or math.prod(written) < _LEAST_REPEATED * math.prod(source):
        return False
    axis = _channel_axis(node, source)
    if repeating.op_type == "Gather":
        is_of_rows = repeating.attributes.get("axis", 0) % len(source) != axis
        return node.op_type != "Conv" and is_of_rows and (node.op_type == "MatMul" or len(source) == 2)
    if len(source) != len(written) or source[axis] != written[axis]:
        return False
    is_resized = repeating.op_type == "Resize" and set(source[_CHANNELS + 1 :]) == {1} and _copies(repeating)
    return repeating.op_type == "Expand" or (node.op_type == "Conv" and is_resized and source[0] == written[0])


def _copies(resize: Node) -> bool:
    """Whether one place becomes all others: outside of it there may be another value."""
    return bool(resize.attributes.get("coordinate_transformation_mode", b"") != b"tf_crop_and_resize")


def _is_worth_it(graph: Graph, node: Node, parts: Sequence[_Part]) -> bool:
    """By what is computed once instead of often, and that sums of all rows come to it."""
    joined = graph.shape(node.inputs[0]) or ()
    n_rows, n_saved = math.prod(joined) // joined[_channel_axis(node, joined)], 0
    repeated = [part for part in parts if part.repeating is not None]
    for part in repeated:
        n_channels = part.channels.stop - part.channels.start
        n_saved += 2 * (n_channels * n_rows - math.prod(graph.shape(part.source) or ()))
    if len(repeated) == len(parts) and not _is_of_each_row(graph, node):
        return False
    n_sums = len(repeated) - (len(repeated) == len(parts))
    has_all_rows = len(repeated) < len(parts) or any(part.gather is not None for part in repeated)
    return bool(repeated) and has_all_rows and n_saved >= _LEAST_FLOPS * n_rows * n_sums


def _is_of_each_row(graph: Graph, node: Node) -> bool:
    """Whether a bias is the same for all rows, so that a product of fewer of them can have it."""
    bias = bias_of(node)
    shape = () if bias is None else graph.shape(bias)
    return shape is not None and (len(shape) < 2 or shape[0] == 1)


def _unread(edit: Edit, concat: Node, parts: Sequence[_Part]) -> Iterator[int]:
    """Indices of what repeats rows for this Concat, and others that are gone, alone."""
    graph = edit.graph
    for part in parts:
        others = [reader for reader in graph.consumers[part.tensor] if reader is not concat]
        is_read = part.tensor in graph.pinned or any(edit.replaced.get(reader.index) != () for reader in others)
        if part.repeating is not None and not is_read:
            yield part.repeating.index


def _sum(edit: Edit, node: Node, concat: Node, parts: Sequence[_Part]) -> Iterator[onnx.NodeProto]:
    """The first summand has all rows, and the bias; others may be repeated by the sum itself."""
    whole = [part for part in parts if part.repeating is None]
    repeated = [[part] for part in parts if part.repeating is not None]
    repeated.sort(key=lambda own: own[0].gather is None)
    summands, total = [*([whole] if whole else []), *repeated], ""
    for number, own in enumerate(summands):
        nodes = [*_joined(edit, concat, own)]
        nodes.append(_product(edit, node, nodes[0].output[0] if nodes else own[0].source, own, number))
        if own[0].gather is not None:
            gather, product = edit.graph.copy_of(own[0].gather), nodes[-1]
            gather.name, gather.input[0] = f"{product.name}_rows", product.output[0]
            gather.output[0] = edit.names.new(gather.name)
            nodes.append(gather)
        if number:
            name = f"{node.name}_sum_{number}"
            written = node.outputs[0] if number == len(summands) - 1 else edit.names.new(name)
            nodes.append(helper.make_node("Add", [total, nodes[-1].output[0]], [written], name=name))
        yield from nodes
        total = nodes[-1].output[0]


def _joined(edit: Edit, concat: Node, own: Sequence[_Part]) -> Iterator[onnx.NodeProto]:
    """The Concat of what is not repeated, where that are several tensors."""
    if len(own) > 1:
        proto = edit.graph.copy_of(concat)
        del proto.input[:]
        proto.input.extend(part.tensor for part in own)
        proto.output[0] = edit.names.new(f"{concat.outputs[0]}_whole")
        yield proto


def _product(edit: Edit, node: Node, source: str, own: Sequence[_Part], number: int) -> onnx.NodeProto:
    """With the part of the weight that multiplies some channels; the first one has the bias."""
    graph, proto = edit.graph, edit.graph.copy_of(node)
    weight, bias = graph.constant(node.inputs[1]), bias_of(node)
    axis = 1 if node.op_type == "Conv" or node.attributes.get("transB", 0) else 0
    rows = np.concatenate([weight[(slice(None),) * axis + (part.channels,)] for part in own], axis=axis)
    name = f"{node.name}_part_{number}" if number else node.name
    proto.name = name
    del proto.input[:]
    proto.input.extend([source, edit.constant(f"{node.inputs[1]}_{number}", np.ascontiguousarray(rows))])
    if bias is not None and not number:
        proto.input.append(bias)
    proto.output[0] = edit.names.new(f"{node.outputs[0]}_{number}")
    return proto
