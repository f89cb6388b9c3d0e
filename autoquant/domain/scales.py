"""The step between neighbouring integers of a format."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autoquant.domain.scheme import TensorFormat

__all__ = ["next_power_of_two", "scale_of"]

_Floats = npt.NDArray[np.float64]
_Precision = TypeVar("_Precision", np.float32, np.float64)


def scale_of(low: _Floats, high: _Floats, tensor_format: TensorFormat) -> _Floats:
    """The step at which the integers of a format cover a range.

    In general the range is divided evenly; as zero points are rounded, an end may lie half a step outside. Powers of
    two are rounded up from there until both ends, rounded to the grid, are integers of the format: nothing is clipped.

    Args:
        low: Of each range, at most 0; minus ``high`` for symmetric formats.
        high: Of each range, at least 0.
        tensor_format: Type, symmetry, and whether scales are powers of two.

    Returns:
        Broadcast shape of the ends; 0 where both of them are 0.

    References:
        Jain et al., "Trained Quantization Thresholds for Accurate and Efficient Fixed-Point Inference of Deep Neural
        Networks", MLSys 2020, arXiv 1903.08066, section 3: with powers of two, rescaling is a shift.
    """
    lowest, highest = tensor_format.integer_range()
    scale = (high - low) / np.float64(highest - lowest)
    if not tensor_format.power_of_two:
        return np.asarray(scale)
    power = next_power_of_two(np.asarray(scale))
    step = np.where(power > 0, power, 1.0)
    is_clipped = np.rint(high / step) - np.rint(low / step) > highest - lowest
    return np.where(is_clipped, 2 * power, power)


def next_power_of_two(values: npt.NDArray[_Precision]) -> npt.NDArray[_Precision]:
    """The smallest power of two that is not below each value; 0 stays 0.

    >>> next_power_of_two(np.array([0.0, 0.3, 0.5, 5.0]))
    array([0. , 0.5, 0.5, 8. ])
    """
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.sign(values), exponent - (mantissa == 0.5)))
