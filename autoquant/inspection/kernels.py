"""What each kernel of an optimised graph computes on."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from autoquant.domain.region import NodeName, TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.optimized import is_integer_op

__all__ = [
    "CONTROL",
    "INTEGER_DTYPES",
    "MOVING",
    "DequantizedConstant",
    "Runs",
    "base_op",
    "dequantized_constants",
    "is_dynamic",
    "runs_as",
    "telling_tensors",
]

MOVING = frozenset(
    (
        "ArgMax",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "MaxPool",
        "ReduceMax",
        "ReduceMin",
        "Reshape",
        "Resize",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    )
)
"""Operators that run on integers as they are: they move or select values."""

INTEGER_DTYPES = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16))
"""Types that QuantizeLinear writes and that count as quantized."""

CONTROL = ("If", "Loop", "Scan")
"""Operators whose attributes are graphs."""

_FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
_QGEMM_OUTPUT_ZERO_POINT = 8


class Runs(StrEnum):
    """What a node of the given file becomes, or what a kernel does."""

    INTEGER = "integer"
    FLOAT = "float"
    WEIGHT_ONLY = "weight-only"
    DYNAMIC = "dynamic"
    CONVERSION = "conversion"
    REORDER = "reorder"
    CONTROL = "control flow"
    """If, Loop and Scan; what they compute is in their bodies."""
    OTHER = "other"
    """Shapes, indices and truth values."""
    FOLDED = "folded"
    """Computed once, when the session opens."""
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DequantizedConstant:
    """A constant that becomes float again at every inference.

    Attributes:
        tensor: The stored constant.
        size_bytes: Of its integers.
        readers: Kernels that read the float values.
    """

    tensor: TensorName
    size_bytes: int
    readers: tuple[NodeName, ...]


def base_op(node: Node) -> str:
    """The operator without its domain."""
    return node.op_type.rpartition(":")[2]


def telling_tensors(node: Node) -> Sequence[TensorName]:
    """Those by whose type it is told what a node computes on: what it writes, but trees write labels."""
    return node.inputs if node.op_type.startswith("ai.onnx.ml:") else node.outputs


def runs_as(node: Node, graph: Graph) -> Runs:
    """What a kernel of an optimised graph computes on."""
    op = base_op(node)
    if op in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"):
        return Runs.CONVERSION
    if op in ("ReorderInput", "ReorderOutput"):
        return Runs.REORDER
    if op in CONTROL:
        return Runs.CONTROL
    if op in ("MatMulNBits", "GatherBlockQuantized"):
        return Runs.WEIGHT_ONLY
    if is_integer_op(op):
        return Runs.DYNAMIC if is_dynamic(node, graph) else Runs.INTEGER
    if node.inputs and _carries_integers(node.inputs[0], graph):
        return Runs.INTEGER
    types = {graph.dtype(name) for name in telling_tensors(node) if name} - {None}
    return Runs.FLOAT if not types or types & _FLOATS else Runs.OTHER


def is_dynamic(node: Node, graph: Graph) -> bool:
    """Whether an integer operator quantizes its activations at run time, or reads what does."""
    producers = [base_op(graph.producer[name]) for name in node.inputs if name in graph.producer]
    return base_op(node).startswith("DynamicQuantize") or "DynamicQuantizeLinear" in producers


def _carries_integers(tensor: TensorName, graph: Graph) -> bool:
    """Whether quantized values are in a tensor; a graph input of integers is no such."""
    while tensor in graph.producer:
        node = graph.producer[tensor]
        op = base_op(node)
        if op in ("QuantizeLinear", "NhwcMaxPool") or op.startswith("QLinear"):
            return True
        if op == "QGemm":
            return len(node.inputs) > _QGEMM_OUTPUT_ZERO_POINT and bool(node.inputs[_QGEMM_OUTPUT_ZERO_POINT])
        if op == "DynamicQuantizeLinear":
            return tensor == node.outputs[0]
        if op not in (*MOVING, "Clip") or op == "ArgMax":
            return False
        tensor = node.inputs[0]
    return graph.is_constant(tensor) and graph.dtype(tensor) in INTEGER_DTYPES


def dequantized_constants(graph: Graph) -> Iterator[DequantizedConstant]:
    """Constants of an optimised graph behind which a DequantizeLinear is left."""
    for node in graph.nodes:
        if base_op(node) != "DequantizeLinear" or not graph.is_constant(node.inputs[0]):
            continue
        yield DequantizedConstant(
            tensor=node.inputs[0],
            size_bytes=_size_bytes(node.inputs[0], graph),
            readers=tuple(reader.name for reader in graph.consumers.get(node.outputs[0], ())),
        )


def _size_bytes(tensor: TensorName, graph: Graph) -> int:
    """The first number in the name of a type is its bits: uint4, float8_e4m3fn."""
    bits = next(re.finditer(r"\d+", graph.dtype(tensor) or "int8"))
    return (math.prod(graph.shape(tensor) or ()) * int(bits.group()) + 7) // 8
