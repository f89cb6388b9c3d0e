"""Products that kernels without VNNI add in 16 bits."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from autoquant.domain.region import NodeName, TensorName
from autoquant.inspection.kernels import base_op
from autoquant.inspection.scopes import Scope
from autoquant.model.columns import columns_of, pair_sums
from autoquant.model.graph import Graph, Node

__all__ = ["LARGEST_PAIR", "activation_dtype", "saturating_pairs"]

LARGEST_PAIR = 128
"""Sum of two weights that fits: 255 * 128 is an int16, 255 * 129 is not."""
_NEGLIGIBLE = 4
"""What a pair may sum to beyond that unmentioned: at most 1020 of 32767 are lost, at the largest activations only.

Roundings with error feedback take pairs that fit a few integers further (decision 0029).
"""

_KERNELS: Mapping[str, tuple[str, tuple[int, ...], int | None]] = {
    "QLinearConv": ("Conv", (3,), 2),
    "QLinearMatMul": ("MatMul", (3,), 2),
    "QGemm": ("Gemm", (3,), 2),
    "MatMulInteger": ("MatMul", (1,), 2),
    "MatMulIntegerToFloat": ("MatMul", (1,), 4),
    "DynamicQuantizeMatMul": ("MatMul", (1,), None),
    "DynamicQuantizeLSTM": ("MatMul", (1, 2), None),
    "QAttention": ("MatMul", (1,), 6),
}
"""How weights are stored, their inputs, and the input with the zero point of the activations, None where that is u8.

ConvInteger multiplies from the other side and is exact.
"""


def saturating_pairs(scope: Scope) -> Iterator[tuple[NodeName, int]]:
    """Nodes whose products with u8 activations can go far beyond 16 bits, each with its largest sum of two weights.

    With s8 activations, which kernels have in QOperator files only, two products always fit.

    Args:
        scope: Its optimised graph with the values of its constants.
    """
    for kernel in scope.optimized.nodes:
        form, weights, _ = _KERNELS.get(base_op(kernel), ("", (), None))
        if not weights or activation_dtype(kernel, scope) == "int8":
            continue
        largest = max(_largest_sum(form, kernel, kernel.inputs[i], scope.optimized) for i in weights)
        if largest > LARGEST_PAIR + _NEGLIGIBLE:
            leader = scope.matching.leader.get(kernel.index, kernel)
            yield scope.place(leader.name), largest


def activation_dtype(kernel: Node, scope: Scope) -> str | None:
    """Of the integers that a product with a weight reads, ``"int8"`` or ``"uint8"``.

    Returns:
        None for other kernels, for those that quantize floats themselves, to u8, and where it is not known, as behind
        DynamicQuantizeLinear, which writes u8.
    """
    *_, zero_point = _KERNELS.get(base_op(kernel), (None,))
    if zero_point is None:
        return None
    tensors: Iterable[TensorName] = (*kernel.inputs[zero_point : zero_point + 1], kernel.inputs[0])
    known = (graph.dtype(tensor) for tensor in tensors for graph in (scope.optimized, scope.given))
    return next((dtype for dtype in known if dtype is not None), None)


def _largest_sum(form: str, kernel: Node, weight: TensorName, optimized: Graph) -> int:
    """Magnitude, 0 for what are no constants of s8."""
    if not optimized.is_constant(weight) or optimized.dtype(weight) != "int8":
        return 0
    columns = columns_of(form, optimized.constant(weight), kernel.attributes)
    return 0 if columns is None else int(np.abs(pair_sums(columns.astype(np.int16))).max(initial=0))
