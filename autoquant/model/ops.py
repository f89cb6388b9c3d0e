"""What is known of each operator that can be quantized.

Source: the QDQ operator handlers of onnxruntime's quantizer and the QDQ selectors of its CPU provider.
"""

import math
from enum import Enum, auto

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import MASK
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import EXTREMES_OF_INTEGERS
from autoquant.model.windows import window_axes

__all__ = [
    "LINEAR",
    "MOVING_KINDS",
    "ROI",
    "SCALES",
    "SIZES",
    "VIEWS",
    "Kind",
    "activations",
    "bias_of",
    "can_be_dynamic",
    "can_emit_float",
    "channel_axes",
    "channel_axis",
    "clip_bounds",
    "gets_dimensions",
    "hard_sigmoid_factors",
    "has_constant_bias",
    "has_integer_twin",
    "is_float_constant",
    "is_linear",
    "is_of_sizes",
    "is_quantizable",
    "kind_of",
    "original_of",
    "weight_of",
    "why_float",
]


class Kind(Enum):
    """How an operator takes part in quantization."""

    LINEAR = auto()
    """Products of activations with a constant weight, or of two activations."""
    ARITHMETIC = auto()
    """Has an integer kernel with a range of its own for the output."""
    SAME_RANGE = auto()
    """Moves or selects values: integers pass with the input's scale and zero point."""
    CLIPPING = auto()
    """Relu and Clip: absorbed by the output range of the operator before."""
    RECURRENT = auto()
    """Products with constant weights step by step: its kernel takes floats and quantizes them itself."""
    FLOAT = auto()
    """Takes no part."""


MOVING_KINDS = (Kind.SAME_RANGE, Kind.CLIPPING)
"""What only moves, selects or clips values."""
VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that only say another shape."""
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
"""Operators with a weight as their second input, or another activation."""
_KINDS = {
    Kind.LINEAR: LINEAR,
    Kind.ARITHMETIC: [
        "Add",
        "Mul",
        "Sub",
        "Div",
        "Concat",
        "Sigmoid",
        "LeakyRelu",
        "GlobalAveragePool",
        "Softmax",
        "Tanh",
        "HardSwish",
        "HardSigmoid",
        "Gelu",
        "ReduceMean",
        "Where",
        "Pad",
    ],
    Kind.SAME_RANGE: [
        "AveragePool",
        "MaxPool",
        "Resize",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Slice",
        "Split",
        "Gather",
        "GatherElements",
        "DepthToSpace",
        "Expand",
        "Tile",
        "ReduceMax",
        "ReduceMin",
    ],
    Kind.CLIPPING: ("Relu", "Clip"),
    Kind.RECURRENT: ("LSTM",),
}
_KIND_OF = {op: kind for kind, ops in _KINDS.items() for op in ops}
ROI, SCALES, SIZES = 1, 2, 3
"""The inputs of a Resize that name a region of interest, factors, or the sizes of its output."""
_REARRANGING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""What comes out are all values of the first input, in another shape or order."""


def kind_of(node: Node) -> Kind:
    """The operator's part in quantization."""
    return _KIND_OF.get(node.op_type, Kind.FLOAT)


def weight_of(node: Node, graph: Graph) -> TensorName | None:
    """The constant weight of a linear operator, None where the second operand is an activation.

    A constant first operand counts as an activation, as those of element-wise operators do.
    """
    if kind_of(node) is not Kind.LINEAR or not graph.is_constant(node.inputs[1]):
        return None
    return node.inputs[1]


def is_linear(node: Node, graph: Graph) -> bool:
    """Whether the node multiplies activations with a constant weight."""
    return weight_of(node, graph) is not None


def bias_of(node: Node) -> TensorName | None:
    """The bias input of Conv, ConvTranspose and Gemm."""
    if node.op_type in ("Conv", "ConvTranspose", "Gemm") and len(node.inputs) > 2 and node.inputs[2]:
        return node.inputs[2]
    return None


def activations(node: Node, graph: Graph) -> tuple[TensorName, ...]:
    """The float inputs that are not weight or bias; constants of element-wise operators are among them."""
    kind = kind_of(node)
    if kind in MOVING_KINDS:
        return node.inputs[:1]
    if kind is Kind.LINEAR:
        return node.inputs[:1] if is_linear(node, graph) else node.inputs[:2]
    if node.op_type == "Where":
        return node.inputs[1:]
    if node.op_type in ("Pad", "ReduceMean"):
        return node.inputs[:1]
    return tuple(name for name in node.inputs if name)


def channel_axis(node: Node, graph: Graph) -> int | None:
    """Axis of the weight that holds output channels; None where a per-channel kernel does not exist.

    A MatMul with a weight of more than two dimensions fails at run time when quantized per channel.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":
        return 1 if node.attributes.get("group", 1) == 1 else None
    if node.op_type == "Gemm":
        return 0 if node.attributes.get("transB", 0) else 1
    shape = graph.shape(node.inputs[1])
    return 1 if shape is not None and len(shape) == 2 else None


def channel_axes(node: Node) -> tuple[int, int]:
    """Axes of the channels of what a linear operator with a constant weight reads and writes."""
    if node.op_type in ("Conv", "ConvTranspose"):
        return 1, 1
    return (0 if node.attributes.get("transA", 0) else -1), -1


def original_of(tensor: TensorName, graph: Graph) -> TensorName:
    """The first tensor that holds exactly these values, in whatever shape and order."""
    while tensor in graph.producer and graph.producer[tensor].op_type in _REARRANGING:
        tensor = graph.producer[tensor].inputs[0]
    return tensor


def can_emit_float(node: Node, graph: Graph) -> bool:
    """Whether the integer kernel can write floats: QGemm, and MatMulIntegerToFloat of two activations.

    A MatMul with a constant matrix becomes MatMulNBits instead, which is another scheme.
    """
    return node.op_type == "Gemm" or (node.op_type == "MatMul" and not is_linear(node, graph))


def is_of_sizes(node: Node, graph: Graph) -> bool:
    """Whether a node writes what says how large tensors are, or what follows from that and grows with it."""
    return not all(found.isdisjoint(node.outputs) for found in (graph.size_tensors, graph.position_tensors))


def is_quantizable(node: Node, graph: Graph) -> bool:
    """Whether the operator could run on integers here: float tensors, constant weights, its kernel's conditions.

    Floats that say how large tensors are must stay exact, and what grows with sizes has no range. All nodes of a norm
    have one kernel, for floats alone.
    """
    kind = kind_of(node)
    if kind in (Kind.FLOAT, Kind.RECURRENT) or not node.outputs or node.outputs[0] not in graph.float_tensors:
        return False
    if not all(name in graph.float_tensors or is_float_constant(name, graph) for name in activations(node, graph)):
        return False
    if is_of_sizes(node, graph) or node.index in graph.norm_nodes:
        return False
    if kind is Kind.LINEAR:
        return why_float(node, graph) is None
    if node.op_type == "AveragePool" and not has_integer_twin(node, graph):
        return False
    if kind is Kind.SAME_RANGE:
        return not graph.is_constant(node.inputs[0]) and _takes_integers(node, graph)
    if kind is Kind.CLIPPING:
        bounds = clip_bounds(node, graph)
        return bounds is not None and bounds[0] <= 0 <= bounds[1]
    return not all(graph.is_constant(name) for name in activations(node, graph))


def has_integer_twin(pool: Node, graph: Graph) -> bool:
    """Whether QLinearAveragePool, which onnxruntime makes of an AveragePool, computes the same means.

    It knows no dilations. Of the places of a window that reaches beyond the padding it counts others.
    """
    attributes = pool.attributes
    is_padded = any(attributes.get("pads", ())) or attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    is_cut = attributes.get("ceil_mode", 0) and attributes.get("count_include_pad", 0) and is_padded
    is_cut = is_cut and not all(axis.is_divided for axis in window_axes(pool, graph))
    return "dilations" not in attributes and not is_cut


def _takes_integers(node: Node, graph: Graph) -> bool:
    """Whether an operator that gives values of its input does so of integers."""
    if node.op_type in ("ReduceMax", "ReduceMin"):
        return opset_of(graph.model) >= EXTREMES_OF_INTEGERS
    return node.op_type != "Resize" or _repeats_values(node)


def _repeats_values(resize: Node) -> bool:
    """Whether it writes values of its input alone: no means of them, and no number of its own for what is around it."""
    is_nearest = resize.attributes.get("mode", b"nearest") == b"nearest"
    return is_nearest and resize.attributes.get("coordinate_transformation_mode") != b"tf_crop_and_resize"


def can_be_dynamic(node: Node, graph: Graph) -> bool:
    """Whether a kernel quantizes what the operator reads with the range of each input.

    Those of MatMul and Gemm with a constant matrix, and of LSTM. That of Conv is slower than float. onnxruntime takes a
    constant that widens a column, or gives the product more dimensions, for its bias, and then fails or writes fewer.
    """
    if node.op_type not in ("Gemm", "MatMul", "LSTM") or is_of_sizes(node, graph):
        return False
    weights = node.inputs[1:3] if node.op_type == "LSTM" else node.inputs[1:2]
    n_dimensions = 3 if node.op_type == "LSTM" else 2
    return (
        node.inputs[0] in graph.float_tensors
        and not graph.is_constant(node.inputs[0])
        and all(is_float_constant(name, graph) and len(graph.shape(name) or ()) == n_dimensions for name in weights)
        and not node.attributes.get("transA", 0)
        and not node.attributes.get("layout", 0)
        and has_constant_bias(node, graph)
        and not _is_widened(node, graph)
    )


def _is_widened(node: Node, graph: Graph) -> bool:
    """Whether a vector is added to what the node writes that makes it larger, or gives it dimensions."""
    written = node.outputs[0]
    is_column = _n_outputs(node, graph) == 1 and any(shape[-1] > 1 for shape in _added_vectors(written, graph))
    return is_column or (node.op_type != "LSTM" and gets_dimensions(written, graph))


def gets_dimensions(tensor: TensorName, graph: Graph) -> bool:
    """Whether a vector is added that has more dimensions, of which onnxruntime would make the bias of a product."""
    rank = graph.rank(tensor) or 1  # that of an unknown one may be as low as that of any vector
    return any(len(shape) > rank for shape in _added_vectors(tensor, graph))


def _added_vectors(tensor: TensorName, graph: Graph) -> list[tuple[int, ...]]:
    """Shapes of constants that differ along the last axis alone and are added to a tensor."""
    shapes = [
        graph.shape(name) or ()
        for reader in graph.consumers.get(tensor, ())
        if reader.op_type == "Add"
        for name in reader.inputs
        if graph.is_constant(name)
    ]
    return [shape for shape in shapes if shape and math.prod(shape) == shape[-1]]


def is_float_constant(name: TensorName, graph: Graph) -> bool:
    """Finite, too, and not near the least or the largest float, as attention masks are."""
    return graph.is_constant(name) and graph.dtype(name) == "float32" and graph.magnitude(name) < MASK


def has_constant_bias(node: Node, graph: Graph) -> bool:
    """Whether a linear operator adds nothing, or one constant for each of its outputs or for all."""
    bias = bias_of(node)
    if bias is None:
        return True
    shape = graph.shape(bias) or (1,)
    sizes = (1, _n_outputs(node, graph))
    return is_float_constant(bias, graph) and math.prod(shape) == shape[-1] and shape[-1] in sizes


def why_float(node: Node, graph: Graph) -> str | None:
    """What keeps a linear operator from running on integers; None where nothing does, or where it is none."""
    weight = weight_of(node, graph)
    if weight is None:
        return "weights that are computed" if kind_of(node) is Kind.LINEAR and node.op_type != "MatMul" else None
    if not is_float_constant(weight, graph):
        return "weights that are not finite float32"
    if graph.is_constant(node.inputs[0]):
        return "products of constants"
    if node.op_type == "Gemm" and node.attributes.get("alpha", 1.0) != 1.0:
        return "an alpha other than 1"
    return None if has_constant_bias(node, graph) else "biases that are not one constant for each output"


def clip_bounds(node: Node, graph: Graph) -> tuple[float, float] | None:
    """What Relu or Clip lets pass; infinite where a bound is left out, None where one is not constant."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    bounds = [float(node.attributes.get("min", -np.inf)), float(node.attributes.get("max", np.inf))]
    for i, name in enumerate(node.inputs[1:3]):
        if name and not graph.is_constant(name):
            return None
        if name:
            bounds[i] = float(graph.constant(name).reshape(()))
    return bounds[0], bounds[1]


def hard_sigmoid_factors(node: Node) -> tuple[float, float] | None:
    """``a`` and ``b`` of a HardSigmoid ``Clip(a * (x + b), 0, 1)``; None where one of them is not positive."""
    alpha, beta = (float(node.attributes.get(name, usual)) for name, usual in (("alpha", 0.2), ("beta", 0.5)))
    return (alpha, beta / alpha) if min(alpha, beta) > 0 else None


def _n_outputs(node: Node, graph: Graph) -> int:
    shape = graph.shape(node.inputs[1]) or (0, 0)
    if node.op_type == "Conv":
        return shape[0]
    if node.op_type == "ConvTranspose":
        return shape[1] * int(node.attributes.get("group", 1))
    return shape[0] if node.attributes.get("transB", 0) else shape[1]
