"""SiLUs behind what is quantized, which onnxruntime does not fuse as it does in float: decision 0070."""

import math
from collections.abc import Mapping

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.excerpts import Excerpt, NewNode, new_excerpt
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, kind_of
from autoquant.qdq.breakers import comes_from_dq
from autoquant.qdq.parts import CONTRIB, Parts
from autoquant.qdq.plan import Plan
from autoquant.qdq.planner import Planner

__all__ = ["fused_silus", "silu_excerpts", "silus_of", "write_silu"]

_FUSED, _FACTOR = f"{CONTRIB}:QuickGelu", {"alpha": 1.0}
_QUANTIZED = [
    NewNode("QuantizeLinear", ("x", "scale", "zero_point"), "integers"),
    NewNode("DequantizeLinear", ("integers", "scale", "zero_point"), "floats"),
]
_APART = [NewNode("Sigmoid", ("floats",), "gate"), NewNode("Mul", ("floats", "gate"), "product")]
_TOGETHER = [NewNode(_FUSED, ("floats",), "product", _FACTOR)]
_AGAIN = [NewNode("QuantizeLinear", ("product", "scale", "zero_point"), "y")]
_NUMBERS: Mapping[str, np.generic] = {"scale": np.float32(1 / 32), "zero_point": np.uint8(128)}


def silus_of(graph: Graph, planner: Planner) -> Mapping[int, int]:
    """Products ``x * Sigmoid(x)`` of known size, by index, with the index of the Sigmoid, which nothing else reads.

    Integers may come before them.
    """
    gates = {node.index: gate for node in graph.nodes if (gate := _gate(node, graph)) is not None}
    return {
        product: gate.index
        for product, gate in gates.items()
        if graph.dtype(gate.inputs[0]) == "float32"
        and graph.shape(gate.inputs[0]) is not None
        and _may_be_quantized(gate.inputs[0], planner)
    }


def fused_silus(silus: Mapping[int, int], graph: Graph, plan: Plan) -> Mapping[int, int]:
    """Those of them that run on floats behind a DequantizeLinear, of which each of two readers gets one of its own."""
    return {
        product: gate
        for product, gate in silus.items()
        if plan.integer.isdisjoint((product, gate)) and comes_from_dq(graph.nodes[gate].inputs[0], graph, plan)
    }


def write_silu(parts: Parts, product: Node, source: str, target: str) -> None:
    """Add onnxruntime's own operator under the name of the Mul.

    References:
        https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.QuickGelu
    """
    parts.import_contrib()
    parts.node(_FUSED, [source], [target], product.name, **_FACTOR)


def silu_excerpts(graph: Graph, silus: Mapping[int, int]) -> tuple[Excerpt, Excerpt]:
    """The largest of these SiLUs between integers, as two operators and as one."""
    shapes = [graph.shape(graph.nodes[gate].inputs[0]) or () for gate in silus.values()]
    shape = max(shapes, key=math.prod)
    apart, together = (
        new_excerpt(graph, TensorName("x"), shape, [*_QUANTIZED, *nodes, *_AGAIN], _NUMBERS)
        for nodes in (_APART, _TOGETHER)
    )
    return apart, together


def _may_be_quantized(tensor: TensorName, planner: Planner) -> bool:
    """Whether a DequantizeLinear may write a tensor, as ``comes_from_dq`` says of one assignment."""
    producer = planner.graph.producer.get(tensor)
    if producer is None:
        return False
    passes = kind_of(producer) is Kind.SAME_RANGE
    return _may_be_quantized(producer.inputs[0], planner) if passes else planner.can_be_integer(producer)


def _gate(product: Node, graph: Graph) -> Node | None:
    if product.op_type != "Mul":
        return None
    for value, other in (product.inputs, product.inputs[::-1]):
        gate = graph.producer.get(other)
        if gate is not None and gate.op_type == "Sigmoid" and gate.inputs[0] == value:
            return gate if graph.only_reader(other) is product else None
    return None
