"""Weights in the order in which integer kernels multiply them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["columns_of", "pair_sums"]

_Numbers = npt.NDArray[Any]


def columns_of(op_type: str, weight: _Numbers, attributes: Mapping[str, Any]) -> _Numbers | None:
    """The weight of Conv, Gemm or MatMul, shape (outputs, even number of inputs): zeros make an odd number even.

    A convolution goes through the channels of one kernel position before those of the next one.

    Returns:
        None for depthwise convolutions, whose kernels add in 32 bits, for empty weights, and for other operators.
    """
    if weight.size == 0:
        return None
    if op_type == "Conv":
        if weight.shape[0] == attributes.get("group", 1) and weight.shape[1] == 1:
            return None
        columns = np.moveaxis(weight, 1, -1).reshape(weight.shape[0], -1)
    elif op_type == "Gemm":
        columns = weight if attributes.get("transB", 0) else weight.T
    elif op_type == "MatMul":
        matrix = weight if weight.ndim > 1 else weight[:, None]
        columns = np.moveaxis(matrix, -2, -1).reshape(-1, matrix.shape[-2])
    else:
        return None
    return np.pad(columns, [(0, 0), (0, columns.shape[1] % 2)])


def pair_sums(columns: _Numbers) -> _Numbers:
    """Sums of neighbours along the last axis, of even length: what kernels without VNNI add in 16 bits.

    References:
        onnxruntime's documentation, "Quantize ONNX models", data type selection: on AVX2 and AVX512 U8S8 uses
        VPMADDUBSW, which adds two products in 16 bits, those of inputs 2i and 2i + 1.
    """
    sums: _Numbers = columns[..., 0::2] + columns[..., 1::2]
    return sums
