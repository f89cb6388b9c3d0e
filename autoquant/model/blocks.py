"""What onnxruntime's CPU provider computes in blocks of channels: its float Convs of images, and some beside them."""

from collections.abc import Callable, Mapping
from enum import Enum, auto

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import clip_bounds, has_constant_bias, is_float_constant
from autoquant.model.opsets import RESIZE_WITHOUT_REGION

__all__ = ["ARITHMETIC", "POOLS", "Role", "constant_of", "gate_of", "images_of", "is_image", "role_of", "takes_blocks"]

ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
POOLS = frozenset({"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"})
_LEAST, _ALIGNED = 8, 4
"""Channels of a block with AVX2, and those that it takes from other layouts at a time."""
_PASSING = ("BatchNormalization", "Gelu", "HardSigmoid", "HardSwish", "Relu", "Resize", "Sigmoid", "Tanh")
_RESIZED = frozenset(
    {("nearest", "asymmetric"), ("linear", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners")}
)
"""Modes and transformations of coordinates."""


class Role(Enum):
    """What becomes of blocks in an operator that writes an image of whole ones."""

    SOURCE = auto()
    """Conv and pools write them whatever they read."""
    PASSING = auto()
    """Reads and writes them."""
    JOINING = auto()
    """Does so where all that it reads is in blocks."""
    GATED = auto()
    """Multiplies with a number for each channel that is computed; does so where that is given at every place."""
    FUSED = auto()
    """Is computed in blocks as part of a Conv before it alone."""
    CONSTANT = auto()
    """Adds or multiplies with one number, or one for each channel; never computed in blocks, but a Conv can do it."""


def role_of(node: Node, graph: Graph) -> Role | None:
    """None where what it writes is never in blocks."""
    if not node.outputs or not is_image(node.outputs[0], graph):
        return None
    if node.op_type in ARITHMETIC and any(map(graph.is_constant, node.inputs)):
        return Role.CONSTANT if _is_by_channel(node, graph) else None
    if gate_of(node, graph) is not None:
        return Role.GATED
    condition = _CONDITIONS.get(node.op_type)
    return _ROLES.get(node.op_type) if condition is None or condition(node, graph) else None


def takes_blocks(node: Node, graph: Graph) -> bool:
    """Whether it reads blocks, for which what comes otherwise is reordered."""
    is_known = node.op_type in POOLS or (node.op_type == "Conv" and is_float_constant(node.inputs[1], graph))
    return is_known and is_image(node.inputs[0], graph)


def is_image(tensor: TensorName, graph: Graph) -> bool:
    """Whether an activation has whole blocks of channels."""
    shape = graph.shape(tensor)
    is_float = tensor in graph.float_tensors and not graph.is_constant(tensor)
    return is_float and shape is not None and len(shape) == 4 and 0 not in shape and shape[1] % _LEAST == 0


def images_of(node: Node, graph: Graph) -> list[TensorName]:
    """What an operator with a role reads that may be in blocks."""
    if node.op_type in ARITHMETIC or node.op_type == "Concat":
        return [name for name in node.inputs if not graph.is_constant(name)]
    return [node.inputs[0]]


def constant_of(node: Node, graph: Graph) -> TensorName:
    """The first constant that it reads."""
    return next(name for name in node.inputs if graph.is_constant(name))


def gate_of(node: Node, graph: Graph) -> TensorName | None:
    """The one place that a product gives every place of an image, as in squeeze and excitation."""
    if node.op_type != "Mul" or not all(is_image(name, graph) for name in node.inputs):
        return None
    if opset_of(graph.model) < RESIZE_WITHOUT_REGION:  # by a Resize it is given
        return None
    written = graph.shape(node.outputs[0]) or ()
    images = [name for name in node.inputs if graph.shape(name) == written]
    gates = [name for name in node.inputs if graph.shape(name) == (*written[:2], 1, 1)]
    return gates[0] if len(images) == len(gates) == 1 else None


def _has_constant_bounds(node: Node, graph: Graph) -> bool:
    return clip_bounds(node, graph) is not None


def _reads_one_shape(node: Node, graph: Graph) -> bool:
    return all(graph.shape(name) == graph.shape(node.outputs[0]) for name in node.inputs)


def _joins_channels(node: Node, graph: Graph) -> bool:
    return node.attributes["axis"] in (1, -3) and all(is_image(name, graph) for name in node.inputs)


def _is_by_channel(node: Node, graph: Graph) -> bool:
    written, constant = graph.shape(node.outputs[0]) or (), constant_of(node, graph)
    if not is_float_constant(constant, graph) or [graph.shape(name) for name in images_of(node, graph)] != [written]:
        return False
    if node.op_type in ("Sub", "Div") and graph.is_constant(node.inputs[0]):
        return False
    shape = graph.shape(constant) or ()
    is_one = set(shape) <= {1} and len(shape) <= len(written)
    is_each = shape in ((written[1], 1, 1), (1, written[1], 1, 1))
    return (is_one or is_each) and (node.op_type != "Div" or _has_inverse(constant, graph))


def _has_inverse(constant: TensorName, graph: Graph) -> bool:
    with np.errstate(divide="ignore", over="ignore"):
        return bool(np.isfinite(1 / graph.constant(constant)).all())


def _is_resized(node: Node, graph: Graph) -> bool:
    """Whether a Resize by whole factors takes the places that the kernel for blocks does."""
    usual = {"mode": b"nearest", "coordinate_transformation_mode": b"half_pixel"}
    mode, coordinates = (node.attributes.get(name, value).decode() for name, value in usual.items())
    is_known = (mode, coordinates) in _RESIZED and is_image(node.inputs[0], graph)
    if not is_known or (mode == "nearest" and node.attributes.get("nearest_mode") != b"floor"):
        return False
    before, behind = (graph.shape(name) or () for name in (node.inputs[0], node.outputs[0]))
    return before[:2] == behind[:2] and not any(new % old for old, new in zip(before, behind, strict=True))


def _writes_blocks(conv: Node, graph: Graph) -> bool:
    if not is_float_constant(conv.inputs[1], graph) or not has_constant_bias(conv, graph):
        return False
    n_written, n_read, *_ = graph.shape(conv.inputs[1]) or ()
    n_groups = conv.attributes.get("group", 1)
    if n_groups == 1:
        return n_read < _LEAST or n_read % _ALIGNED == 0
    return (n_read == 1 and n_written == n_groups) or (n_read % _LEAST == 0 and n_written // n_groups % _LEAST == 0)


_ROLES = {
    **dict.fromkeys(("Conv", *POOLS), Role.SOURCE),
    **dict.fromkeys(_PASSING, Role.PASSING),
    **dict.fromkeys(("Add", "Concat", "Mul"), Role.JOINING),
    **dict.fromkeys(("Clip", "LeakyRelu"), Role.FUSED),
}
_CONDITIONS: Mapping[str, Callable[[Node, Graph], bool]] = {
    "Add": _reads_one_shape,
    "Clip": _has_constant_bounds,
    "Concat": _joins_channels,
    "Conv": _writes_blocks,
    "Mul": _reads_one_shape,
    "Resize": _is_resized,
}
