"""A plan in the grammar of onnxruntime's TensorQuantOverrides."""

from collections.abc import Mapping

from autoquant.domain.scheme import DType, Granularity, TensorFormat
from autoquant.model.graph import Node
from autoquant.model.ops import activations, channel_axis, weight_of
from autoquant.qdq.plan import Plan, Planner, QuantKey

__all__ = ["TYPE_NAMES", "tensor_quant_overrides"]

TYPE_NAMES = {DType.U8: "QUInt8", DType.S8: "QInt8", DType.U16: "QUInt16", DType.S16: "QInt16"}
"""Members of onnxruntime's ``QuantType``."""

Override = dict[str, object]


def tensor_quant_overrides(plan: Plan, planner: Planner) -> Mapping[str, list[Override]]:
    """Overrides that make ``quantize_static`` write what the plan says, for the nodes that the plan quantizes.

    Types are spelled as the members of ``QuantType``; scales and zero points are numbers. What the grammar cannot say
    is left out: more than two types of one tensor; readers that take floats where others take integers; a Gemm that
    writes floats beside one that writes integers; the nodes that keep a float operator in float; corrected biases, as
    ``quantize_static`` rounds those of the float model.
    """
    found = _activations(plan, planner)
    for index in sorted(plan.integer):
        for name, override in _constants(planner.graph.nodes[index], plan, planner).items():
            found.setdefault(name, [override])
    return found


def _activations(plan: Plan, planner: Planner) -> dict[str, list[Override]]:
    graph = planner.graph
    found: dict[str, list[Override]] = {}
    for tensor, key in plan.produced.items():
        found[tensor] = [_activation(key, planner)]
    for (tensor, _), key in plan.entries.items():
        if tensor not in plan.produced:
            found.setdefault(tensor, [_activation(key, planner)])
        elif "convert" not in found[tensor][0]:
            readers = [n.name for n in graph.consumers[tensor] if plan.key_for(n, tensor) is key]
            found[tensor][0]["convert"] = {**_activation(key, planner), "recv_nodes": readers}
    return found


def _constants(node: Node, plan: Plan, planner: Planner) -> dict[str, Override]:
    graph, scheme, weight = planner.graph, plan.schemes[node.index], weight_of(node, planner.graph)
    operands = (name for name in activations(node, graph) if graph.is_constant(name))
    found: dict[str, Override] = {name: _constant(scheme.activation, None) for name in operands}
    if weight is not None:
        found[weight] = _constant(scheme.weight, channel_axis(node, graph))
    return found


def _activation(key: QuantKey, planner: Planner) -> Override:
    params = planner.params(key)
    return {
        "quant_type": TYPE_NAMES[params.dtype],
        "scale": float(params.scale),
        "zero_point": int(params.zero_point),
    }


def _constant(tensor_format: TensorFormat, axis: int | None) -> Override:
    override: Override = {"quant_type": TYPE_NAMES[tensor_format.dtype], "symmetric": tensor_format.symmetric}
    if axis is not None and tensor_format.granularity is Granularity.CHANNEL:
        override["axis"] = axis
    return override
