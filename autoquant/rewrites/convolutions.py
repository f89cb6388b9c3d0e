"""Operators written as others that have integer kernels, or faster ones.

Each rewrite leaves its argument untouched, and gives it back where there is nothing to do. What it costs and wins is in
decision 0039.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import SCALES, VIEWS, bias_of, has_constant_bias, is_float_constant
from autoquant.model.opsets import RESIZE_HAS_REGION, SLICE_HAS_INPUTS
from autoquant.model.windows import RANKS, SPATIAL
from autoquant.rewrites.affine import applied
from autoquant.rewrites.chain import Chain, of_each_chain
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.moves import axes_of

__all__ = ["interleave_depth", "lower_affine", "lower_conv_transpose", "pool_means", "transpose_upsampled"]

_NORMALISING = ("Add", "Sqrt", "Sub")
"""What reads a mean in norms, which onnxruntime fuses and which lose a mean of integers that is nearly 0."""
_MOST_FILLED = 1.5
"""Products with those of zeros, of those of a kernel: with more float takes longer than before (decision 0039)."""
_FEW = 8
"""Channels: of fewer the phases of a kernel that is filled up take longer in float."""
_MOST_REPEATED, _MANY = 8, 32
"""Of each value, and channels: of fewer and where more are written, the Transposes take what the products win."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Phases:
    """A ConvTranspose whose outputs ``stride * i + r`` for each ``r`` are those of a convolution of its own.

    Attributes:
        strides: Along each axis.
        pads: Of the convolution: before the first places along each axis, then behind the last ones.
        cut: Places that are too many in what the phases make together, in the same order.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    cut: tuple[int, ...]


@of_each_chain(SLICE_HAS_INPUTS)
def lower_conv_transpose(graph: Graph, chain: Chain) -> None:
    """A ConvTranspose becomes a Conv that computes all phases as channels, and Transposes that interleave them.

    With a stride of ``s`` each output reads every ``s``-th place of the kernel. A Slice follows where the padding is no
    multiple of the stride; with a stride of 1 there is the Conv alone. Kernels whose size is no multiple of the stride
    are filled up with zeros; they stay where that makes many more products, and so do images of unknown size, since a
    DepthToSpace takes longer.

    References:
        Shi et al. 2016, "Is the deconvolution layer the same as a convolutional layer?" (arXiv 1609.07009).
    """
    phases = _phases(graph, chain.node)
    if phases is not None:
        _convolve(graph, chain, phases)


@of_each_node(RESIZE_HAS_REGION)
def transpose_upsampled(edit: Edit, node: Node) -> None:
    """A Conv of 3 x 3 over images that a Resize makes n times as large by repeating values becomes a ConvTranspose.

    Its kernel of 2 n x 2 n has 4 products where there were 9: some of each nine are with the same value. Images are of
    known size.
    """
    graph = edit.graph
    resize = graph.producer.get(node.inputs[0]) if node.op_type == "Conv" else None
    n = 0 if resize is None else _times_repeated(graph, resize)
    if resize is None or not 2 <= n <= _MOST_REPEATED or not _is_three_by_three(graph, node):
        return
    n_written, n_read = (graph.shape(node.inputs[1]) or ())[:SPATIAL]
    if n_read < min(_MANY, n_written):
        return
    if graph.only_reader(node.inputs[0]) is node:
        added = _added_up(n)
        repeated = np.einsum("mcab,ka,lb->cmkl", graph.constant(node.inputs[1]), added, added)
        weight = edit.constant(f"{node.name}_repeated", repeated.astype(np.float32))
        inputs = [resize.inputs[0], weight, *node.inputs[2:]]
        made = helper.make_node("ConvTranspose", inputs, list(node.outputs), name=node.name)
        pads = (1, 1, n - 1, n - 1)
        made.attribute.extend([helper.make_attribute("strides", (n, n)), helper.make_attribute("pads", pads)])
        edit.replaced |= {resize.index: (), node.index: (made,)}


@of_each_chain()
def interleave_depth(graph: Graph, chain: Chain) -> None:
    """A DepthToSpace of images of known size becomes Transposes that move one axis each."""
    node = chain.node
    shape = graph.shape(node.inputs[0]) if node.op_type == "DepthToSpace" else None
    if shape is not None and 0 not in shape:
        is_in_a_row = node.attributes.get("mode", b"DCR") == b"CRD"
        chain.interleave(shape, (int(node.attributes["blocksize"]),) * 2, is_in_a_row=is_in_a_row)


@of_each_node()
def lower_affine(edit: Edit, node: Node) -> None:
    """A BatchNormalization of images or lines, or several nodes that scale or shift channels, become a depthwise Conv.

    Those that a linear operator before them takes in are not for this. Between Transposes, of which the second takes
    back what the first does, they and these become a Mul and an Add over the axis where channels are. Between views
    they stay: convolutions would reorder what nothing else there wants in blocks.
    """
    graph = edit.graph
    source = next((name for name in node.inputs if not graph.is_constant(name)), None)
    if source is None or node.index in edit.replaced:
        return
    nodes, factor, summand = _affine(graph, node, source)
    is_vector = len(nodes) > 1 and np.ptp([factor, summand], axis=1).any()
    if not is_vector and all(each.op_type != "BatchNormalization" for each in nodes):
        return
    if _are_between_views(graph, source, nodes[-1]):
        return
    rank, around = graph.rank(source), _transposes_around(graph, source, nodes[-1])
    if around and edit.claim(*around):
        chain = Chain(edit, node, around[0].inputs[0], around[1].outputs[0])
        shape = (-1, *[1] * (rank - 1 - around[0].attributes["perm"][1]))
        chain.add("Mul", {"factors": factor.reshape(shape)})
        chain.add("Add", {"summands": summand.reshape(shape)}, part="shifted")
        nodes.extend(around)
    else:
        chain = Chain(edit, node, source, nodes[-1].outputs[0])
        weight = {"weight": factor.reshape(-1, *[1] * (rank - 1)), "bias": summand}
        chain.add("Conv", weight, group=len(factor))
    edit.replaced |= {each.index: () for each in nodes} | {node.index: chain.nodes}


@of_each_chain()
def pool_means(graph: Graph, chain: Chain) -> None:
    """A ReduceMean over the places of images or lines becomes a GlobalAveragePool, but for those of norms.

    A ReduceL2 over them, as ConvNeXt V2 normalises by, becomes the root of one of squares.
    """
    node, shape = chain.node, graph.shape(chain.node.inputs[0]) if chain.node.inputs else None
    readers = graph.consumers.get(node.outputs[0], ())
    is_norm = node.op_type == "ReduceMean" and any(reader.op_type in _NORMALISING for reader in readers)
    is_length = node.op_type == "ReduceL2" and shape is not None and 0 not in shape
    if not (node.op_type == "ReduceMean" or is_length) or is_norm or not _is_over_places(graph, node):
        return
    if is_length:
        chain.add("Mul", part="square")
        chain.nodes[0].input.append(node.inputs[0])
    chain.add("GlobalAveragePool")
    if is_length and shape is not None:
        chain.add("Mul", {"places": np.float32(math.prod(shape[SPATIAL:]))}, part="sum")
        chain.add("Sqrt", part="root")
    if not node.attributes.get("keepdims", 1):
        assert shape is not None
        chain.reshape(shape[:SPATIAL], "flat")


def _are_between_views(graph: Graph, source: TensorName, last: Node) -> bool:
    """As of norms over bands of frequencies."""
    before, readers = graph.producer.get(source), graph.consumers.get(last.outputs[0], ())
    return before is not None and all(node.op_type in VIEWS for node in (before, *readers)) and bool(readers)


def _affine(graph: Graph, first: Node, source: TensorName) -> tuple[list[Node], Floats, Floats]:
    """Nodes in a row that scale and shift channels of images or lines, and what they do together.

    Args:
        graph: With shapes.
        first: The first of them, if it does that.
        source: What it reads.

    Returns:
        The nodes, and the factor and the summand of each channel, shapes (C,).
    """
    nodes: list[Node] = []
    sizes = graph.sizes(source) or ()
    n_channels = sizes[1] if len(sizes) in RANKS and source in graph.float_tensors else None
    factor, summand = np.ones(n_channels or 0, np.float32), np.zeros(n_channels or 0, np.float32)
    node, tensor = (first if n_channels else None), source
    while node is not None and (found := applied(graph, node, tensor, len(factor), 1)) is not None:
        factor, summand = factor * found[0], summand * found[0] + found[1]
        nodes.append(node)
        tensor = node.outputs[0]
        node = graph.only_reader(tensor)
    return nodes, factor, summand


def _transposes_around(graph: Graph, source: TensorName, last: Node) -> tuple[Node, Node] | None:
    """The one that alone writes what nodes in a row read, and one behind the last of them that moves all back."""
    before, behind = graph.producer.get(source), graph.only_reader(last.outputs[0])
    if before is None or behind is None or graph.only_reader(source) is None:
        return None
    if {before.op_type, behind.op_type} != {"Transpose"} or not {"perm"} <= before.attributes.keys():
        return None
    is_inverse = tuple(behind.attributes.get("perm", ())) == tuple(np.argsort(before.attributes["perm"]))
    return (before, behind) if is_inverse else None


def _is_over_places(graph: Graph, node: Node) -> bool:
    source = node.inputs[0]
    rank, shape = graph.rank(source), graph.shape(source)
    is_known = node.attributes.get("keepdims", 1) or (shape is not None and 0 not in shape)
    is_spatial = rank in RANKS and sorted(axes_of(graph, node, rank) or ()) == list(range(SPATIAL, rank))
    return bool(is_known) and is_spatial and source in graph.float_tensors


def _added_up(n: int) -> npt.NDArray[np.int64]:
    """Which of three places are added up in each of the 2 n of a kernel that reads values instead of n of each."""
    first = np.arange(2 * n)[:, None] + np.arange(-2, 1)
    return ((first >= 0) & (first < n)).astype(np.int64)


def _times_repeated(graph: Graph, node: Node) -> int:
    """How often a Resize writes each value of images of known size along both axes; 0 where it does something else."""
    before, behind = (
        (graph.shape(node.inputs[0]), graph.shape(node.outputs[0])) if node.op_type == "Resize" else (None,) * 2
    )
    if before is None or behind is None or len(before) != SPATIAL + 2 or node.inputs[0] not in graph.float_tensors:
        return 0
    n = behind[-1] // before[-1] if 0 not in before else 0
    modes = ("coordinate_transformation_mode", b"half_pixel"), ("nearest_mode", b"round_prefer_floor")
    position, rounding = (node.attributes.get(name, usual) for name, usual in modes)
    repeats = (
        position == b"asymmetric" and (rounding == b"floor" or (rounding == b"round_prefer_floor" and n == 2))
    ) or (position == b"half_pixel" and rounding in (b"round_prefer_floor", b"round_prefer_ceil"))
    is_nearest = node.attributes.get("mode", b"nearest") == b"nearest"
    is_whole = (*before[:2], *(n * size for size in before[2:])) == tuple(behind)
    return n if is_nearest and repeats and is_whole and _is_by(n, graph, node) else 0


def _is_by(n: int, graph: Graph, resize: Node) -> bool:
    """Whether it is told sizes or factors of n: by 2.1 a few places become twice as many too, but are others."""
    scales = [name for name in resize.inputs[SCALES : SCALES + 1] if name]
    return all(graph.is_constant(name) and set(graph.constant(name).tolist()) <= {1.0, float(n)} for name in scales)


def _is_three_by_three(graph: Graph, node: Node) -> bool:
    """Whether a Conv keeps the size of images, has a constant kernel of three places, and no groups."""
    if not is_float_constant(node.inputs[1], graph) or (graph.shape(node.inputs[1]) or ())[SPATIAL:] != (3, 3):
        return False
    automatic = node.attributes.get("auto_pad", b"NOTSET")
    is_same = automatic.startswith(b"SAME") or (automatic == b"NOTSET" and set(node.attributes.get("pads", ())) == {1})
    ones = (*node.attributes.get("strides", ()), *node.attributes.get("dilations", ()), node.attributes.get("group", 1))
    return is_same and set(ones) == {1}


def _phases(graph: Graph, node: Node) -> _Phases | None:
    """None for what is no ConvTranspose, or is to stay one."""
    if node.op_type != "ConvTranspose" or not is_float_constant(node.inputs[1], graph):
        return None
    kernel = (graph.shape(node.inputs[1]) or ())[SPATIAL:]
    n_axes = len(kernel)
    strides = tuple(node.attributes.get("strides", (1,) * n_axes))
    is_plain = (
        n_axes in (1, 2, 3)
        and node.attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
        and "output_shape" not in node.attributes
        and set(node.attributes.get("dilations", ())) <= {1}
        and has_constant_bias(node, graph)
    )
    is_known = n_axes == 1 or set(strides) == {1} or graph.shape(node.outputs[0]) is not None
    if not is_plain or not is_known:
        return None
    filled = tuple(-size % stride for size, stride in zip(kernel, strides, strict=True))
    whole = tuple(size + n for size, n in zip(kernel, filled, strict=True))
    n_each = (graph.shape(node.inputs[1]) or (0, 0))[1]
    if any(filled) and (math.prod(whole) > _MOST_FILLED * math.prod(kernel) or n_each < _FEW):
        return None
    given = node.attributes.get("pads", (0,) * 2 * n_axes)
    more = node.attributes.get("output_padding", (0,) * n_axes)
    behind = (pad - added + n for pad, added, n in zip(given[n_axes:], more, filled, strict=True))
    removed = [*given[:n_axes], *behind]
    each = list(zip(2 * whole, removed, 2 * strides, strict=True))
    pads = tuple(size // stride - 1 - pad // stride for size, pad, stride in each)
    return None if min(pads) < 0 else _Phases(strides, pads, cut=tuple(pad % stride for _, pad, stride in each))


def _convolve(graph: Graph, chain: Chain, phases: _Phases) -> None:
    node, strides, n_axes = chain.node, phases.strides, len(phases.strides)
    group, bias, n_phases = int(node.attributes.get("group", 1)), bias_of(node), math.prod(strides)
    constants = {"weight": _weight_of_phases(graph.constant(node.inputs[1]), strides, group)}
    if bias is not None:
        constants["bias"] = np.repeat(graph.constant(bias).ravel(), n_phases)
    chain.add("Conv", constants, pads=phases.pads, group=group)
    n_channels = len(constants["weight"])
    if n_phases > 1 and n_axes == 1:
        chain.reshape((0, n_channels // n_phases, n_phases, -1), "apart")
        chain.add("Transpose", part="places", perm=(0, 1, 3, 2))
        chain.reshape((0, n_channels // n_phases, -1), "line")
    elif n_phases > 1:
        n, _, *sizes = graph.shape(node.outputs[0]) or ()
        whole = (size + phases.cut[i] + phases.cut[i + n_axes] for i, size in enumerate(sizes))
        read = (size // stride for size, stride in zip(whole, strides, strict=True))
        chain.interleave((n, n_channels, *read), strides, is_in_a_row=True)
    if any(phases.cut):
        chain.crop(phases.cut[:n_axes], phases.cut[n_axes:], "cut")


def _weight_of_phases(weight: Floats, strides: Sequence[int], group: int) -> Floats:
    """Of the convolution.

    Args:
        weight: Shape (C, M / group, k, ...).
        strides: Along each axis; kernels are filled up with zeros to multiples of them.
        group: Number of groups.

    Returns:
        Shape (M * stride * ..., C / group, k / stride rounded up, ...).
    """
    weight = np.pad(weight, [(0, 0), (0, 0), *((0, -k % s) for k, s in zip(weight.shape[2:], strides, strict=True))])
    n_read, n_written, *kernel = weight.shape
    taps = [size // stride for size, stride in zip(kernel, strides, strict=True)]
    split = [part for pair in zip(taps, strides, strict=True) for part in pair]
    parts = weight.reshape(group, n_read // group, n_written, *split)
    places = range(3, 3 + 2 * len(kernel))
    turned = np.flip(parts, axis=tuple(places[::2])).transpose(0, 2, *places[1::2], 1, *places[::2])
    return np.ascontiguousarray(turned.reshape(-1, n_read // group, *taps))
