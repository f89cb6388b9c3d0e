"""Activations made of exponentials, which onnxruntime's kernels compute slowly, by operators with fast ones.

Between what they read and what they write there are only operators without integer kernels: no further range is
quantized.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.affine import with_nodes
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames

__all__ = ["FEWEST_ELEMENTS", "split_exponentials"]

_CLIP_HAS_INPUTS = 11
FEWEST_ELEMENTS = 1 << 11
"""In smaller tensors starting more operators takes most of what Elu and Softplus save: decision 0045."""
_WRITTEN = ("Elu", "Softplus", "Mish")


def split_exponentials(model: onnx.ModelProto) -> onnx.ModelProto:
    """Elu, Softplus and Mish on large tensors by Exp, Log and arithmetic.

    Mish may be an operator, or the product of ``x`` and ``tanh(softplus(x))`` as exporters write it.

    Args:
        model: Stays as it is, and is given back where there is nothing to do.
    """
    graph = Graph(model)
    if opset_of(model) < _CLIP_HAS_INPUTS:
        return model
    names = NewNames(graph)
    written: dict[int, Sequence[onnx.NodeProto]] = {}
    constants: list[onnx.TensorProto] = []
    for node in graph.nodes:
        found = _Writing(node, names)
        gated = _gated(graph, node)
        if gated is not None and _is_large(graph, gated):
            written[gated.index] = ()
            found.gate(gated.inputs[0], node.outputs[0])
        elif node.op_type in _WRITTEN and _is_large(graph, node):
            found.write()
        if found.nodes:
            written[node.index] = found.nodes
            constants += found.constants
    return with_nodes(model, written, constants)


def _gated(graph: Graph, node: Node) -> Node | None:
    """The Softplus that a Tanh alone reads."""
    producer = graph.producer.get(node.inputs[0]) if node.op_type == "Tanh" else None
    is_gate = producer is not None and producer.op_type == "Softplus" and graph.only_reader(node.inputs[0]) is not None
    return producer if is_gate else None


def _is_large(graph: Graph, node: Node) -> bool:
    """Whether it is of many floats; of an Elu, whether it has the usual ``alpha`` of 1."""
    source = node.inputs[0]
    is_float = source in graph.float_tensors and graph.dtype(source) == "float32"
    return (
        is_float and node.attributes.get("alpha", 1.0) == 1.0 and prod(graph.shape(source) or (0,)) >= FEWEST_ELEMENTS
    )


@dataclass(slots=True)
class _Writing:
    """Nodes in place of one, which are called after it."""

    node: Node
    names: NewNames
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def write(self) -> None:
        """What the node does."""
        source, target = self.node.inputs[0], self.node.outputs[0]
        if self.node.op_type == "Elu":
            self._elu(source, target)
        elif self.node.op_type == "Softplus":
            self._softplus(source, target)
        else:
            self._add("Mul", source, self.gate(source), target=target)

    def gate(self, source: TensorName, target: TensorName | None = None) -> TensorName:
        """``tanh(softplus(x)) = n / (n + 2)`` with ``n = e^2 + 2 e`` and ``e = exp(x)``; beyond 20 it is 1.

        No part is a difference of numbers that are nearly equal.
        """
        two, minus, half = self._number("two", 2), self._number("minus", -2), self._number("half", -0.5)
        clipped = self._add("Clip", source, "", self._number("most", 20), part="clip")
        e = self._add("Exp", clipped, part="exp")
        n = self._add("Sub", self._add("Pow", e, two, part="square"), self._add("Div", e, half, part="twice"), part="n")
        return self._add("Div", n, self._add("Sub", n, minus, part="sum"), part="gate", target=target)

    def _elu(self, source: TensorName, target: TensorName) -> None:
        """``max(x, exp(min(x, 0)) - 1)``: the exponential is never below ``x``."""
        clipped = self._add("Clip", source, "", self._number("most", 0), part="clip")
        less = self._add("Sub", self._add("Exp", clipped, part="exp"), self._number("one", 1), part="less")
        self._add("Max", source, less, target=target)

    def _softplus(self, source: TensorName, target: TensorName) -> None:
        """``max(x, 0) + log(1 + t)`` with ``t = exp(-|x|)``, of which no part overflows.

        What rounding takes off ``u = 1 + t``, relative to that, is added to its logarithm: far below 0 it is all of it.
        """
        t = self._add("Exp", self._add("Neg", self._add("Abs", source, part="abs"), part="neg"), part="exp")
        u = self._add("Sub", t, self._number("minus", -1), part="sum")
        more = self._add("Sub", self._add("Sub", u, self._number("one", 1), part="kept"), t, part="more")
        share = self._add("Sub", self._add("Div", more, u, part="share"), self._add("Log", u, part="log"), part="rest")
        self._add("Sub", self._add("Relu", source, part="relu"), share, target=target)

    def _number(self, called: str, value: float) -> TensorName:
        name = self.names.new(f"{self.node.name}_{called}")
        self.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def _add(self, op_type: str, *inputs: str, part: str = "", target: TensorName | None = None) -> TensorName:
        """Another node; returns what it writes."""
        name = f"{self.node.name}_{part}" if part and target is None else self.node.name
        output = target or self.names.new(f"{name}_out")
        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=name))
        return output
