"""Products of signed activations, for which x86 has no fast kernels."""

from collections.abc import Iterator

from autoquant.domain.region import NodeName
from autoquant.inspection.saturation import activation_dtype
from autoquant.inspection.scopes import Scope

__all__ = ["signed_products"]


def signed_products(scope: Scope) -> Iterator[NodeName]:
    """Nodes whose kernels multiply s8 activations.

    Only a file of integer operators has such by default on x86: Q/DQ pairs become unsigned there, or stay in float.

    References:
        onnxruntime's documentation, "Quantize ONNX models": S8S8 with QOperator is slow on x86-64. Its MLAS has kernels
        of their own for them with AVX-VNNI-INT8 only.
    """
    for kernel in scope.optimized.nodes:
        if activation_dtype(kernel, scope) == "int8":
            yield scope.place(scope.matching.leader.get(kernel.index, kernel).name)
