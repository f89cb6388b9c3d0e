"""Reading back the graph that onnxruntime really runs."""

import hashlib
import re
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import numpy_helper

from autoquant.model.around import candidate_alone, candidate_in
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes

__all__ = [
    "ADDED_CAST",
    "QUANTIZED",
    "RENAMED",
    "SUFFIX",
    "OptimizedGraph",
    "is_integer_op",
    "original_name",
    "read_optimized",
    "read_optimized_nodes",
    "unknown_graph",
]

SUFFIX = re.compile(r"(_token_\d+|_nchwc|_nhwc)+$")
"""What onnxruntime appends to names."""
ADDED_CAST = "InsertedPrecisionFreeCast_"
"""What it puts before the names of Casts that it adds around float16, and of the tensors that these read or give."""
QUANTIZED = (
    *("_MatMul_quant", "_quantized", "_quant"),
    *(f"{end}_Q{bits}" for end in ("_matmul", "") for bits in (2, 4, 8)),
)
"""What onnxruntime's quantizers append to the names of nodes that they replace: ``quantize_dynamic``, which makes a
MatMul of a Gemm first, and ``MatMulNBitsQuantizer``, with ``_matmul`` where it writes DequantizeLinear nodes."""
RENAMED = "_QuantizeLinear_Input"
"""What they append to an output of the graph whose name the DequantizeLinear takes."""
_BYTES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
_FUSION = re.compile(r"/\w+Fusion/?$")
_INTEGER_OPS = re.compile(
    r"QLinear\w+|QGemm|MatMulInteger\w*|ConvInteger|DynamicQuantize(MatMul|LSTM)|QAttention|MatMulNBits|NhwcMaxPool"
)


@dataclass(frozen=True, slots=True)
class OptimizedGraph:
    """What is left of a model after onnxruntime's optimizations.

    Attributes:
        integer_nodes: Nodes of the given model that became integer kernels.
        kernels: Operator, domain before it, of every node, in order.
        digest: Equal for equal graphs, small constants included and large ones left out.
        is_known: Whether there was a graph to read.
    """

    integer_nodes: frozenset[str]
    kernels: tuple[str, ...]
    digest: str
    is_known: bool = True


def unknown_graph(model: bytes) -> OptimizedGraph:
    """What an execution provider makes of a model that doesn't show it."""
    return OptimizedGraph(frozenset(), (), hashlib.sha256(model).hexdigest(), is_known=False)


def read_optimized(path: Path) -> OptimizedGraph:
    """Read the file that a session wrote with ``optimized_model_filepath``; external data are not read.

    Of a model around a candidate it is the candidate's.
    """
    graph = candidate_in(onnx.load(path, load_external_data=False).graph)
    integers = {tensor.name for tensor in graph.initializer if tensor.data_type in _BYTES}
    on_integers = (n for n in graph.node if is_integer_op(n.op_type) or _clips_integers(n, integers))
    return OptimizedGraph(
        integer_nodes=frozenset(SUFFIX.sub("", node.name) for node in on_integers),
        kernels=tuple(f"{n.domain}:{n.op_type}" if n.domain else n.op_type for n in graph.node),
        digest=_digest(graph),
    )


def read_optimized_nodes(path: Path, *, has_constants: bool = False) -> Graph:
    """The same graph to walk; values of constants that the session left out cannot be read.

    It has the types that ONNX can infer, where the file has none, as onnxruntime writes none without a shape.

    Args:
        path: Of the file.
        has_constants: Whether the session kept all of them, beside the file.
    """
    return Graph(infer_shapes(candidate_alone(onnx.load(path, load_external_data=has_constants))))


def original_name(name: str) -> str:
    """The name that a node or tensor had before onnxruntime changed it."""
    return SUFFIX.sub("", _FUSION.sub("", SUFFIX.sub("", name))).removeprefix(ADDED_CAST)


def is_integer_op(op_type: str) -> bool:
    """Whether an operator, its domain left out, computes on integers of 8 bits or fewer."""
    return _INTEGER_OPS.fullmatch(op_type) is not None


def _clips_integers(node: onnx.NodeProto, integers: Container[str]) -> bool:
    """Whether a Clip, as which a HardSigmoid may be written, has bounds among these constants."""
    return node.op_type == "Clip" and any(name in integers for name in node.input)


def _digest(graph: onnx.GraphProto) -> str:
    """Names of nodes are left out, names of tensors count without the numbers that onnxruntime appends.

    Nor does the order count: openings of one model differ in where they put the layout reorders.
    """
    lines: list[bytes] = []
    for node in graph.node:
        names = [SUFFIX.sub("", name) for name in (*node.input, "->", *node.output)]
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        lines.append(f"{node.domain} {node.op_type} {names}".encode() + b"".join(attributes))
    for tensor in graph.initializer:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            values = numpy_helper.to_array(tensor)
            lines.append(f"{SUFFIX.sub('', tensor.name)} {values.dtype} {values.shape}".encode() + values.tobytes())
    return hashlib.sha256(b"\n".join(sorted(lines))).hexdigest()
