"""What the given file says of each node: the Q/DQ nodes around it with their numbers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.inspection.kernels import base_op, is_dynamic
from autoquant.inspection.sources import PASSED, Source, moved, source_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import LINEAR
from autoquant.model.optimized import is_integer_op

__all__ = [
    "EMITS_FLOAT",
    "Quantization",
    "Written",
    "input_quantizations",
    "is_conversion",
    "output_quantizations",
    "quantization_of",
    "quantizers",
    "quantizers_behind",
    "weight_shape",
    "written_as",
]

EMITS_FLOAT = ("Gemm", "MatMul")
"""Whose integer kernels can write floats."""

_CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")


class Written(StrEnum):
    """How the file wants a node to run."""

    FLOAT = "float"
    QUANTIZED = "quantized"
    """Q/DQ around it."""
    PARTLY = "partly quantized"
    """Q/DQ on all sides but one, as at the border of what stays in float."""
    WEIGHT_ONLY = "weight-only"
    OPERATOR = "integer operator"
    DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """The numbers of one Q or DQ.

    Attributes:
        dtype: Type of the integers.
        scale: None where it is not constant.
        zero_point: None where it is not constant; zero where it is left out.
        axis: Channel axis as the node says, or where a Transpose behind it puts that.
        block_size: Along that axis, 0 where each channel has one scale.
        is_constant: Whether the DQ reads a constant, or what is computed from constants alone.
    """

    dtype: str
    scale: npt.NDArray[Any] | None
    zero_point: npt.NDArray[Any] | None
    axis: int
    block_size: int
    is_constant: bool

    @property
    def is_per_channel(self) -> bool:
        """Whether there are several scales along an axis."""
        return self.scale is not None and self.scale.size > 1 and not self.block_size

    def is_equal(self, other: "Quantization") -> bool:
        """Whether type and numbers are the same."""
        return self.dtype == other.dtype and all(
            a is not None and b is not None and np.array_equal(a, b)
            for a, b in ((self.scale, other.scale), (self.zero_point, other.zero_point))
        )


def is_conversion(node: Node) -> bool:
    """Whether the node quantizes or dequantizes."""
    return base_op(node) in _CONVERSIONS


def quantizers(tensor: TensorName, graph: Graph) -> Iterator[Node]:
    """The QuantizeLinear nodes that read a tensor, or what it is moved to."""
    return (node for node in graph.consumers.get(moved(tensor, graph), ()) if base_op(node) == "QuantizeLinear")


def quantization_of(node: Node, graph: Graph) -> Quantization:
    """The numbers of a Q or DQ."""
    scale, zero_point = (_value(node, i, graph) for i in (1, 2))
    reads_integers = base_op(node) == "DequantizeLinear"
    has_zero_point = len(node.inputs) > 2 and bool(node.inputs[2])
    stored = (node.inputs if reads_integers else node.outputs)[0]
    dtype = graph.dtype(node.inputs[2] if has_zero_point else stored)
    return Quantization(
        dtype=dtype or "uint8",
        scale=scale,
        zero_point=zero_point if has_zero_point else np.zeros((), np.int64),
        axis=int(node.attributes.get("axis", 1)),
        block_size=int(node.attributes.get("block_size", 0)),
        is_constant=reads_integers and graph.is_known(node.inputs[0]),
    )


def weight_shape(node: Node, graph: Graph) -> tuple[int, ...] | None:
    """Dimensions of the second input of a linear operator, None where they are not known."""
    source = source_of(node.inputs[1], graph)
    if source is None:
        return graph.shape(node.inputs[1])
    shape = graph.shape(source.node.inputs[0])
    axes = source.axes(len(shape or ()))
    return None if shape is None or axes is None else tuple(shape[i] for i in axes)


def _value(node: Node, index: int, graph: Graph) -> npt.NDArray[Any] | None:
    name = node.inputs[index] if index < len(node.inputs) else ""
    if not name or not graph.is_constant(TensorName(name)):
        return None
    value = graph.constant(TensorName(name))
    return value.reshape(()) if value.size == 1 else value


def input_quantizations(node: Node, graph: Graph) -> dict[int, Quantization]:
    """By position of the input; what does not come from a DequantizeLinear is left out."""
    found = {i: source_of(tensor, graph) for i, tensor in enumerate(node.inputs)}
    return {i: _as_read(source, graph) for i, source in found.items() if source is not None}


def _as_read(source: Source, graph: Graph) -> Quantization:
    found = quantization_of(source.node, graph)
    axes = source.axes(graph.rank(source.node.inputs[0])) if found.is_per_channel else None
    return replace(found, axis=axes.index(found.axis % len(axes))) if axes else found


def output_quantizations(node: Node, graph: Graph) -> list[Quantization]:
    """Of each Q that reads an output, also behind a Relu or Clip that is its only reader."""
    return [quantization_of(q, graph) for tensor in node.outputs for q in quantizers_behind(tensor, graph)]


def quantizers_behind(tensor: TensorName, graph: Graph) -> Iterator[Node]:
    """Q that read a tensor, or the Relu or Clip that is its only reader."""
    readers = graph.consumers.get(tensor, ())
    if len(readers) == 1 and readers[0].op_type in ("Relu", "Clip"):
        tensor = readers[0].outputs[0]
    return quantizers(tensor, graph)


def written_as(node: Node, graph: Graph) -> Written:
    """How the file wants a node to run.

    A linear operator is as its weight is. What lies between the Q or DQ of others is no quantized node of its own.
    """
    op = base_op(node)
    if op == "MatMulNBits":
        return Written.WEIGHT_ONLY
    if is_integer_op(op):
        return Written.DYNAMIC if is_dynamic(node, graph) else Written.OPERATOR
    inputs = input_quantizations(node, graph)
    if not inputs or (op in PASSED and _is_between(node, graph)):
        return Written.FLOAT
    if op in LINEAR and {0, 1} <= inputs.keys() and any(_is_found_at_run_time(name, graph) for name in node.inputs):
        return Written.DYNAMIC
    if op in LINEAR and any(graph.is_known(name) for name in node.inputs[:2]):
        return _as_weight(inputs)
    if all(q.is_constant for q in inputs.values()):
        return Written.QUANTIZED if output_quantizations(node, graph) else Written.WEIGHT_ONLY
    if any(q.is_constant for q in inputs.values()):
        return Written.QUANTIZED
    return _as_sides(node, graph, inputs)


def _is_between(node: Node, graph: Graph) -> bool:
    """Whether an operator that is looked past moves a constant, or is one of several in a row."""
    source = source_of(node.inputs[0], graph)
    is_behind_others = source is not None and bool(source.between)
    return node.index in graph.constant_nodes or is_behind_others or moved(node.outputs[0], graph) != node.outputs[0]


def _is_found_at_run_time(tensor: TensorName, graph: Graph) -> bool:
    """Whether a tensor is dequantized from what a DynamicQuantizeLinear writes."""
    source = source_of(tensor, graph)
    quantize = graph.producer.get(source.node.inputs[0]) if source is not None else None
    return quantize is not None and base_op(quantize) == "DynamicQuantizeLinear"


def _as_weight(inputs: dict[int, Quantization]) -> Written:
    if not any(i in inputs and inputs[i].is_constant for i in range(2)):
        return Written.FLOAT
    return Written.WEIGHT_ONLY if all(q.is_constant for q in inputs.values()) else Written.QUANTIZED


def _as_sides(node: Node, graph: Graph, inputs: dict[int, Quantization]) -> Written:
    if base_op(node) in EMITS_FLOAT and {0, 1} <= inputs.keys():
        return Written.QUANTIZED
    reads_all = all(
        i in inputs or graph.is_known(tensor) or "int" in (graph.dtype(tensor) or "") or graph.dtype(tensor) == "bool"
        for i, tensor in enumerate(node.inputs)
        if tensor
    )
    readers = [reader for tensor in node.outputs for reader in _readers(tensor, graph)]
    quantized = [reader for reader in readers if reader is not None and base_op(reader) == "QuantizeLinear"]
    writes_all = bool(readers) and len(quantized) == len(readers)
    if reads_all and writes_all:
        return Written.QUANTIZED
    return Written.PARTLY if writes_all or (reads_all and quantized) else Written.FLOAT


def _readers(tensor: TensorName, graph: Graph) -> Iterator[Node | None]:
    """Nodes that read an output, behind a Relu or Clip too; None for the model's own output, or a body."""
    found = graph.consumers.get(tensor, ())
    if len(found) == 1 and found[0].op_type in ("Relu", "Clip") and tensor not in graph.pinned:
        tensor = found[0].outputs[0]
    tensor = moved(tensor, graph)
    yield from graph.consumers.get(tensor, ())
    if tensor in graph.pinned:
        yield None
