"""Small models with Q/DQ nodes around one operator, written by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from tests.models import Array, floats, model_of

__all__ = [
    "DTYPES",
    "IMAGE",
    "MATRIX",
    "SQUARE",
    "SUMS",
    "WEIGHT",
    "Constant",
    "Wrapped",
    "ints",
    "pair",
    "parameters",
    "stored",
]

DTYPES: dict[str, np.dtype[Any]] = {
    "u8": np.dtype(np.uint8),
    "s8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16),
    "s16": np.dtype(np.int16),
    "s32": np.dtype(np.int32),
}
_MIDDLE = {"u8": 128, "s8": 0, "u16": 32768, "s16": 0, "s32": 0}


@dataclass(frozen=True)
class Constant:
    """A constant behind a DequantizeLinear.

    Attributes:
        shape: Its dimensions.
        dtype: ``u8``, ``s8``, ...
        axis: Channel axis, None per tensor.
        scale: One for all channels.
    """

    shape: tuple[int, ...]
    dtype: str = "s8"
    axis: int | None = None
    scale: float = 0.02


@dataclass(frozen=True)
class Wrapped:
    """One operator between Q/DQ pairs; its node is ``t``, the output of the model ``y``.

    Attributes:
        call: Operator with its inputs by name, e.g. ``"Conv(x, w)"``.
        inputs: Shapes of the model's inputs, each behind a Q/DQ pair.
        constants: What is quantized.
        plain: Other constants.
        behind: An operator between ``t`` and Q, which reads ``@``.
        activation: Type of all pairs, and of the output unless that says otherwise.
        output: Type of the output, empty for none: ``y`` is float.
        moves: Whether the output has the parameters of the input.
        zero_point: Of the output, the middle of the type by default.
        scale: Of the output, where it has its own.
        opset: Of the model.
    """

    call: str
    inputs: Mapping[str, Sequence[int]] = field(default_factory=lambda: {"x": (1, 4, 6, 6)})
    constants: Mapping[str, Constant] = field(default_factory=dict)
    plain: Mapping[str, Array | float] = field(default_factory=dict)
    behind: str = ""
    activation: str = "u8"
    output: str | None = None
    moves: bool = False
    zero_point: int | None = None
    scale: float = 0.05
    opset: int = 21

    @property
    def model(self) -> onnx.ModelProto:
        """With the shape of ``y`` inferred."""
        output = self.activation if self.output is None else self.output
        values: dict[str, Array | float] = dict(self.plain)
        body: list[str] = []
        for name in self.inputs:
            values |= parameters(name, self.activation)
            body.append(pair(name, f"{name}_d"))
        for name, constant in self.constants.items():
            values |= stored(name, constant)
            axis = "" if constant.axis is None else f"<axis={constant.axis}>"
            body.append(f"{name}_d = DequantizeLinear{axis}({name}_q, {name}_s, {name}_z)")
        quantized = {*self.inputs, *self.constants}
        operator, _, arguments = self.call.rpartition("(")
        reads = [f"{a}_d" if a in quantized else a for a in arguments.removesuffix(")").split(", ")]
        end = "t" if output or self.behind else "y"
        body.append(f"{end} = {operator}({', '.join(reads)})")
        if self.behind:
            end = "r" if output else "y"
            body.append(f"{end} = {self.behind.replace('@', 't')}")
        if output:
            own = parameters(end, output, self.scale, self.zero_point)
            first = next(iter((*self.inputs, *self.constants)))
            values |= {f"{end}_{k}": values[f"{first}_{k}"] for k in "sz"} if self.moves else own
            body.append(pair(end, "y"))
        return _with_output(self.inputs, "\n".join(body), values, self.opset)


IMAGE = {"x": (1, 4, 6, 6)}
WEIGHT = {"w": Constant((4, 4, 3, 3))}
"""Of a Conv that reads the image."""
MATRIX = {"x": (4, 8)}
SQUARE = {"w": Constant((8, 8))}
"""Of a product that reads the matrix."""
SUMS = Constant((8,), "s32", scale=0.0006)
"""The bias of that product."""


def ints(*values: int) -> npt.NDArray[np.int64]:
    """Shapes, axes or indices."""
    return np.array(values, np.int64)


def parameters(tensor: str, dtype: str, scale: float = 0.03, zero_point: int | None = None) -> dict[str, Array | float]:
    """Scale and zero point under the names that ``pair`` reads."""
    middle = _MIDDLE[dtype] if zero_point is None else zero_point
    return {f"{tensor}_s": scale, f"{tensor}_z": np.array(middle, DTYPES[dtype])}


def pair(tensor: str, output: str) -> str:
    """A Q/DQ pair behind a tensor."""
    return (
        f"{tensor}_q = QuantizeLinear({tensor}, {tensor}_s, {tensor}_z)"
        f" {output} = DequantizeLinear({tensor}_q, {tensor}_s, {tensor}_z)"
    )


def stored(name: str, constant: Constant) -> dict[str, Array | float]:
    """The integers of a constant with scale and zero point."""
    dtype = DTYPES[constant.dtype]
    shape: tuple[int, ...] = () if constant.axis is None else (constant.shape[constant.axis],)
    middle = _MIDDLE[constant.dtype]
    integers = np.rint(floats(*constant.shape) * 30 + middle).clip(np.iinfo(dtype).min, np.iinfo(dtype).max)
    return {
        f"{name}_q": integers.astype(dtype),
        f"{name}_s": np.full(shape, constant.scale, np.float32),
        f"{name}_z": np.full(shape, middle, dtype),
    }


def _with_output(
    inputs: Mapping[str, Sequence[int]], body: str, values: Mapping[str, Array | float], opset: int
) -> onnx.ModelProto:
    given = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in inputs.items())
    model = model_of(f"({given}) => (float y)", body, values, opset=opset)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)
