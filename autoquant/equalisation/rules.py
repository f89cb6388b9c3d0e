"""What becomes of scaled channels in each operator.

A positive factor passes through whatever is linear, or piecewise linear with its bend at zero, and ends in a constant.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.equalisation.channels import Rule, Tracing
from autoquant.equalisation.places import along, differs_only_along, fits_in, of_rank, reshaped
from autoquant.equalisation.ties import Labels
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, weight_of

__all__ = ["RULES"]


def _unchanged(tracing: Tracing, node: Node) -> bool:
    tracing.put(node.outputs[0], tracing.of(node.inputs[0]))
    return True


def _with_slope(tracing: Tracing, node: Node) -> bool:
    return tracing.graph.is_constant(node.inputs[1]) and _unchanged(tracing, node)


def _clipped(tracing: Tracing, node: Node) -> bool:
    """Only a bound at zero is the same for every scale."""
    bounds = [node.attributes.get("min"), node.attributes.get("max")]
    for i, name in enumerate(node.inputs[1:3]):
        if name and not tracing.graph.is_constant(name):
            return False
        bounds[i] = float(tracing.graph.constant(name).reshape(())) if name else None
    is_free = all(bound is None or bound == 0 or np.isinf(bound) for bound in bounds)
    return is_free and _unchanged(tracing, node)


def _pooled(tracing: Tracing, node: Node) -> bool:
    return set(tracing.of(node.inputs[0]).shape[2:]) <= {1} and _unchanged(tracing, node)


def _reduced(tracing: Tracing, node: Node) -> bool:
    labels, axes = tracing.of(node.inputs[0]), _integers(tracing.graph, node, 1, "axes")
    if not axes or any(labels.shape[axis] > 1 for axis in axes):
        return False
    gone = () if node.attributes.get("keepdims", 1) else tuple(axes)
    tracing.put(node.outputs[0], labels.squeeze(gone))
    return True


def _resized(tracing: Tracing, node: Node) -> bool:
    labels, before, after = tracing.of(node.inputs[0]), *(tracing.graph.sizes(n) for n in _ends(node))
    if (
        before is None
        or after is None
        or node.attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize"
    ):
        return False
    is_spatial = all(n == 1 or a == b == n for n, a, b in zip(labels.shape, before, after, strict=True))
    return is_spatial and _unchanged(tracing, node)


def _padded(tracing: Tracing, node: Node) -> bool:
    labels, pads = tracing.of(node.inputs[0]), _integers(tracing.graph, node, 1, "pads")
    has_axes = len(node.inputs) > 3 and bool(node.inputs[3])
    if pads is None or has_axes or len(pads) != 2 * labels.ndim:
        return False
    if node.attributes.get("mode", b"constant") == b"constant" and not _pads_zero(tracing.graph, node):
        return False
    sides = zip(labels.shape, pads[: labels.ndim], pads[labels.ndim :], strict=True)
    return all(n == 1 or low == high == 0 for n, low, high in sides) and _unchanged(tracing, node)


def _pads_zero(graph: Graph, node: Node) -> bool:
    if len(node.inputs) < 3 or not node.inputs[2]:
        return bool(node.attributes.get("value", 0.0) == 0)
    return graph.is_constant(node.inputs[2]) and not bool(graph.constant(node.inputs[2]).any())


def _transposed(tracing: Tracing, node: Node) -> bool:
    labels = tracing.of(node.inputs[0])
    tracing.put(node.outputs[0], labels.transpose(node.attributes.get("perm", range(labels.ndim)[::-1])))
    return True


def _interleaved(tracing: Tracing, node: Node) -> bool:
    """Channels that come to lie side by side share a scale."""
    labels, n_phases = tracing.of(node.inputs[0]), int(node.attributes["blocksize"]) ** 2
    if not differs_only_along(labels, 1):
        return False
    rows = np.broadcast_to(labels.ravel(), max(labels.size, n_phases))
    is_in_a_row = node.attributes.get("mode", b"DCR") == b"CRD"
    parts = rows.reshape(-1, n_phases) if is_in_a_row else rows.reshape(n_phases, -1).T
    tracing.ties.tie(parts[:, :1], parts)
    tracing.put(node.outputs[0], along(parts[:, 0], 1, labels.ndim))
    return True


def _reshaped(tracing: Tracing, node: Node) -> bool:
    before, after = (tracing.graph.shape(name) for name in _ends(node))
    if before is None or after is None or math.prod(before) != math.prod(after):  # which a wrong declaration may say
        return False
    labels = tracing.of(node.inputs[0])
    tracing.put(node.outputs[0], reshaped(labels, before, after))
    return True


def _sliced(tracing: Tracing, node: Node) -> bool:
    labels = tracing.of(node.inputs[0])
    starts, ends = (_integers(tracing.graph, node, i, name) for i, name in ((1, "starts"), (2, "ends")))
    axes = _integers(tracing.graph, node, 3, "axes")
    steps = _integers(tracing.graph, node, 4, "steps")
    if starts is None or ends is None or not all(tracing.graph.is_constant(name) for name in node.inputs[1:] if name):
        return False
    kept = [slice(None)] * labels.ndim
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = i if axes is None else axes[i]
        if labels.shape[axis] > 1:
            kept[axis] = slice(start, end, 1 if steps is None else steps[i])
    tracing.put(node.outputs[0], labels[tuple(kept)])
    return True


def _split(tracing: Tracing, node: Node) -> bool:
    labels, axis = tracing.of(node.inputs[0]), int(node.attributes.get("axis", 0))
    sizes = [(tracing.graph.sizes(name) or (0,) * labels.ndim)[axis] or 0 for name in node.outputs]
    if labels.shape[axis] > 1 and sum(sizes) != labels.shape[axis]:
        return False
    for name, (start, end) in zip(node.outputs, pairwise(accumulate(sizes, initial=0)), strict=True):
        part = labels if labels.shape[axis] == 1 else labels.take(range(start, end), axis=axis)
        tracing.put(name, part)
    return True


def _concatenated(tracing: Tracing, node: Node) -> bool:
    parts, axis = [tracing.of(name) for name in node.inputs], int(node.attributes["axis"])
    shapes = [tracing.graph.sizes(name) for name in node.inputs]
    if all(part.shape[axis : axis + 1 or None] == (1,) for part in parts):
        return _joined(tracing, node, parts)
    rank = parts[0].ndim
    common = np.broadcast_shapes(*(part.take([0], axis=axis).shape for part in parts))
    spread = []
    for part, shape in zip(parts, shapes, strict=True):
        size = None if shape is None else shape[axis]
        if size is None:
            return False
        wanted = [size if i == axis % rank else n for i, n in enumerate(common)]
        spread.append(np.broadcast_to(part, wanted))
    tracing.put(node.outputs[0], np.concatenate(spread, axis=axis))
    return True


def _joined(tracing: Tracing, node: Node, parts: Sequence[Labels]) -> bool:
    """All of them share the channels of the output."""
    rank = tracing.graph.rank(node.outputs[0])
    if any(part.ndim > rank for part in parts):
        return False
    common = of_rank(np.zeros((), np.intp) if not parts else np.broadcast_arrays(*parts)[0], rank)
    for part in parts:
        tracing.ties.tie(common, part)
    tracing.put(node.outputs[0], common)
    return True


def _added(tracing: Tracing, node: Node) -> bool:
    """Summands, or what is compared, share their channels; a constant one is divided by their scales."""
    graph = tracing.graph
    summands = [tracing.of(name) for name in node.inputs if not graph.is_constant(name)]
    if not summands or not _joined(tracing, node, summands):
        return False
    labels = of_rank(np.broadcast_arrays(*summands)[0], graph.rank(node.outputs[0]))
    if tracing.ties.is_fixed(labels):
        return True
    for slot, name in enumerate(node.inputs):
        if graph.is_constant(name):
            if not tracing.is_scalable(name) or not fits_in(labels, graph.constant(name).shape):
                return False
            tracing.scale(node, slot, over=_at(labels, graph.constant(name).ndim))
    return True


def _at(labels: Labels, rank: int) -> Labels:
    """Without leading axes of size 1 that a constant lacks."""
    return labels.reshape(labels.shape[labels.ndim - rank :]) if labels.ndim > rank else labels


def _multiplied(tracing: Tracing, node: Node) -> bool:
    constants = [slot for slot, name in enumerate(node.inputs) if tracing.graph.is_constant(name)]
    if constants:
        return len(constants) == 1 and _multiplied_by(tracing, node, constants[0])
    for one, gate in ((0, 1), (1, 0)):
        if tracing.ties.is_fixed(tracing.of(node.inputs[gate])):
            return _passes(tracing, node, node.inputs[one])
    return False


def _multiplied_by(tracing: Tracing, node: Node, slot: int) -> bool:
    """A factor per channel ends the channels before it and begins new ones."""
    source = node.inputs[1 - slot]
    labels, values = tracing.of(source), tracing.graph.constant(node.inputs[slot])
    shape = of_rank(np.zeros(values.shape, np.intp), max(labels.ndim, values.ndim)).shape
    wide = [i for i, size in enumerate(shape) if size > 1]
    is_own = len(wide) == 1 and tracing.graph.sizes(source) == tracing.graph.sizes(node.outputs[0])
    if not is_own or not differs_only_along(labels, wide[0]) or not tracing.is_scalable(node.inputs[slot]):
        return _passes(tracing, node, source)
    made = along(tracing.ties.fresh(shape[wide[0]]), wide[0], labels.ndim)
    tracing.scale(node, slot, times=_at(labels, values.ndim), over=_at(made, values.ndim))
    tracing.put(node.outputs[0], made)
    return True


def _divided(tracing: Tracing, node: Node) -> bool:
    divisor = node.inputs[1]
    is_free = tracing.graph.is_constant(divisor) or tracing.ties.is_fixed(tracing.of(divisor))
    return is_free and _passes(tracing, node, node.inputs[0])


def _passes(tracing: Tracing, node: Node, source: TensorName) -> bool:
    """The channels of one factor are those of the product, unless that is larger."""
    if tracing.graph.sizes(source) != tracing.graph.sizes(node.outputs[0]):
        return False
    tracing.put(node.outputs[0], tracing.of(source))
    return True


def _linear(tracing: Tracing, node: Node) -> bool:
    graph, weight, bias = tracing.graph, weight_of(node, tracing.graph), bias_of(node)
    if weight is None or not tracing.is_scalable(weight) or node.attributes.get("transA", 0):
        return node.op_type == "MatMul" and weight is None and _product(tracing, node)
    shape = graph.constant(weight).shape
    if len(shape) < 2 or 0 in shape or (node.op_type == "MatMul" and len(shape) != 2):
        return False
    labels, axis = tracing.of(node.inputs[0]), 1 if "Conv" in node.op_type else -1
    rank = graph.rank(node.outputs[0])
    if axis == 1 and labels.ndim > 1 and not differs_only_along(labels, axis):
        labels = _shared_by_places(tracing, labels)
    if not labels.ndim or not rank or not differs_only_along(labels, axis):
        return False
    ends, begins, n_outputs = _weight_channels(node, shape)
    read = np.broadcast_to(labels.ravel(), int(ends.max()) + 1)
    made = tracing.ties.fresh(n_outputs)
    tracing.scale(node, 1, times=read[ends], over=made[begins])
    tracing.put(node.outputs[0], along(made, axis, rank))
    if bias is not None and not (tracing.is_scalable(bias) and fits_in(made, graph.constant(bias).shape[-1:])):
        tracing.ties.fix(made)
        tracing.ties.fix(tracing.of(bias))
    elif bias is not None:
        tracing.scale(node, 2, over=_at(made, graph.constant(bias).ndim))
    return True


def _shared_by_places(tracing: Tracing, labels: Labels) -> Labels:
    """Channels of images, of which places that differ, as those that were channels before, come to share a scale."""
    by_channel = np.moveaxis(labels, 1, 0).reshape(labels.shape[1], -1)
    for places in by_channel:
        tracing.ties.tie(places[:1], np.flatnonzero(np.bincount(places)))
    return along(by_channel[:, 0], 1, labels.ndim)


def _weight_channels(node: Node, shape: Sequence[int]) -> tuple[Labels, Labels, int]:
    """Numbers of the input and of the output channel at each place of a weight, and how many outputs there are."""
    n_groups = int(node.attributes.get("group", 1))
    first, second = np.ogrid[: shape[0], : shape[1]]
    inside = second if n_groups == 1 else first // (shape[0] // n_groups) * shape[1] + second
    if node.op_type == "Conv":
        ends, begins, n = inside, first, shape[0]
    elif node.op_type == "ConvTranspose":
        ends, begins, n = first, inside, shape[1] * n_groups
    elif node.attributes.get("transB", 0):
        ends, begins, n = second, first, shape[0]
    else:
        ends, begins, n = first, second, shape[1]
    kernel = (1,) * (len(shape) - 2)
    return ends.reshape(ends.shape + kernel), begins.reshape(begins.shape + kernel), n


def _product(tracing: Tracing, node: Node) -> bool:
    """The columns of the second operand are those of the product; rows and the first operand keep their scale."""
    if any(tracing.graph.is_constant(name) for name in node.inputs):
        return False
    labels, rank = tracing.of(node.inputs[1]), tracing.graph.rank(node.outputs[0])
    if labels.ndim < 2 or labels.ndim > rank or labels.shape[-2] > 1:
        return False
    tracing.ties.fix(tracing.of(node.inputs[0]))
    tracing.put(node.outputs[0], labels)
    return True


def _normalised(tracing: Tracing, node: Node) -> bool:
    """Scale and bias of a LayerNormalization begin channels; those before it end in what cannot be scaled."""
    sizes = tracing.graph.sizes(node.outputs[0])
    affine = [name for name in node.inputs[1:] if name]
    if not sizes or int(node.attributes.get("axis", -1)) % len(sizes) != len(sizes) - 1:
        return False
    if not all(tracing.is_scalable(name) and tracing.graph.shape(name) == sizes[-1:] for name in affine):
        return False
    tracing.ties.fix(tracing.of(node.inputs[0]))
    made = tracing.ties.fresh(tracing.graph.constant(node.inputs[1]).size)
    for slot in range(1, 1 + len(affine)):
        tracing.scale(node, slot, over=made)
    tracing.put(node.outputs[0], along(made, -1, len(sizes)))
    return True


def _batch_normalised(tracing: Tracing, node: Node) -> bool:
    labels, rank = tracing.of(node.inputs[0]), tracing.graph.rank(node.outputs[0])
    if not labels.ndim or not rank or not differs_only_along(labels, 1):
        return False
    if node.attributes.get("training_mode", 0) or not all(tracing.is_scalable(name) for name in node.inputs[1:]):
        return False
    made = tracing.ties.fresh(tracing.graph.constant(node.inputs[1]).size)
    read = np.broadcast_to(labels.ravel(), made.shape)
    tracing.scale(node, 1, times=read, over=made)
    tracing.scale(node, 2, over=made)
    tracing.scale(node, 3, over=read)
    tracing.put(node.outputs[0], along(made, 1, rank))
    return True


def _ends(node: Node) -> tuple[TensorName, TensorName]:
    return node.inputs[0], node.outputs[0]


def _integers(graph: Graph, node: Node, slot: int, attribute: str) -> list[int] | None:
    """Numbers that are an input or, in older opsets, an attribute; None where they are not constant or left out."""
    if len(node.inputs) > slot and node.inputs[slot]:
        name = node.inputs[slot]
        return [int(i) for i in graph.constant(name).ravel()] if graph.is_constant(name) else None
    found = node.attributes.get(attribute)
    return None if found is None else [int(i) for i in found]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "Identity"), _unchanged),
    "PRelu": _with_slope,
    "Clip": _clipped,
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"), _pooled),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduced),
    "Resize": _resized,
    "Pad": _padded,
    "Transpose": _transposed,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshaped),
    "DepthToSpace": _interleaved,
    "Slice": _sliced,
    "Split": _split,
    "Concat": _concatenated,
    **dict.fromkeys(("Add", "Max", "Min", "Sub", "Sum"), _added),
    "Mul": _multiplied,
    "Div": _divided,
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul"), _linear),
    "LayerNormalization": _normalised,
    "BatchNormalization": _batch_normalised,
}
