"""A plan in the grammar of onnxruntime's TensorQuantOverrides."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Granularity, Rounding, TensorFormat
from autoquant.model.copies import from_bytes
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import activations, channel_axis, weight_of
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.constants import constant_params
from autoquant.qdq.params import QuantParams
from autoquant.qdq.plan import Plan, QuantKey
from autoquant.qdq.planner import Planner

__all__ = ["TYPE_NAMES", "op_types_with_float_outputs", "stored_scales", "tensor_quant_overrides"]

TYPE_NAMES = {DType.U8: "QUInt8", DType.S8: "QInt8", DType.U16: "QUInt16", DType.S16: "QInt16"}
"""Members of onnxruntime's ``QuantType``."""

Override = dict[str, object]
_SCALED = re.compile(rf":({'|'.join(rounding for rounding in Rounding)}|bias)-[0-9a-f]{{12}}")
"""In the label of a weight."""


def tensor_quant_overrides(plan: Plan, planner: Planner) -> Mapping[str, list[Override]]:
    """Overrides that make ``quantize_static`` write what the plan says, for the nodes that the plan quantizes.

    Types are spelled as the members of ``QuantType``; scales and zero points are numbers. What the grammar cannot say
    is left out: more than two types of one tensor; readers that take floats where others take integers, for which
    ``float_model`` has another name; which operators write floats, see ``op_types_with_float_outputs``; operators with
    the range of each input; the nodes that keep a float operator in float; corrected biases and other integers than the
    nearest ones, as ``quantize_static`` rounds what the float model holds, see ``float_model``.
    """
    found = _activations(plan, planner)
    for index in sorted(plan.integer):
        for name, override in _constants(planner.graph.nodes[index], plan, planner).items():
            found.setdefault(name, override)
    return found


def op_types_with_float_outputs(plan: Plan, graph: Graph) -> frozenset[str] | None:
    """For ``OpTypesToExcludeOutputQuantization`` of ``quantize_static``, which knows no nodes.

    Returns:
        Operator types whose nodes run on integers and write floats; None where others of such a type write integers.
    """
    absorbing = set(plan.absorbed.values())
    writing = {i for i in plan.integer if graph.nodes[i].outputs[0] in plan.produced or i in absorbing}
    integers, floats = (frozenset(graph.nodes[i].op_type for i in some) for some in (writing, plan.integer - writing))
    return None if integers & floats else floats


def stored_scales(candidate: Candidate, graph: Graph) -> Mapping[str, list[Override]]:
    """Overrides with the scales of weights that the values of the float model alone do not give.

    Those are widened for a bias, learned, or of integers that were not rounded to the nearest ones, so that what they
    stand for has other extremes.

    Args:
        candidate: A model of quantized constants.
        graph: The float model.
    """
    own, found = {node.name: node for node in graph.nodes}, dict[str, list[Override]]()
    member = Graph(from_bytes(candidate.skeleton))
    for dq in member.nodes:
        label = candidate.variants.get(dq.inputs[0], "") if dq.op_type == "DequantizeLinear" else ""
        if not _SCALED.search(label):
            continue
        scale, zero_point = (_value(name, candidate.constants, member) for name in dq.inputs[1:3])
        dtype = next(dtype for dtype in TYPE_NAMES if dtype.numpy == zero_point.dtype)
        numbers = _numbers(QuantParams(scale, zero_point, dtype), dq.attributes["axis"] if scale.ndim else None)
        for reader in member.consumers[dq.outputs[0]]:
            weight = own[reader.name].inputs[reader.inputs.index(dq.outputs[0])]
            found.setdefault(weight, numbers)
    return found


def _value(name: TensorName, constants: Mapping[str, npt.NDArray[np.generic]], skeleton: Graph) -> npt.NDArray[Any]:
    """Of a constant that the skeleton holds or leaves out."""
    found: npt.NDArray[Any] = constants[name] if name in constants else skeleton.constant(name)
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
            readers = [n for n in graph.consumers[tensor] if tensor in activations(n, graph)]
            names = [n.name for n in readers if plan.key_for(n, tensor) is key]
            found[tensor][0]["convert"] = {**_activation(key, planner), "recv_nodes": names}
    return found | _before_clips(plan, planner, found)


def _before_clips(plan: Plan, planner: Planner, found: Mapping[str, list[Override]]) -> dict[str, list[Override]]:
    """Inputs of absorbed Relus and Clips that ``quantize_static`` keeps, as it does where their output is converted.

    It quantizes on both sides of them, so both sides get the same numbers, under which they change nothing.
    """
    kept = {}
    for index in plan.absorbed:
        node = planner.graph.nodes[index]
        override = found.get(node.outputs[0])
        if override is not None and "convert" in override[0]:
            kept[str(node.inputs[0])] = [{name: value for name, value in override[0].items() if name != "convert"}]
    return kept


def _constants(node: Node, plan: Plan, planner: Planner) -> dict[str, list[Override]]:
    graph, scheme, weight = planner.graph, plan.schemes[node.index], weight_of(node, planner.graph)
    operands = (name for name in activations(node, graph) if graph.is_constant(name))
    found = {str(name): _constant(name, graph, scheme.activation, None) for name in operands}
    if weight is not None:
        found[weight] = _constant(weight, graph, scheme.weight, channel_axis(node, graph))
    return found


def _activation(key: QuantKey, planner: Planner) -> Override:
    (override,) = _numbers(planner.params(key), None)
    return override


def _constant(name: TensorName, graph: Graph, tensor_format: TensorFormat, axis: int | None) -> list[Override]:
    used = axis if tensor_format.granularity is Granularity.CHANNEL else None
    if tensor_format.power_of_two or tensor_format.unsaturated:
        return _numbers(constant_params(name, graph, tensor_format, used), used)
    override: Override = {"quant_type": TYPE_NAMES[tensor_format.dtype], "symmetric": tensor_format.symmetric}
    return [override if used is None else {**override, "axis": used}]


def _numbers(params: QuantParams, axis: int | None) -> list[Override]:
    """Scale and zero point, one element a channel."""
    named: Override = {"quant_type": TYPE_NAMES[params.dtype], **({} if axis is None else {"axis": axis})}
    pairs = zip(params.scale.reshape(-1), params.zero_point.reshape(-1), strict=True)
    return [{**named, "scale": float(scale), "zero_point": int(zero_point)} for scale, zero_point in pairs]
