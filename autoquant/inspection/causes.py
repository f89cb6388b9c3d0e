"""Why a node that the file quantizes runs in float on onnxruntime's CPU provider.

Source: the QDQ selectors of that provider, and what was seen by running each case.
"""

from collections.abc import Iterator

from autoquant.inspection.kernels import MOVING, base_op
from autoquant.inspection.outputs import output_causes
from autoquant.inspection.products import product_causes, weight_only_causes
from autoquant.inspection.sources import source_of
from autoquant.inspection.types import type_causes
from autoquant.inspection.written import (
    Quantization,
    Written,
    input_quantizations,
    output_quantizations,
    quantization_of,
)
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import LINEAR

__all__ = ["UNKNOWN", "causes_of", "has_kernel"]

UNKNOWN = "cause not known to autoquant"

_UNARY = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax")
_NARY = ("Add", "Concat", "Mul", "Where")
_NARROW = ("DepthToSpace", "MaxPool", "ReduceMax", "ReduceMin", "Resize")
_CLIPPING = ("Relu", "Clip")
_RECURRENT = ("GRU", "LSTM", "RNN")
_WITHOUT = frozenset(
    (
        "BatchNormalization",
        "ConvTranspose",
        "Div",
        "Einsum",
        "Erf",
        "Exp",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "InstanceNormalization",
        "LayerNormalization",
        "Mish",
        "PRelu",
        "Pad",
        "ReduceMean",
        "SpaceToDepth",
        "Sqrt",
        "Sub",
        "Tanh",
    )
)
"""Seen to stay in float."""


def causes_of(node: Node, graph: Graph, written: Written, machine: str) -> tuple[str, ...]:
    """Sentences without a full stop, at least one.

    Args:
        node: Runs in float although the file quantizes it.
        graph: The given file.
        written: How the file quantizes it.
        machine: ``platform.machine()``: on x86 onnxruntime makes signed activations unsigned.
    """
    kernel = _without_kernel(node)
    if kernel:
        return (f"{kernel}{_folding(node, graph)}",)
    between = tuple(_constant_causes(node, graph, written))
    if written is Written.WEIGHT_ONLY and base_op(node) in LINEAR:
        return (*between, *weight_only_causes(node, graph)) or (UNKNOWN,)
    inputs = input_quantizations(node, graph)
    wide = _wide(node, inputs)
    if wide:
        return (wide,)
    return tuple(dict.fromkeys((*between, *_conditions(node, graph, inputs, machine)))) or (UNKNOWN,)


def has_kernel(node: Node) -> bool:
    """Whether autoquant knows of an integer kernel for the operator."""
    return _without_kernel(node) is None


def _without_kernel(node: Node) -> str | None:
    op = base_op(node)
    if op in _RECURRENT:
        return f"no integer kernel for {op} with Q/DQ on the CPU provider: quantize it dynamically or leave it in float"
    if op in _WITHOUT:
        return f"no integer kernel for {op} on the CPU provider"
    if op in _CLIPPING:
        return (
            f"no integer kernel for {op} on the CPU provider: it is only absorbed directly behind an integer operator"
        )
    if op == "Resize" and node.attributes.get("mode", b"nearest") != b"nearest":
        return f"no integer kernel for Resize with mode {node.attributes['mode'].decode()} on the CPU provider"
    if op not in (*LINEAR, *_UNARY, *_NARY, *MOVING):
        return f"autoquant knows of no integer kernel for {op} on the CPU provider"
    return None


def _folding(node: Node, graph: Graph) -> str:
    """What to do about a BatchNormalization behind a convolution, also where a Q/DQ pair is between them."""
    if base_op(node) != "BatchNormalization":
        return ""
    before = graph.producer.get(node.inputs[0])
    while before is not None and base_op(before) in ("QuantizeLinear", "DequantizeLinear"):
        before = graph.producer.get(before.inputs[0])
    if before is None or base_op(before) not in ("Conv", "ConvTranspose"):
        return ""
    return f": fold it into the {base_op(before)} before quantizing"


def _constant_causes(node: Node, graph: Graph, written: Written) -> Iterator[str]:
    """What keeps the DequantizeLinear of a constant away from the node; most Transposes do not."""
    for i, source in enumerate(source_of(tensor, graph) for tensor in node.inputs):
        if source is None or not source.is_constant:
            continue
        for op in (passed.op_type for passed in source.between):
            if op != "Transpose" or _takes_transpose(node, quantization_of(source.node, graph), written):
                where = f"between input {i} and its DequantizeLinear, which must come last"
                yield f"{op} is {where}: quantize what {op} gives"


def _takes_transpose(node: Node, constant: Quantization, written: Written) -> bool:
    """Whether a Transpose of a weight becomes part of the float kernel: of FusedMatMul, or of Gemm as its transB."""
    if base_op(node) == "MatMul":
        return constant.is_per_channel
    return base_op(node) == "Gemm" and written is Written.WEIGHT_ONLY


def _wide(node: Node, inputs: dict[int, Quantization]) -> str | None:
    """Operators that move values without looking at them take 16 bits."""
    if base_op(node) in MOVING and base_op(node) not in _NARROW:
        return None
    for kind, is_constant in (("activations", False), ("weights", True)):
        for bits in ("16", "4"):
            if any(q.is_constant is is_constant and q.dtype.endswith(f"int{bits}") for q in inputs.values()):
                return f"{bits}-bit {kind} have no integer kernel"
    return None


def _conditions(node: Node, graph: Graph, inputs: dict[int, Quantization], machine: str) -> Iterator[str]:
    yield from _input_causes(node, graph, inputs)
    yield from output_causes(node, graph)
    weights = [i for i, q in inputs.items() if q.is_constant] if base_op(node) in LINEAR else []
    positions = [i for i in _quantized_inputs(node) if i not in weights]
    yield from type_causes(node, positions, graph, machine)
    if base_op(node) in LINEAR:
        yield from product_causes(node, graph, inputs)
    elif base_op(node) in MOVING:
        yield from _moving_causes(node, graph, inputs)


def _input_causes(node: Node, graph: Graph, inputs: dict[int, Quantization]) -> Iterator[str]:
    for i in _quantized_inputs(node):
        name = node.inputs[i]
        if name and i not in inputs:
            what = "is a float constant" if graph.is_known(name) else "does not come from a DequantizeLinear"
            yield f"input {i} ('{name}') {what}"


def _quantized_inputs(node: Node) -> range:
    op = base_op(node)
    if op in LINEAR:
        return range(2)
    if op == "Where":
        return range(1, 3)
    return range(len(node.inputs)) if op in _NARY else range(1)


def _moving_causes(node: Node, graph: Graph, inputs: dict[int, Quantization]) -> Iterator[str]:
    opset = opset_of(graph.model)
    if base_op(node) == "MaxPool" and opset < 12:
        yield f"MaxPool takes integers from opset 12 on, the model is at opset {opset}"
    around = [*(inputs[i] for i in inputs if i == 0), *output_quantizations(node, graph)]
    if any(q.scale is None or q.zero_point is None for q in around):
        yield "a scale or zero point before or behind it is not a constant"
    elif any(q.is_per_channel for q in around):
        yield "an activation is quantized per channel; activations must be per tensor"
    elif any(not around[0].is_equal(q) for q in around[1:]):
        yield (
            f"different in/out parameters: {base_op(node)} only moves values and runs on integers where scale and zero"
            " point before and behind are equal"
        )
