"""Multiplications, additions and normalisations by constants folded into the linear operators beside them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import bias_of, channel_axis, weight_of
from autoquant.model.windows import UNPADDED
from autoquant.rewrites.edits import Edit, Parts
from autoquant.rewrites.moves import axis_behind

__all__ = ["applied", "fold_affine"]

_MAX_PASSES = 16
Floats = npt.NDArray[np.float32]


def fold_affine(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with constant factors and summands folded where that does not change what it computes.

    ``alpha`` and ``beta`` of a Gemm go into its constants, as integer kernels know neither. Behind Conv, ConvTranspose
    and Gemm a constant per channel and a BatchNormalization go into weight and bias, also where nodes between only move
    elements, as exporters put around a Conv1D, and past such, as in LeViT, a BatchNormalization behind a MatMul. Before
    them factors go into the weight, and summands into the bias unless zero padding would then be shifted too.
    onnxruntime folds only constants that have the channel's shape, directly behind a Conv; networks like PP-LCNet hold
    scalars.
    """
    for _ in range(_MAX_PASSES):
        graph = graph_of(model)
        edit = Edit(graph)
        for node in graph.nodes:
            if node.op_type == "MatMul":
                _fold_norm(edit, node)
            elif not _fold_factors(edit, node) and _is_foldable(graph, node):
                _ = _fold_behind(edit, node) or _fold_before(edit, node)
        if not edit.replaced:
            return model
        model = edit.model()
    return model


def _fold_factors(edit: Edit, node: Node) -> bool:
    """``alpha`` into a constant matrix, ``beta`` into a constant bias."""
    graph = edit.graph
    factors = {
        i: (attribute, np.float32(node.attributes[attribute]))
        for i, attribute in ((1, "alpha"), (2, "beta"))
        if node.op_type == "Gemm" and node.attributes.get(attribute, 1.0) != 1.0 and _is_float(graph, node.inputs[i:])
    }
    if not factors or not edit.claim(node):
        return False
    proto = graph.copy_of(node)
    for i, (name, factor) in factors.items():
        proto.input[i] = edit.constant(f"{node.name}_{name}", _scaled(graph.constant(node.inputs[i]), factor))
        next(known for known in proto.attribute if known.name == name).f = 1.0
    edit.replaced[node.index] = [proto]
    return True


def _scaled(values: Floats, factor: np.float32) -> Floats:
    """Of one axis at least; nothing is left where the factor is 0, whatever the values are."""
    scaled = np.atleast_1d(values)
    return scaled * factor if factor else np.zeros_like(scaled)


def _is_float(graph: Graph, names: Sequence[TensorName]) -> bool:
    """Whether the first of the names is that of a float constant."""
    return bool(names) and graph.is_constant(names[0]) and graph.constant(names[0]).dtype == np.float32


def _is_foldable(graph: Graph, node: Node) -> bool:
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or weight_of(node, graph) is None:
        return False
    if channel_axis(node, graph) is None:
        return False
    if node.op_type == "Gemm" and (node.attributes.get("alpha", 1.0) != 1.0 or node.attributes.get("beta", 1.0) != 1.0):
        return False
    bias = bias_of(node)
    n_channels = _n_channels(graph, node)
    shapes = ((n_channels,), (1, n_channels))  # a Gemm's bias may also be a column or a whole matrix
    flat = bias is None or (graph.is_constant(bias) and graph.shape(bias) in shapes)
    return flat and graph.constant(node.inputs[1]).dtype == np.float32


def _n_channels(graph: Graph, node: Node) -> int:
    shape, axis = graph.shape(node.inputs[1]), channel_axis(node, graph)
    assert shape is not None
    assert axis is not None
    return shape[axis]


def _bias(graph: Graph, node: Node) -> Floats:
    bias = bias_of(node)
    n_channels = _n_channels(graph, node)
    return np.zeros(n_channels, np.float32) if bias is None else graph.constant(bias).reshape(n_channels)


def _fold_norm(edit: Edit, node: Node) -> None:
    """A BatchNormalization of the columns of a product goes into the matrix, and what it adds behind it."""
    graph = edit.graph
    is_matrix = _is_float(graph, node.inputs[1:]) and channel_axis(node, graph) is not None
    movers, reader, axis = _behind(graph, node, graph.rank(node.outputs[0]) - 1)
    if not is_matrix or not movers or reader is None or reader.op_type != "BatchNormalization":
        return
    found = applied(graph, reader, movers[-1].outputs[0], _n_channels(graph, node), axis)
    if found is None or not edit.claim(node, *movers, reader):
        return
    parts = Parts(edit, node)
    scaled = parts.constant("weight", graph.constant(node.inputs[1]) * found[0])
    product = parts.add("MatMul", [node.inputs[0], scaled])
    parts.add("Add", [product, parts.constant("summand", found[1])], part="norm", output=node.outputs[0])
    edit.replaced[node.index] = parts.nodes
    edit.replaced[reader.index] = [_writing(edit, movers[-1], reader.outputs[0])]
    edit.replaced[movers[-1].index] = ()


def _fold_behind(edit: Edit, node: Node) -> bool:
    graph = edit.graph
    movers, reader, axis = _behind(graph, node, 1)
    last = movers[-1] if movers else node
    found = None if reader is None else applied(graph, reader, last.outputs[0], _n_channels(graph, node), axis)
    if reader is None or found is None or not edit.claim(node, *movers, reader):
        return False
    factor, summand = found
    weight = graph.constant(node.inputs[1])
    shape = [-1 if i == channel_axis(node, graph) else 1 for i in range(weight.ndim)]
    weight, bias = weight * factor.reshape(shape), _bias(graph, node) * factor + summand
    edit.replaced[node.index] = [_rebuilt(edit, node, node.inputs[0], weight, bias, node.outputs[0])]
    edit.replaced[reader.index] = [_writing(edit, last, reader.outputs[0])]
    edit.replaced[last.index] = ()
    return True


def applied(graph: Graph, node: Node, tensor: TensorName, n_channels: int, axis: int) -> tuple[Floats, Floats] | None:
    """What a node multiplies each channel of a tensor with, and what it adds to that; None where it does other things.

    Args:
        graph: With shapes.
        node: Reads the tensor.
        tensor: With so many channels along the axis.
        n_channels: Of it.
        axis: Of its channels.
    """
    if node.op_type == "BatchNormalization":
        return _normalised(graph, node) if axis == 1 else None
    operand = _constant_operand(graph, node, tensor)
    values = None if operand is None else _per_channel(operand, n_channels, axis, graph.rank(tensor))
    if values is None:
        return None
    one, zero = np.ones_like(values), np.zeros_like(values)
    if node.op_type == "Add":
        return one, values
    if node.op_type == "Sub":
        return (one, -values) if node.inputs[0] == tensor else (-one, values)
    if node.op_type == "Div":
        return (one / values, zero) if node.inputs[0] == tensor and np.all(values) else None
    return values, zero


def _normalised(graph: Graph, node: Node) -> tuple[Floats, Floats] | None:
    """What a BatchNormalization multiplies each channel with, and what it adds to that; None without constants."""
    is_training = node.attributes.get("training_mode", 0) or any(node.outputs[1:])
    if is_training or not all(_is_float(graph, [name]) for name in node.inputs[1:]):
        return None
    scale, shift, mean, variance = (graph.constant(name).astype(np.float64) for name in node.inputs[1:5])
    if scale.ndim != 1:  # of every place, as opset 8 and before have it
        return None
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    return factor.astype(np.float32), (shift - mean * factor).astype(np.float32)


def _behind(graph: Graph, node: Node, axis: int) -> tuple[list[Node], Node | None, int]:
    """Nodes that only move what a linear one writes, what alone reads their result, and the axis of channels there."""
    movers: list[Node] = []
    reader = graph.only_reader(node.outputs[0])
    while reader is not None and (moved := axis_behind(graph, reader, axis)) is not None:
        movers.append(reader)
        reader, axis = graph.only_reader(reader.outputs[0]), moved
    return movers, reader, axis


def _writing(edit: Edit, node: Node, output: str) -> onnx.NodeProto:
    """The node, as it was changed in this pass if so, with another name for its output."""
    proto = onnx.NodeProto()
    proto.CopyFrom(next(iter(edit.replaced.get(node.index, ())), edit.graph.model.graph.node[node.index]))
    proto.output[0] = output
    return proto


def _fold_before(edit: Edit, node: Node) -> bool:
    graph = edit.graph
    before = graph.producer.get(node.inputs[0])
    if before is None or graph.only_reader(node.inputs[0]) is not node:
        return False
    source = next((name for name in before.inputs if not graph.is_constant(name)), before.inputs[0])
    n_channels, sizes = _n_read(graph, node), graph.sizes(source) or ()
    if node.attributes.get("transA", 0) or sizes[1:2] != (n_channels,):  # a constant may have more than what it is for
        return False
    found = applied(graph, before, source, n_channels, 1)
    if found is None:
        return False
    factor, summand = found
    if summand.any() and _pads(node):
        return _swap(edit, node, before)
    if not edit.claim(node, before):
        return False
    weight, axis = graph.constant(node.inputs[1]), channel_axis(node, graph)
    added = (weight * _over_read(graph, node, summand)).astype(np.float64)
    bias = _bias(graph, node) + added.sum(axis=tuple(i for i in range(weight.ndim) if i != axis))
    scaled = weight * _over_read(graph, node, factor)
    edit.replaced[before.index] = ()
    edit.replaced[node.index] = [_rebuilt(edit, node, source, scaled, bias.astype(np.float32), node.outputs[0])]
    return True


def _n_read(graph: Graph, node: Node) -> int:
    """Channels that a linear operator reads."""
    shape = graph.shape(node.inputs[1]) or ()
    if node.op_type == "Conv":
        return shape[1] * int(node.attributes.get("group", 1))
    return shape[1] if node.attributes.get("transB", 0) else shape[0]


def _over_read(graph: Graph, node: Node, values: Floats) -> Floats:
    """One value for each channel that a linear operator reads, in a shape that broadcasts with its weight."""
    weight = graph.constant(node.inputs[1])
    kernel = (1,) * (weight.ndim - 2)
    if node.op_type == "Conv":
        n_groups = int(node.attributes.get("group", 1))
        return np.repeat(values.reshape(n_groups, -1), len(weight) // n_groups, axis=0).reshape(
            *weight.shape[:2], *kernel
        )
    return values.reshape(1, -1) if node.attributes.get("transB", 0) else values.reshape(-1, 1, *kernel)


def _swap(edit: Edit, node: Node, add: Node) -> bool:
    """A scalar summand before padding stays; where a scalar factor is before that, it moves past it."""
    graph, operand = edit.graph, _scalar_operand(edit.graph, add)
    if add.op_type != "Add" or operand is None:
        return False
    source, value = operand
    multiply = graph.producer.get(source)
    operand = None if multiply is None or multiply.op_type != "Mul" else _scalar_operand(graph, multiply)
    if multiply is None or operand is None or graph.only_reader(source) is not add or operand[1] == 0:
        return False
    if not edit.claim(node, add, multiply):
        return False
    summand = edit.constant(f"{add.name}_summand", np.array([value / operand[1]], np.float32))
    edit.replaced[multiply.index] = ()
    edit.replaced[add.index] = [helper.make_node("Add", [operand[0], summand], list(add.outputs), name=add.name)]
    scaled = graph.constant(node.inputs[1]) * np.float32(operand[1])
    edit.replaced[node.index] = [_rebuilt(edit, node, node.inputs[0], scaled, _bias(graph, node), node.outputs[0])]
    return True


def _rebuilt(edit: Edit, node: Node, source: str, weight: Floats, bias: Floats, output: str) -> onnx.NodeProto:
    proto = edit.graph.copy_of(node)
    del proto.input[:], proto.output[:]
    names = (edit.constant(f"{node.name}_weight", weight), edit.constant(f"{node.name}_bias", bias))
    proto.input.extend([source, *names])
    proto.output.append(output)
    return proto


def _pads(node: Node) -> bool:
    """Whether some outputs are sums of fewer products than others, as those of a ConvTranspose mostly are."""
    if node.op_type != "Conv":
        return node.op_type == "ConvTranspose"
    return any(node.attributes.get("pads", ())) or node.attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED


def _constant_operand(graph: Graph, node: Node, other: TensorName) -> Floats | None:
    if node.op_type not in ("Add", "Div", "Mul", "Sub") or node.inputs[0] == node.inputs[1]:
        return None
    name = node.inputs[1] if node.inputs[0] == other else node.inputs[0]
    return graph.constant(name) if graph.is_constant(name) else None


def _scalar_operand(graph: Graph, node: Node) -> tuple[TensorName, float] | None:
    if node.op_type not in ("Mul", "Add"):
        return None
    scalars = [graph.is_constant(name) and graph.constant(name).size == 1 for name in node.inputs]
    if not any(scalars):
        return None
    slot = scalars.index(True)
    value, other = graph.constant(node.inputs[slot]), node.inputs[1 - slot]
    return None if value.ndim > graph.rank(other) else (other, float(value.reshape(())))


def _per_channel(operand: Floats, n_channels: int, axis: int, rank: int) -> Floats | None:
    """The operand as one value per channel, None where it varies along another axis or widens the output.

    Args:
        operand: Read together with a tensor.
        n_channels: Of that.
        axis: Of its channels.
        rank: Of the tensor; 0 where it is not known, and the operand a scalar if anything.
    """
    if operand.ndim > rank or operand.dtype != np.float32:
        return None
    if operand.size == 1:
        return np.full(n_channels, operand.reshape(()), np.float32)
    wanted = [n_channels if i == axis else 1 for i in range(rank)]
    padded = [1] * (rank - operand.ndim) + list(operand.shape)
    return operand.reshape(n_channels) if padded == wanted else None
