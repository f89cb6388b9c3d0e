"""Activations made of exponentials, which onnxruntime's kernels compute slowly, by operators with fast ones.

Between what they read and what they write there are only operators without integer kernels: no further range is
quantized.
"""

from math import prod

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import CLIP_HAS_INPUTS
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["FEWEST_ELEMENTS", "split_exponentials"]

FEWEST_ELEMENTS = 1 << 11
"""In smaller tensors starting more operators takes most of what Elu and Softplus save: decision 0045."""
_WRITTEN = ("Elu", "Softplus", "Mish")


@of_each_node(CLIP_HAS_INPUTS)
def split_exponentials(edit: Edit, node: Node) -> None:
    """Elu, Softplus and Mish on large tensors by Exp, Log and arithmetic.

    Mish may be an operator, or the product of ``x`` and ``tanh(softplus(x))`` as exporters write it.

    The model stays as it is, and is given back where there is nothing to do.
    """
    graph = edit.graph
    parts = Parts(edit, node)
    gated = _gated(graph, node)
    if gated is not None and _is_large(graph, gated):
        edit.replaced[gated.index] = ()
        _write_gate(parts, gated.inputs[0], node.outputs[0])
    elif node.op_type in _WRITTEN and _is_large(graph, node):
        _write(parts)
    if parts.nodes:
        edit.replaced[node.index] = parts.nodes


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


def _write(parts: Parts) -> None:
    """What the node does."""
    source, output = parts.node.inputs[0], parts.node.outputs[0]
    if parts.node.op_type == "Elu":
        _write_elu(parts, source, output)
    elif parts.node.op_type == "Softplus":
        _write_softplus(parts, source, output)
    else:
        parts.add("Mul", [source, _write_gate(parts, source)], output=output)


def _write_gate(parts: Parts, source: TensorName, output: TensorName | None = None) -> TensorName:
    """``tanh(softplus(x)) = n / (n + 2)`` with ``n = e^2 + 2 e`` and ``e = exp(x)``; beyond 20 it is 1.

    No part is a difference of numbers that are nearly equal.
    """
    two, minus, half = _number(parts, "two", 2), _number(parts, "minus", -2), _number(parts, "half", -0.5)
    clipped = parts.add("Clip", [source, "", _number(parts, "most", 20)], part="clip")
    e = parts.add("Exp", [clipped], part="exp")
    square, twice = parts.add("Pow", [e, two], part="square"), parts.add("Div", [e, half], part="twice")
    n = parts.add("Sub", [square, twice], part="n")
    total = parts.add("Sub", [n, minus], part="sum")
    return parts.add("Div", [n, total], part="" if output else "gate", output=output)


def _write_elu(parts: Parts, source: TensorName, output: TensorName) -> None:
    """``max(x, exp(min(x, 0)) - 1)``: the exponential is never below ``x``."""
    clipped = parts.add("Clip", [source, "", _number(parts, "most", 0)], part="clip")
    less = parts.add("Sub", [parts.add("Exp", [clipped], part="exp"), _number(parts, "one", 1)], part="less")
    parts.add("Max", [source, less], output=output)


def _write_softplus(parts: Parts, source: TensorName, output: TensorName) -> None:
    """``max(x, 0) + log(1 + t)`` with ``t = exp(-|x|)``, of which no part overflows.

    What rounding takes off ``u = 1 + t``, relative to that, is added to its logarithm: far below 0 it is all of it.
    """
    magnitude = parts.add("Abs", [source], part="abs")
    t = parts.add("Exp", [parts.add("Neg", [magnitude], part="neg")], part="exp")
    u = parts.add("Sub", [t, _number(parts, "minus", -1)], part="sum")
    kept = parts.add("Sub", [u, _number(parts, "one", 1)], part="kept")
    share = parts.add("Div", [parts.add("Sub", [kept, t], part="more"), u], part="share")
    rest = parts.add("Sub", [share, parts.add("Log", [u], part="log")], part="rest")
    parts.add("Sub", [parts.add("Relu", [source], part="relu"), rest], output=output)


def _number(parts: Parts, called: str, value: float) -> TensorName:
    return parts.constant(called, np.array(value, np.float32))
