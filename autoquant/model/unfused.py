"""Fusions that onnxruntime wrote into a file, undone: it fuses them again where they stay float."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.affine import with_nodes
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames
from autoquant.model.rewrite import infer_shapes

__all__ = ["undo_fusions"]

_CLIP_HAS_INPUTS = _GEMM_WITHOUT_BIAS = 11
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
    graph = Graph(model)
    names = NewNames(graph)
    found = [parts for node in graph.nodes if (parts := _parts(graph, names, node)) is not None]
    for parts in found:
        parts.nodes[-1].output[0] = parts.node.outputs[0]
    constants = [tensor for parts in found for tensor in parts.constants]
    replaced = {parts.node.index: parts.nodes for parts in found}
    return infer_shapes(with_nodes(model, replaced, constants)) if replaced else model


@dataclass(slots=True)
class _Parts:
    """What comes in place of a node.

    Attributes:
        graph: It is in.
        names: Of new tensors.
        node: It.
        nodes: So far.
        constants: New ones.
    """

    graph: Graph
    names: NewNames
    node: Node
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, op_type: str, inputs: Sequence[TensorName], **attributes: Any) -> TensorName:
        """A node; what it writes."""
        name = f"{self.node.name}_{op_type}_{len(self.nodes)}"
        written = self.names.new(f"{name}_out")
        self.nodes.append(helper.make_node(op_type, inputs, [written], name=name, **attributes))
        return written

    def constant(self, values: npt.ArrayLike) -> TensorName:
        """A new one of the type of what the node reads."""
        name = self.names.new(f"{self.node.name}_constant_{len(self.constants)}")
        dtype = self.graph.dtype(self.node.inputs[0]) or "float32"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def activate(self, source: TensorName, parameters: Sequence[float]) -> None:
        """What the attribute ``activation`` says, if anything."""
        op_type = _activation(self.node)
        given = dict(zip(_PARAMETERS[op_type], parameters, strict=False))
        if op_type == "Clip" and opset_of(self.graph.model) >= _CLIP_HAS_INPUTS:
            self.add(op_type, [source, *map(self.constant, given.values())])
        elif op_type:
            self.add(op_type, [source], **given)

    def turned(self, tensor: TensorName) -> TensorName:
        """With its last two axes swapped."""
        if self.graph.is_constant(tensor):
            return self.constant(np.swapaxes(self.graph.constant(tensor), -1, -2))
        *others, row, column = range(self.graph.rank(tensor))
        return self.add("Transpose", [tensor], perm=[*others, column, row])


def _parts(graph: Graph, names: NewNames, node: Node) -> _Parts | None:
    """None where the node stays."""
    parts, write = _Parts(graph, names, node), _WRITERS.get(node.op_type)
    return parts if write is not None and write(parts) else None


def _activation(node: Node) -> str:
    found: bytes = node.attributes.get("activation", b"")
    return found.decode()


def _without_activation(node: Node) -> dict[str, Any]:
    """Its other attributes."""
    return {name: value for name, value in node.attributes.items() if not name.startswith("activation")}


def _write_conv(parts: _Parts) -> bool:
    """False where it stays: its activation is not known."""
    node = parts.node
    if _activation(node) not in _PARAMETERS:
        return False
    written = parts.add("Conv", [name for name in node.inputs[:_ADDEND] if name], **_without_activation(node))
    if any(node.inputs[_ADDEND:]):
        written = parts.add("Add", [written, node.inputs[_ADDEND]])
    parts.activate(written, node.attributes.get("activation_params", ()))
    return True


def _write_gemm(parts: _Parts) -> bool:
    """False where it stays: its activation is not known, or a Gemm needs a bias."""
    node = parts.node
    has_bias = any(node.inputs[2:]) or opset_of(parts.graph.model) >= _GEMM_WITHOUT_BIAS
    if not has_bias or _activation(node) not in _PARAMETERS:
        return False
    written = parts.add("Gemm", [name for name in node.inputs if name], **_without_activation(node))
    given = [node.attributes.get(f"activation_{name}") for name in ("alpha", "beta")]
    parts.activate(written, [value for value in given if value is not None])
    return True


def _write_matmul(parts: _Parts) -> bool:
    """False where it stays: batches are swapped, or how many axes an operand has is not known."""
    node, graph = parts.node, parts.graph
    is_turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    operands = list(zip(node.inputs, is_turned, strict=True))
    is_known = all(graph.rank(name) > 1 for name, turns in operands if turns)
    if not is_known or any(node.attributes.get(f"transBatch{name}", 0) for name in "AB"):
        return False
    first, second = (parts.turned(name) if turns else name for name, turns in operands)
    written, alpha = parts.add("MatMul", [first, second]), float(node.attributes.get("alpha", 1.0))
    if alpha != 1.0:
        parts.add("Mul", [written, parts.constant(alpha)])
    return True


_WRITERS: Mapping[str, Callable[[_Parts], bool]] = {
    "com.microsoft:FusedConv": _write_conv,
    "com.microsoft:FusedGemm": _write_gemm,
    "com.microsoft:FusedMatMul": _write_matmul,
}
