"""Scale and zero point of a format and a range, as onnxruntime's quantizer computes them, powers of two apart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.scales import scale_of
from autoquant.domain.scheme import DType, TensorFormat
from autoquant.domain.statistics import CalibrationRange

__all__ = ["QuantParams", "activation_params", "block_params", "dequantize", "quantize", "weight_params"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QuantParams:
    """The QDQ numbers of one tensor.

    Attributes:
        scale: float32, scalar per tensor, shape (C,) per channel.
        zero_point: Of the stored type, shape of ``scale``.
        dtype: The stored type.
    """

    scale: Floats
    zero_point: npt.NDArray[np.generic]
    dtype: DType


def activation_params(calibration_range: CalibrationRange, tensor_format: TensorFormat) -> QuantParams:
    """Parameters of an activation; the range is widened so that zero is exactly representable."""
    low, high = np.float32(calibration_range.low), np.float32(calibration_range.high)
    return _params(np.asarray(low), np.asarray(high), tensor_format)


def weight_params(weight: Floats, tensor_format: TensorFormat, axis: int | None) -> QuantParams:
    """Parameters of a weight from its own extremes.

    Args:
        weight: The constant.
        tensor_format: Type and symmetry.
        axis: Of the channels that have a scale each, None for one scale.
    """
    if weight.size == 0:
        return _params(np.zeros((), np.float32), np.zeros((), np.float32), tensor_format)
    other = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    return _params(np.asarray(weight.min(axis=other)), np.asarray(weight.max(axis=other)), tensor_format)


def block_params(blocks: Floats, tensor_format: TensorFormat) -> QuantParams:
    """Parameters of blocks of a weight: of each the value furthest from 0 becomes the lowest integer.

    Scales are negative where that value is positive, so that no integer is left out.

    Args:
        blocks: What shares a scale, shape (n, size).
        tensor_format: A signed and symmetric one.

    References:
        ``MatMulNBitsQuantizer`` of onnxruntime, which does so in MLAS (``q4_dq.cpp``).
    """
    low, high = blocks.min(axis=1, initial=0.0), blocks.max(axis=1, initial=0.0)
    scale = np.where(high > -low, high, low).astype(np.float32) / np.float32(tensor_format.dtype.lowest)
    safe = np.where(np.abs(scale) < np.finfo(np.float32).tiny, np.float32(1), scale)
    return QuantParams(safe, np.zeros(len(blocks), tensor_format.dtype.numpy), tensor_format.dtype)


def quantize(values: Floats, params: QuantParams, axis: int | None) -> npt.NDArray[np.generic]:
    """Round half to even in float32 and clip to the full range of the stored type."""
    scale, zero_point = _along(axis, values.ndim, params)
    rounded = np.rint(values.astype(np.float32) / scale) + zero_point
    return np.asarray(np.clip(rounded, params.dtype.lowest, params.dtype.highest).astype(params.dtype.numpy))


def dequantize(integers: npt.NDArray[np.generic], params: QuantParams, axis: int | None) -> Floats:
    """The floats that integers stand for, as DequantizeLinear computes them."""
    scale, zero_point = _along(axis, integers.ndim, params)
    return (integers.astype(np.float32) - zero_point) * scale


def _along(axis: int | None, n_dimensions: int, params: QuantParams) -> tuple[Floats, Floats]:
    """Scale and zero point in a shape that broadcasts with the values."""
    scale, zero_point = params.scale, params.zero_point.astype(np.float32)
    if axis is None:
        return scale, zero_point
    shape = [-1 if i == axis else 1 for i in range(n_dimensions)]
    return scale.reshape(shape), zero_point.reshape(shape)


def _params(low: npt.NDArray[np.float32], high: npt.NDArray[np.float32], tensor_format: TensorFormat) -> QuantParams:
    low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
    if tensor_format.symmetric:
        high = np.maximum(np.abs(low), np.abs(high))
        low = -high
    lowest, highest = tensor_format.integer_range()
    scale = scale_of(high=high.astype(np.float64), low=low.astype(np.float64), tensor_format=tensor_format)
    degenerate = scale < np.finfo(np.float32).tiny
    safe = np.where(degenerate, 1.0, scale)
    free = np.rint(lowest - low.astype(np.float64) / safe)
    zero_point = np.where(tensor_format.symmetric, np.rint((lowest + highest) / 2), free)
    zero_point = np.where(degenerate, 0, zero_point)
    dtype = tensor_format.dtype
    return QuantParams(np.asarray(safe.astype(np.float32)), np.asarray(zero_point.astype(dtype.numpy)), dtype)
