"""Schemes: what one region takes."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

__all__ = [
    "FLOAT",
    "BiasCorrection",
    "DType",
    "Granularity",
    "Operators",
    "RangeKind",
    "RangeMethod",
    "Rounding",
    "Scheme",
    "TensorFormat",
]

FLOAT = "float"
"""Name of the scheme that leaves a region as it is."""


class DType(StrEnum):
    """Integer types of QuantizeLinear, and of the weights of MatMulNBits."""

    U8 = "u8"
    S8 = "s8"
    U16 = "u16"
    S16 = "s16"
    S4 = "s4"
    """Of weights in blocks alone."""

    @property
    def numpy(self) -> np.dtype[np.integer]:
        """The numpy type that holds the integers: numpy has none of 4 bits."""
        return np.dtype({"u": "uint", "s": "int"}[self[0]] + str(max(self.bits, 8)))

    @property
    def bits(self) -> int:
        """Width of the stored integers."""
        return int(self[1:])

    @property
    def is_signed(self) -> bool:
        """Whether negative integers can be stored."""
        return self[0] == "s"

    @property
    def lowest(self) -> int:
        """Smallest integer that can be stored."""
        return -(1 << (self.bits - 1)) if self.is_signed else 0

    @property
    def highest(self) -> int:
        """Largest integer that can be stored."""
        return (1 << (self.bits - self.is_signed)) - 1


class Granularity(StrEnum):
    """What shares one scale."""

    TENSOR = "tensor"
    CHANNEL = "channel"
    BLOCK = "block"
    """So many values in a row of what a product sums up."""


class Operators(StrEnum):
    """Which operators of a region are quantized."""

    ALL = "all"
    LINEAR = "linear"
    """Only Conv, Gemm and MatMul with constant weights, and the activations fused into them."""


class BiasCorrection(StrEnum):
    """What the biases of linear operators make up for."""

    NONE = "none"
    MEAN = "mean"
    """The mean that quantization adds to each channel of the operator's output."""


class Rounding(StrEnum):
    """How the integers of constant weights are chosen."""

    NEAREST = "nearest"
    GPTQ = "gptq"
    """What one weight of an output channel gets wrong, its other weights make up for, on calibration samples."""
    ADAROUND = "adaround"
    """Up or down: of the two integers next to each weight those that together suit the calibration samples."""
    ADAQUANT = "adaquant"
    """Any integers, on scales that are learned with them; biases take back the mean that is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFormat:
    """How one tensor is quantized; not where, not how fast.

    Attributes:
        dtype: The stored type.
        granularity: What shares one scale.
        symmetric: Whether the zero point stands in the middle of the integers.
        power_of_two: Whether scales are powers of two, wide enough that nothing inside the range is clipped.
        unsaturated: Whether scales of weights are wide enough that a kernel which adds the products of neighbours in 16
            bits never saturates.
        block: Values in a block; None where no blocks share a scale.

    >>> str(TensorFormat.parse("s8:channel:sym"))
    's8:channel:sym'
    >>> TensorFormat.parse("u8:tensor:asym:pow2").power_of_two
    True
    >>> TensorFormat.parse("s8:block-128:sym").block
    128
    """

    dtype: DType
    granularity: Granularity = Granularity.TENSOR
    symmetric: bool = False
    power_of_two: bool = False
    unsaturated: bool = False
    block: int | None = None

    def __str__(self) -> str:
        symmetry = "sym" if self.symmetric else "asym"
        size = "" if self.block is None else f"-{self.block}"
        scales = (":pow2" if self.power_of_two else "") + (":unsaturated" if self.unsaturated else "")
        return f"{self.dtype}:{self.granularity}{size}:{symmetry}{scales}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the spelling that ``str`` writes.

        Raises:
            ValueError: The text is not ``DTYPE:GRANULARITY:SYMMETRY``, or that with ``:pow2``, ``:unsaturated`` or both
                behind it.
        """
        match = re.fullmatch(
            r"(u8|s8|u16|s16|s4):(tensor|channel|block-(16|32|64|128|256)):(sym|asym)(:pow2)?(:unsaturated)?", text
        )
        if not match:
            raise ValueError(f"'{text}' is no tensor format, write e.g. 'u8:tensor:asym' or 's8:channel:sym'")
        return cls(
            dtype=DType(match[1]),
            granularity=Granularity(match[2].partition("-")[0]),
            symmetric=match[4] == "sym",
            power_of_two=match[5] is not None,
            unsaturated=match[6] is not None,
            block=int(match[3]) if match[3] else None,
        )

    @property
    def has_free_scales(self) -> bool:
        """Whether a rounding may learn other scales than those of the extremes."""
        return not (self.power_of_two or self.unsaturated)

    def integer_range(self) -> tuple[int, int]:
        """Lowest and highest integer that the scale is made for: symmetric signed types leave out the lowest."""
        lowest = self.dtype.lowest + (1 if self.symmetric and self.dtype.is_signed else 0)
        return lowest, self.dtype.highest


class RangeKind(StrEnum):
    """How the range of an activation is chosen: from a histogram, all but the last."""

    MIN_MAX = "min-max"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"
    MSE = "mse"
    DYNAMIC = "dynamic"
    """Not calibrated: the extremes of each input, found when the model runs."""


@dataclass(frozen=True, slots=True)
class RangeMethod:
    """A range kind with its parameter.

    Attributes:
        kind: The rule.
        percent: Share of values inside the range, percentile only, in (50, 100).

    >>> str(RangeMethod.parse("percentile-99.99"))
    'percentile-99.99'
    """

    kind: RangeKind
    percent: float | None = None

    def __str__(self) -> str:
        return self.kind if self.percent is None else f"{self.kind}-{self.percent}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the spelling that ``str`` writes.

        Raises:
            ValueError: The text names no range method.
        """
        if text in set(RangeKind) - {RangeKind.PERCENTILE}:
            return cls(RangeKind(text))
        match = re.fullmatch(r"percentile-(\d+(?:\.\d+)?)", text)
        if not match or not 50 < float(match[1]) < 100:
            known = "'min-max', 'percentile-99.99', 'entropy', 'mse' or 'dynamic'"
            raise ValueError(f"'{text}' is no range method, write {known}")
        return cls(RangeKind.PERCENTILE, float(match[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What a quantized region takes.

    Attributes:
        name: Its name in the space, in Optuna, in reports.
        activation: Format of every activation, per tensor.
        weight: Format of constant weights.
        ranges: How activation ranges are chosen.
        operators: Which operators of the region are quantized.
        bias: What the biases of its linear operators make up for.
        rounding: How the integers of constant weights are chosen.

    Raises:
        ValueError: Scales are to be learned that the weight's format fixes.
    """

    name: str
    activation: TensorFormat
    weight: TensorFormat
    ranges: RangeMethod
    operators: Operators = Operators.ALL
    bias: BiasCorrection = BiasCorrection.NONE
    rounding: Rounding = Rounding.NEAREST

    def __post_init__(self) -> None:
        if self.rounding is Rounding.ADAQUANT and not self.weight.has_free_scales:
            raise ValueError(f"rounding = 'adaquant' learns scales, '{self.weight}' says what they are, write 'gptq'")

    @property
    def is_dynamic(self) -> bool:
        """Whether activations are quantized with the range of each input: neighbours get and give floats."""
        return self.ranges.kind is RangeKind.DYNAMIC

    @property
    def is_blockwise(self) -> bool:
        """Whether blocks of the inputs and of the weight have a scale each, for which an LSTM has no kernel."""
        return self.weight.granularity is Granularity.BLOCK

    @property
    def kernels(self) -> tuple[object, ...]:
        """What decides which kernels run: schemes that differ in the rest differ in numbers alone."""
        return self.is_dynamic, self.activation, self.weight, self.operators

    @property
    def opset(self) -> int:
        """The first version of ONNX's operators that can express it.

        QuantizeLinear is there from 10 on, DynamicQuantizeLinear from 11, an axis from 13, integers of 16 bits from 21.
        """
        if self.is_dynamic:
            return 11
        if max(self.activation.dtype.bits, self.weight.dtype.bits) > 8:
            return 21
        return 13 if self.weight.granularity is Granularity.CHANNEL else 10
