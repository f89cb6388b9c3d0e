"""Float operators that onnxruntime would not run as they are unless something is put before or behind them."""

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import MOVING_KINDS, Kind, has_integer_twin, is_linear, kind_of
from autoquant.qdq.plan import Plan

__all__ = ["comes_from_dq", "needs_breaker", "would_pool_integers"]

_REQUANTIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Float operators that onnxruntime turns into int8: between DQ and Q by its WeightBiasQuantization, a MatMul as the
Gemm that it becomes with an Add; and behind two DQ, whatever follows, by its QDQ fusions."""


def needs_breaker(node: Node, graph: Graph, plan: Plan) -> bool:
    """Whether a float operator needs something before it so that nothing else becomes of it."""
    would_change = _would_be_quantized, _would_reach_bodies, _would_turn_a_product
    return any(would(node, graph, plan) for would in would_change)


def would_pool_integers(tensor: TensorName, graph: Graph, plan: Plan) -> bool:
    """Whether onnxruntime would quantize before a float MaxPool instead of a tensor behind it.

    It moves QuantizeLinear up through what only moves values, and the integer kernel of MaxPool takes ten times as long
    as the float one, but behind an integer convolution.
    """
    producer = graph.producer.get(tensor)
    if producer is None or kind_of(producer) is not Kind.SAME_RANGE or producer.index in plan.integer:
        return False
    if producer.op_type == "MaxPool":
        return not comes_from_dq(producer.inputs[0], graph, plan)
    return would_pool_integers(producer.inputs[0], graph, plan)


def comes_from_dq(tensor: TensorName, graph: Graph, plan: Plan) -> bool:
    """Whether a DequantizeLinear writes a tensor, or onnxruntime may move one behind what does."""
    if tensor in plan.produced:
        return True
    producer = graph.producer.get(tensor)
    passes = producer is not None and kind_of(producer) is Kind.SAME_RANGE
    return passes and producer is not None and comes_from_dq(producer.inputs[0], graph, plan)


def _would_be_quantized(node: Node, graph: Graph, plan: Plan) -> bool:
    """Whether an integer kernel would take its place: of means those alone that it computes otherwise matter."""
    is_other_pool = node.op_type == "AveragePool" and not has_integer_twin(node, graph)
    if node.op_type not in _REQUANTIZED and not is_other_pool:
        return False
    if is_other_pool or is_linear(node, graph):
        return comes_from_dq(node.inputs[0], graph, plan) and _leads_to_q(node.outputs[0], graph, plan)
    return all(comes_from_dq(name, graph, plan) for name in node.inputs[:2])


def _would_reach_bodies(node: Node, graph: Graph, plan: Plan) -> bool:
    """Whether onnxruntime would move a DequantizeLinear behind a node that bodies of If, Loop or Scan read.

    It takes what a body reads for an input of the If itself, past the end of which it writes: that ends the process.
    """
    if kind_of(node) is not Kind.SAME_RANGE or graph.read_in_bodies.isdisjoint(node.outputs):
        return False
    return comes_from_dq(node.inputs[0], graph, plan)


def _would_turn_a_product(node: Node, graph: Graph, plan: Plan) -> bool:
    """Whether onnxruntime would transpose the operands of the Gemm without a bias before a Transpose instead.

    Its weight is then no second operand any more, so that no integer kernel takes it.
    """
    if node.op_type != "Transpose" or node.index in plan.integer or node.inputs[0] in plan.produced:
        return False
    producer = graph.producer.get(node.inputs[0])
    is_biased = producer is not None and any(producer.inputs[2:])
    return producer is not None and producer.op_type == "Gemm" and not is_biased and producer.index in plan.integer


def _leads_to_q(tensor: TensorName, graph: Graph, plan: Plan) -> bool:
    return any(_quantizes(reader, tensor, graph, plan) for reader in graph.consumers.get(tensor, ()))


def _quantizes(reader: Node, tensor: TensorName, graph: Graph, plan: Plan) -> bool:
    if reader.index in plan.integer:
        return True
    if kind_of(reader) in MOVING_KINDS:
        passes = reader.inputs[0] == tensor
    else:  # onnxruntime folds a constant summand or factor into the operator before it
        others = [name for name in reader.inputs if name != tensor]
        passes = reader.op_type in ("Add", "Mul") and bool(others) and all(map(graph.is_constant, others))
    return passes and _leads_to_q(reader.outputs[0], graph, plan)
