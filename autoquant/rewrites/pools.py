"""Means written as convolutions, whose integer kernels are faster.

What it costs and wins is in decision 0039.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import copy_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import has_constant_bias
from autoquant.model.rewrite import infer_shapes
from autoquant.model.windows import RANKS, UNPADDED, Axis, window_axes
from autoquant.rewrites.chain import Chain
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["convolve_first", "drop_idle_dilations", "lower_average_pool", "spell_ceiled", "weigh_pools"]

_MOST_PLACES = 14 * 14
"""Of a window: larger ones are as fast, but each channel of the weight holds them all."""
_SLOW_OPSET = 19
"""From it on onnxruntime's kernel of AveragePool for images that are in no blocks goes through them place by place."""
_DILATED_OPSET = 19
"""From it on an AveragePool has dilations."""
_BLOCK = 8
"""Channels of a block; there are blocks of 16 on some processors."""
_CARRIED = ("auto_pad", "dilations", "pads", "strides")
"""Attributes that a Conv has too."""


def spell_ceiled(model: onnx.ModelProto) -> onnx.ModelProto:
    """Pools without ``ceil_mode`` where it adds no window: ONNX infers those too that begin in the padding behind.

    https://github.com/onnx/onnx/issues/5711. What a pool reads may be known once one before it is written so.
    """
    if not any(a.name == "ceil_mode" and a.i for node in model.graph.node for a in node.attribute):
        return model
    copy = copy_of(model)
    while True:
        graph = Graph(infer_shapes(copy))
        found = next((node for node in graph.nodes if _is_floored(node, graph)), None)
        if found is None:
            return copy
        (ceiling,) = (a for a in copy.graph.node[found.index].attribute if a.name == "ceil_mode")
        ceiling.i = 0


def _is_floored(node: Node, graph: Graph) -> bool:
    """Whether a pool says ``ceil_mode`` and has no more windows than without."""
    return (
        bool(node.attributes.get("ceil_mode", 0))
        and _is_unpadded(node)
        and all(axis.is_ceiled is False for axis in window_axes(node, graph))
    )


def _is_unpadded(node: Node) -> bool:
    """Whether nothing is padded but what the node itself says."""
    return node.attributes.get("auto_pad", UNPADDED[0]) in UNPADDED


@of_each_node(_DILATED_OPSET)
def drop_idle_dilations(edit: Edit, node: Node) -> None:
    """An AveragePool without dilations that leave nothing out: the integer kernel knows no such attribute."""
    if node.op_type == "AveragePool" and set(node.attributes.get("dilations", ())) == {1}:
        plain = edit.graph.copy_of(node)
        kept = [attribute for attribute in plain.attribute if attribute.name != "dilations"]
        del plain.attribute[:]
        plain.attribute.extend(kept)
        edit.replaced[node.index] = (plain,)


def convolve_first(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Conv of single places comes before the AveragePool that it alone reads, where it writes fewer channels.

    Both are linear, and the coefficients of a mean add up to one, so that the bias stays. The integer kernel of such
    pools is slow for each value.
    """
    edit = Edit(graph_of(model))
    for node in edit.graph.nodes:
        reader = edit.graph.only_reader(node.outputs[0]) if _is_mean(node) else None
        if reader is not None and _mixes_to_fewer(reader, edit.graph):
            first, then = edit.graph.copy_of(reader), edit.graph.copy_of(node)
            first.input[0], first.output[0] = node.inputs[0], edit.names.new(f"{reader.outputs[0]}_of_places")
            then.input[0], then.output[0] = first.output[0], reader.outputs[0]
            edit.replaced |= {node.index: (first,), reader.index: (then,)}
    return infer_shapes(edit.model()) if edit.replaced else model


def _is_mean(node: Node) -> bool:
    """Whether a pool has means of the places inside alone, around each place."""
    strides, pads = node.attributes.get("strides", ()), node.attributes.get("pads", ())
    is_inside = not node.attributes.get("count_include_pad", 0) or (not any(pads) and _is_unpadded(node))
    return node.op_type == "AveragePool" and is_inside and all(stride == 1 for stride in strides)


def _mixes_to_fewer(node: Node, graph: Graph) -> bool:
    """Whether it is a Conv of constants that makes fewer channels of the same place."""
    if node.op_type != "Conv" or not has_constant_bias(node, graph) or not graph.is_constant(node.inputs[1]):
        return False
    n_written, n_read, *window = graph.shape(node.inputs[1]) or (0, 0)
    is_alone = set(window) == {1} and not any(node.attributes.get("pads", ()))
    is_plain = node.attributes.get("group", 1) == 1 and set(node.attributes.get("strides", (1,))) == {1}
    return is_alone and is_plain and n_written < n_read


def lower_average_pool(model: onnx.ModelProto) -> onnx.ModelProto:
    """An AveragePool of images or lines behind a convolution becomes a depthwise Conv, whose weights are all the same.

    All its means are over as many places, of which zeros around images may be some. Pools of whole images stay, as
    those have a fast kernel, and so do those that no convolution is before: a Conv has the channels of integers moved
    to the last axis, which takes longer for what a pool reads than for what it writes.
    """
    edit, convolved = Edit(graph_of(model)), set[TensorName]()
    for node in edit.graph.nodes:
        is_behind = not convolved.isdisjoint(node.inputs)
        if is_behind or node.op_type in ("Conv", "ConvTranspose"):
            convolved.update(name for name in node.outputs if name)
        chain = Chain(edit, node)
        if is_behind and node.op_type == "AveragePool":
            _convolve(edit.graph, chain)
        if chain.nodes:
            edit.replaced[node.index] = chain.nodes
    return edit.model()


def _convolve(graph: Graph, chain: Chain) -> None:
    node = chain.node
    window, sizes = node.attributes["kernel_shape"], graph.sizes(node.inputs[0]) or ()
    n_channels = sizes[1] if len(sizes) in RANKS and node.inputs[0] in graph.float_tensors else None
    n_places = math.prod(window)
    if not n_channels or n_places > _MOST_PLACES:
        return
    axes = window_axes(node, graph)
    if _is_even(node, axes) and _fits(node, axes) and not all(axis.is_one_window for axis in axes):
        weight = np.full((n_channels, 1, *window), 1 / n_places, np.float32)
        carried = {name: node.attributes[name] for name in _CARRIED if name in node.attributes}
        chain.add("Conv", {"weight": weight}, group=n_channels, **carried)


@of_each_node(_SLOW_OPSET)
def weigh_pools(edit: Edit, node: Node) -> None:
    """An AveragePool whose channels fill no whole blocks becomes a depthwise Conv, and a Mul where places around count.

    The Mul has a weight for each place of an image or line, as fewer places are in the windows at its edges. A pool of
    single places is a MaxPool.
    """
    if node.op_type == "AveragePool" and _is_slow(node, edit.graph):
        edit.replaced[node.index] = _weighed(edit, node)


def _is_slow(node: Node, graph: Graph) -> bool:
    """Whether its kernel is, and all that it reads is of known size."""
    shape, axes = graph.shape(node.inputs[0]) or (), window_axes(node, graph)
    if len(shape) not in RANKS or shape[1] % _BLOCK == 0 or node.inputs[0] not in graph.float_tensors:
        return False
    is_partial = node.attributes.get("ceil_mode", 0) and not all(axis.is_divided for axis in axes)
    is_small = math.prod(node.attributes["kernel_shape"]) <= _MOST_PLACES
    return is_small and not is_partial and _is_unpadded(node) and _fits(node, axes) and bool(_places(node, axes).all())


def _places(node: Node, axes: Sequence[Axis]) -> npt.NDArray[np.int64]:
    """How many of a window's places count, of each window; of the shape of an image or line."""
    found = np.ones((), np.int64)
    for axis, n_places in zip(axes, node.attributes["kernel_shape"], strict=True):
        assert axis.size is not None
        first = np.arange((axis.size + axis.pad - axis.span) // axis.stride + 1) * axis.stride - axis.before
        place = first[:, None] + axis.dilation * np.arange(n_places)
        is_counted = (place >= 0) & (place < axis.size) | bool(node.attributes.get("count_include_pad", 0))
        found = found[..., None] * is_counted.sum(axis=1)
    return found


def _weighed(edit: Edit, node: Node) -> list[onnx.NodeProto]:
    parts, window = Parts(edit, node), node.attributes["kernel_shape"]
    n_channels, n_places = (edit.graph.shape(node.inputs[0]) or ())[1], math.prod(window)
    carried = {name: node.attributes[name] for name in _CARRIED if name in node.attributes}
    counted = _places(node, window_axes(node, edit.graph))
    is_even = bool((counted == n_places).all())
    if n_places == 1 and is_even:
        parts.add("MaxPool", [node.inputs[0]], output=node.outputs[0], kernel_shape=window, **carried)
        return parts.nodes
    weight = parts.constant("weight", np.full((n_channels, 1, *window), 1 / n_places, np.float32))
    inputs, output = [node.inputs[0], weight], node.outputs[0] if is_even else None
    means = parts.add("Conv", inputs, output=output, group=n_channels, **carried)
    if not is_even:
        share = parts.constant("share", (n_places / counted).astype(np.float32))
        parts.add("Mul", [means, share], part="weighed", output=node.outputs[0])
    return parts.nodes


def _fits(node: Node, axes: Sequence[Axis]) -> bool:
    """Whether windows reach no further than what is read and its padding, as only those of pools may."""
    return not _is_unpadded(node) or all(axis.size is None or axis.size + axis.pad >= axis.span for axis in axes)


def _is_even(node: Node, axes: Sequence[Axis]) -> bool:
    """Whether all windows of a pool have as many places that count."""
    is_counted = bool(node.attributes.get("count_include_pad", 0))
    if node.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        # onnxruntime has no such Conv with dilations, and cuts what is read by a pool whose windows leave gaps
        is_possible = all(axis.dilation == 1 and axis.stride <= axis.span for axis in axes)
        return is_possible and (is_counted or all(axis.is_tiled for axis in axes))
    is_partial = node.attributes.get("ceil_mode", 0) and not all(axis.is_divided for axis in axes)
    return not is_partial and (is_counted or not any(axis.pad for axis in axes))
