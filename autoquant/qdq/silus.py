"""SiLUs behind what is quantized, which onnxruntime does not fuse as it does in float: decision 0070."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

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
_RANK_OF_IMAGES = 4


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
    """The largest of these SiLUs between integers, as two operators and as one.

    Of images it is between Convs, whose kernels want channels last: not all versions of onnxruntime move that through
    either form. These have the fewest products that there can be.
    """
    shapes = [graph.shape(graph.nodes[gate].inputs[0]) or () for gate in silus.values()]
    shape = max(shapes, key=math.prod)
    apart, together = (_between_integers(graph, shape, silu) for silu in (_apart, _together))
    return apart, together


def _between_integers(graph: Graph, shape: tuple[int, ...], silu: Callable[[str], list[NewNode]]) -> Excerpt:
    """What ``silu`` makes of a tensor, called ``product``, behind and before what is rounded."""
    constants: dict[str, npt.ArrayLike] = {"scale": np.float32(1 / 32), "zero_point": np.uint8(128)}
    if len(shape) == _RANK_OF_IMAGES:
        constants |= {"weight": np.full((shape[1], 1, 1, 1), 32, np.int8), "zero": np.int8(0)}
        before = [*_rounded("x"), *_conv("x_read", "before", shape[1]), *_rounded("before")]
        behind = [*_rounded("product"), *_conv("product_read", "behind", shape[1]), *_rounded("behind")]
        nodes = [*before, *silu("before_read"), *behind]
    else:
        nodes = [*_rounded("x"), *silu("x_read"), *_rounded("product")]
    return new_excerpt(graph, TensorName("x"), shape, nodes[:-1], constants)


def _apart(source: str) -> list[NewNode]:
    return [NewNode("Sigmoid", (source,), "gate"), NewNode("Mul", (source, "gate"), "product")]


def _together(source: str) -> list[NewNode]:
    return [NewNode(_FUSED, (source,), "product", _FACTOR)]


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


def _gate(product: Node, graph: Graph) -> Node | None:
    if product.op_type != "Mul":
        return None
    for value, other in (product.inputs, product.inputs[::-1]):
        gate = graph.producer.get(other)
        if gate is not None and gate.op_type == "Sigmoid" and gate.inputs[0] == value:
            return gate if graph.only_reader(other) is product else None
    return None
