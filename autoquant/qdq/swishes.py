"""SiLUs and hard swishes behind what is quantized, which onnxruntime fuses in float alone: decision 0070."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.model.copies import opset_of
from autoquant.model.excerpts import Excerpt, NewNode, new_excerpt
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, hard_sigmoid_factors, kind_of
from autoquant.model.opsets import HARD_SWISH
from autoquant.qdq.breakers import comes_from_dq
from autoquant.qdq.parts import CONTRIB, Parts
from autoquant.qdq.plan import Plan
from autoquant.qdq.planner import Planner

__all__ = ["Swish", "fused_swishes", "swish_excerpts", "swishes_of", "write_swish"]

_RANK_OF_IMAGES = 4
_HARD = (1 / 6, 3.0)
"""Slope and summand of a hard swish: ``x * Clip((x + 3) / 6, 0, 1)``."""


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A product ``x * gate(x)`` as two operators and as one, with what these have as attributes."""

    gate: str
    fused: str
    of_gate: Mapping[str, Any] = field(default_factory=dict)
    of_fused: Mapping[str, Any] = field(default_factory=dict)


_SPELLINGS: Mapping[Rewrite, _Spelling] = {
    Rewrite.FUSED_SILUS: _Spelling("Sigmoid", f"{CONTRIB}:QuickGelu", of_fused={"alpha": 1.0}),
    Rewrite.FUSED_HARD_SWISHES: _Spelling("HardSigmoid", "HardSwish", of_gate={"alpha": 1 / 6, "beta": 0.5}),
}


@dataclass(frozen=True, slots=True)
class Swish:
    """A product ``x * gate(x)``.

    Attributes:
        gate: The operator whose output nothing else reads.
        rewrite: Which makes one operator of the two.
    """

    gate: Node
    rewrite: Rewrite


def swishes_of(graph: Graph, planner: Planner) -> Mapping[int, Swish]:
    """Those of known size that integers may come before, by the index of the Mul."""
    found = {node.index: swish for node in graph.nodes if (swish := _swish(node, graph)) is not None}
    return {
        product: swish
        for product, swish in found.items()
        if graph.dtype(swish.gate.inputs[0]) == "float32"
        and graph.shape(swish.gate.inputs[0]) is not None
        and _may_be_quantized(swish.gate.inputs[0], planner)
    }


def fused_swishes(swishes: Mapping[int, Swish], rewrites: Rewrites, graph: Graph, plan: Plan) -> Mapping[int, Swish]:
    """Those of them that run on floats behind a DequantizeLinear, of which each of two readers gets one of its own."""
    return {
        product: swish
        for product, swish in swishes.items()
        if swish.rewrite in rewrites
        and plan.integer.isdisjoint((product, swish.gate.index))
        and comes_from_dq(swish.gate.inputs[0], graph, plan)
    }


def write_swish(parts: Parts, product: Node, rewrite: Rewrite, source: str, target: str) -> None:
    """Add the one operator under the name of the Mul.

    References:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QuickGelu
        https://onnx.ai/onnx/operators/onnx__HardSwish.html
    """
    spelling = _SPELLINGS[rewrite]
    if spelling.fused.startswith(CONTRIB):
        parts.import_contrib()
    parts.node(spelling.fused, [source], [target], product.name, **spelling.of_fused)


def swish_excerpts(graph: Graph, swishes: Mapping[int, Swish], rewrite: Rewrite) -> tuple[Excerpt, Excerpt] | None:
    """The largest of those that a rewrite fuses between integers, as two operators and as one; None without any.

    Of images it is between Convs, whose kernels want channels last: not all versions of onnxruntime move that through
    either form. These have the fewest products that there can be.
    """
    shapes = [graph.shape(each.gate.inputs[0]) or () for each in swishes.values() if each.rewrite is rewrite]
    if not shapes:
        return None
    shape, spelling = max(shapes, key=math.prod), _SPELLINGS[rewrite]

    def apart(source: str) -> list[NewNode]:
        return [
            NewNode(spelling.gate, (source,), "gate", spelling.of_gate),
            NewNode("Mul", (source, "gate"), "product"),
        ]

    def together(source: str) -> list[NewNode]:
        return [NewNode(spelling.fused, (source,), "product", spelling.of_fused)]

    return _between_integers(graph, shape, apart), _between_integers(graph, shape, together)


def _between_integers(graph: Graph, shape: tuple[int, ...], swish: Callable[[str], list[NewNode]]) -> Excerpt:
    """What ``swish`` makes of a tensor, called ``product``, behind and before what is rounded."""
    constants: dict[str, npt.ArrayLike] = {"scale": np.float32(1 / 32), "zero_point": np.uint8(128)}
    if len(shape) == _RANK_OF_IMAGES:
        constants |= {"weight": np.full((shape[1], 1, 1, 1), 32, np.int8), "zero": np.int8(0)}
        before = [*_rounded("x"), *_conv("x_read", "before", shape[1]), *_rounded("before")]
        behind = [*_rounded("product"), *_conv("product_read", "behind", shape[1]), *_rounded("behind")]
        nodes = [*before, *swish("before_read"), *behind]
    else:
        nodes = [*_rounded("x"), *swish("x_read"), *_rounded("product")]
    return new_excerpt(graph, {TensorName("x"): shape}, nodes[:-1], constants)


def _rounded(tensor: str) -> list[NewNode]:
    """To integers, and back for readers."""
    quantized = NewNode("QuantizeLinear", (tensor, "scale", "zero_point"), f"{tensor}_integers")
    return [quantized, NewNode("DequantizeLinear", (quantized.output, "scale", "zero_point"), f"{tensor}_read")]


def _conv(source: str, target: str, n_channels: int) -> list[NewNode]:
    """A Conv of each channel alone that multiplies with one."""
    weight = NewNode("DequantizeLinear", ("weight", "scale", "zero"), f"{target}_weight")
    return [weight, NewNode("Conv", (source, weight.output), target, {"group": n_channels})]


def _may_be_quantized(tensor: TensorName, planner: Planner) -> bool:
    """Whether a DequantizeLinear may write a tensor, as ``comes_from_dq`` says of one assignment."""
    producer = planner.graph.producer.get(tensor)
    if producer is None:
        return False
    passes = kind_of(producer) is Kind.SAME_RANGE
    return _may_be_quantized(producer.inputs[0], planner) if passes else planner.can_be_integer(producer)


def _swish(product: Node, graph: Graph) -> Swish | None:
    if product.op_type != "Mul":
        return None
    for value, other in (product.inputs, product.inputs[::-1]):
        gate = graph.producer.get(other)
        if gate is not None and gate.inputs[:1] == (value,) and graph.only_reader(other) is product:
            rewrite = _rewrite_of(gate, graph)
            return None if rewrite is None else Swish(gate, rewrite)
    return None


def _rewrite_of(gate: Node, graph: Graph) -> Rewrite | None:
    if gate.op_type == "Sigmoid":
        return Rewrite.FUSED_SILUS
    if gate.op_type == "HardSigmoid" and opset_of(graph.model) >= HARD_SWISH:
        factors = hard_sigmoid_factors(gate)
        return Rewrite.FUSED_HARD_SWISHES if factors is not None and np.allclose(factors, _HARD, rtol=1e-6) else None
    return None
