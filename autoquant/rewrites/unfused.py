"""Fusions that onnxruntime wrote into a file, undone: it fuses them again where they stay float."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import CLIP_HAS_INPUTS, GEMM_WITHOUT_BIAS
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.edits import Edit, Parts

__all__ = ["undo_fusions"]

_ADDEND = 3
"""Place of what a FusedConv adds behind its bias."""
_PARAMETERS: Mapping[str, Sequence[str]] = {
    "": (),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""What parameters of activations are called, in the order of ``activation_params``; some nodes have no activation."""


def undo_fusions(model: onnx.ModelProto) -> onnx.ModelProto:
    """FusedConv, FusedGemm and FusedMatMul become the operators of ONNX that they are made of.

    These are what integer kernels are known for. Files have them that onnxruntime wrote with
    ``SessionOptions.optimized_model_filepath``.

    References:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
    """
    graph = graph_of(model)
    edit = Edit(graph)
    for node in graph.nodes:
        parts, write = Parts(edit, node), _WRITERS.get(node.op_type)
        if write is not None and write(parts):
            parts.nodes[-1].output[0] = node.outputs[0]
            edit.replaced[node.index] = parts.nodes
    return infer_shapes(edit.model()) if edit.replaced else model


def _add(parts: Parts, op_type: str, inputs: Sequence[TensorName], **attributes: Any) -> TensorName:
    """A node; what it writes."""
    return parts.add(op_type, inputs, part=f"{op_type}_{len(parts.nodes)}", **attributes)


def _constant(parts: Parts, number: int, values: npt.ArrayLike) -> TensorName:
    """A new one of the type of what the node reads."""
    dtype = parts.edit.graph.dtype(parts.node.inputs[0]) or "float32"
    return parts.constant(f"constant_{number}", np.asarray(values, dtype))


def _activate(parts: Parts, source: TensorName, parameters: Sequence[float]) -> None:
    """What the attribute ``activation`` says, if anything."""
    op_type = _activation(parts.node)
    given = dict(zip(_PARAMETERS[op_type], parameters, strict=False))
    if op_type == "Clip" and opset_of(parts.edit.graph.model) >= CLIP_HAS_INPUTS:
        _add(parts, op_type, [source, *(_constant(parts, i, bound) for i, bound in enumerate(given.values()))])
    elif op_type:
        _add(parts, op_type, [source], **given)


def _turned(parts: Parts, tensor: TensorName, numbers: Iterator[int]) -> TensorName:
    """With its last two axes swapped; constants are new ones with the next of the numbers."""
    graph = parts.edit.graph
    if graph.is_constant(tensor):
        return _constant(parts, next(numbers), np.swapaxes(graph.constant(tensor), -1, -2))
    *others, row, column = range(graph.rank(tensor))
    return _add(parts, "Transpose", [tensor], perm=[*others, column, row])


def _activation(node: Node) -> str:
    found: bytes = node.attributes.get("activation", b"")
    return found.decode()


def _without_activation(node: Node) -> dict[str, Any]:
    """Its other attributes."""
    return {name: value for name, value in node.attributes.items() if not name.startswith("activation")}


def _write_conv(parts: Parts) -> bool:
    """False where it stays: its activation is not known."""
    node = parts.node
    if _activation(node) not in _PARAMETERS:
        return False
    written = _add(parts, "Conv", [name for name in node.inputs[:_ADDEND] if name], **_without_activation(node))
    if any(node.inputs[_ADDEND:]):
        written = _add(parts, "Add", [written, node.inputs[_ADDEND]])
    _activate(parts, written, node.attributes.get("activation_params", ()))
    return True


def _write_gemm(parts: Parts) -> bool:
    """False where it stays: its activation is not known, or a Gemm needs a bias."""
    node = parts.node
    has_bias = any(node.inputs[2:]) or opset_of(parts.edit.graph.model) >= GEMM_WITHOUT_BIAS
    if not has_bias or _activation(node) not in _PARAMETERS:
        return False
    written = _add(parts, "Gemm", [name for name in node.inputs if name], **_without_activation(node))
    given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    _activate(parts, written, [value for value in given if value is not None])
    return True


def _write_matmul(parts: Parts) -> bool:
    """False where it stays: batches are swapped, or how many axes an operand has is not known."""
    node, graph = parts.node, parts.edit.graph
    is_turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    operands = list(zip(node.inputs, is_turned, strict=True))
    is_known = all(graph.rank(name) > 1 for name, turns in operands if turns)
    if not is_known or any(node.attributes.get(f"transBatch{name}", 0) for name in "AB"):
        return False
    numbers = itertools.count()
    first, second = (_turned(parts, name, numbers) if turns else name for name, turns in operands)
    written, alpha = _add(parts, "MatMul", [first, second]), float(node.attributes.get("alpha", 1.0))
    if alpha != 1.0:
        _add(parts, "Mul", [written, _constant(parts, next(numbers), alpha)])
    return True


_WRITERS: Mapping[str, Callable[[Parts], bool]] = {
    "com.microsoft:FusedConv": _write_conv,
    "com.microsoft:FusedGemm": _write_gemm,
    "com.microsoft:FusedMatMul": _write_matmul,
}
