"""Conversions of activations that no integer kernel is behind."""

from autoquant.inspection.kernels import base_op
from autoquant.inspection.scopes import Scope
from autoquant.inspection.sources import dequantizer
from autoquant.model.graph import Node
from autoquant.model.ops import LINEAR

__all__ = ["is_converted_for_nothing"]


def is_converted_for_nothing(node: Node, scope: Scope) -> bool:
    """Whether a product with a float weight reads floats that were quantized, and dequantized everywhere they are read.

    Seen where constants were folded behind a quantizer: what it wrote of the weight is gone, the rest is left.
    """
    if base_op(node) not in LINEAR or not scope.given.is_known(node.inputs[1]):
        return False
    dq = dequantizer(node.inputs[0], scope.given)
    q = scope.given.producer.get(dq.inputs[0]) if dq is not None else None
    kernel = scope.matching.kernel.get(q.index) if q is not None else None
    if kernel is None or base_op(kernel) != "QuantizeLinear" or kernel.outputs[0] in scope.optimized.pinned:
        return False
    readers = scope.optimized.consumers.get(kernel.outputs[0], ())
    return all(base_op(reader) == "DequantizeLinear" for reader in readers)
