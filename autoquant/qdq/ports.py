"""What building needs of other stages."""

from typing import Protocol

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import RangeMethod, TensorFormat
from autoquant.domain.statistics import CalibrationRange

__all__ = ["Ranges"]


class Ranges(Protocol):
    """Gives the calibration range of an activation."""

    def __call__(self, tensor: TensorName, tensor_format: TensorFormat, method: RangeMethod) -> CalibrationRange:
        """The range, from the same statistics at every call."""
        ...
