"""What building needs of other stages."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, RangeMethod, Rounding, TensorFormat
from autoquant.domain.statistics import CalibrationRange

__all__ = ["ActivationErrors", "Means", "Ranges", "Rounder"]


class Ranges(Protocol):
    """Gives the calibration range of an activation."""

    def __call__(self, tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        """The range, from the same statistics at every call."""
        ...


class ActivationErrors(Protocol):
    """Gives the mean squared error of quantizing an activation, as a share of its mean square."""

    def __call__(
        self, tensor: TensorName, calibration_range: CalibrationRange | None, tensor_format: TensorFormat
    ) -> float:
        """With these numbers, or with its extremes where no range is given; 0 for what was not observed."""
        ...


class Means(Protocol):
    """Gives the means of an activation's channels."""

    def __call__(self, tensor: TensorName, axis: int) -> npt.NDArray[np.float64] | None:
        """Shape (C,); None where channels along this axis were not observed."""
        ...


class Rounder(Protocol):
    """Gives the integers of a weight, and the scales that they are meant for."""

    def __call__(
        self,
        weight: TensorName,
        scale: npt.NDArray[np.float32],
        zero_point: npt.NDArray[np.generic],
        dtype: DType,
        rounding: Rounding,
    ) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.float32]] | None:
        """Shapes of the weight and of the scale; None where the nearest integers are to be taken.

        Scale and zero point are scalars, or have the shape (C,) with one value for each output channel. Or the scale
        has the shape (B, C) with one value for each block of its inputs, whose sizes are powers of two, and the zero
        point is a scalar.
        """
        ...
