"""Quantized weights and biases, each made once and shared by all trials."""

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scales import next_power_of_two
from autoquant.domain.scheme import Granularity, Rounding, TensorFormat
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, channel_axis
from autoquant.qdq.constants import constant_params
from autoquant.qdq.params import QuantParams, quantize
from autoquant.qdq.ports import Rounder

__all__ = ["QuantizedBias", "QuantizedWeight", "Weights", "bias_vector", "label_of_rounding", "quantize_bias"]

_Answer = tuple[npt.NDArray[np.generic], npt.NDArray[np.float32]] | None
"""Of a rounder."""
_LEAST_MAGNITUDE = 32768 * np.finfo(np.float32).tiny
"""Smaller weights have no scale of their own."""
_FREE_SCALE = np.float32(2.0**-60)
"""Of weights that are zero throughout, before it is made larger for their bias."""
_BIAS_SPAN = np.float64(np.iinfo(np.int32).max)
"""Half of what int32 spans: the other half is for the products that kernels add to a bias, and wrap around without."""


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """A constant as integers.

    Attributes:
        values: The integers, shape of the constant.
        params: Scale and zero point.
        axis: Of the channels, None per tensor.
        label: Distinguishes variants of the same constant, e.g. ``"s8:channel:sym:axis-0"``.
    """

    values: npt.NDArray[np.generic]
    params: QuantParams
    axis: int | None
    label: str


@dataclass(frozen=True, slots=True)
class QuantizedBias:
    """An int32 bias, shape (C,), with the scale that its operator accumulates in."""

    values: npt.NDArray[np.int32]
    scale: npt.NDArray[np.float32]


@dataclass(slots=True)
class Weights:
    """Quantizes constants of one graph and remembers them; without a rounder to the nearest integers."""

    graph: Graph
    rounder: Rounder | None = None
    _cache: dict[tuple[TensorName, TensorFormat, int | None, bytes], QuantizedWeight] = field(default_factory=dict)
    _answers: dict[tuple[TensorName, TensorFormat, int | None, Rounding], _Answer] = field(default_factory=dict)
    _rounded: dict[tuple[object, ...], QuantizedWeight] = field(default_factory=dict)
    _zeros: dict[tuple[TensorName, int | None], npt.NDArray[np.bool_]] = field(default_factory=dict)
    _extremes: dict[tuple[TensorName, TensorFormat, int | None], QuantParams] = field(default_factory=dict)

    def weight(
        self,
        name: TensorName,
        tensor_format: TensorFormat,
        axis: int | None,
        *,
        bias: npt.NDArray[np.float32] | None = None,
        input_scale: np.float32 | None = None,
        rounding: Rounding = Rounding.NEAREST,
    ) -> QuantizedWeight:
        """The constant in a format.

        With a bias and the scale of the operator's input, channels whose bias would take more than half of int32 get a
        larger weight scale, whatever the type, so that the products have room; onnxruntime does so for symmetric signed
        weights only, and where the bias alone overflows. A channel of zeros takes the largest scale of the others, so
        that its bias, which is all of its output, is no multiple of the input's scale; where all are zeros, they take
        one so small that the bias alone decides.

        References:
            microsoft/onnxruntime PR #21645: bias [5, -4.5], weight scale 7.843e-10, input scale 0.5.
        """
        used = axis if tensor_format.granularity is Granularity.CHANNEL else None
        params = self._params(name, tensor_format, used)
        scale, adjusted = params.scale, b""
        if bias is not None and input_scale is not None:
            fitted = _fit_bias(self._with_zeros(name, params.scale, used, bias), bias, input_scale)
            if fitted is not params.scale:
                scale = next_power_of_two(fitted) if tensor_format.power_of_two else fitted
                adjusted = scale.tobytes()
        key = (name, tensor_format, used, adjusted)
        if key not in self._cache:
            params = QuantParams(scale, params.zero_point, params.dtype)
            values = quantize(self.graph.constant(name), params, used)
            self._cache[key] = QuantizedWeight(values, params, used, _label(tensor_format, used, adjusted))
        found = self._cache[key]
        answer = self._answer(name, tensor_format, used, rounding)
        if answer is None:
            return found
        fits = np.asarray(found.params.scale == self._params(name, tensor_format, used).scale)
        if bias is not None and input_scale is not None:
            fits = fits & (_fit_bias(answer[1], bias, input_scale) == answer[1])
        key_of_rounded = (*key, rounding, fits.tobytes())
        if key_of_rounded not in self._rounded:
            self._rounded[key_of_rounded] = _merged(found, *answer, fits, rounding)
        return self._rounded[key_of_rounded]

    def _answer(self, name: TensorName, tensor_format: TensorFormat, axis: int | None, rounding: Rounding) -> _Answer:
        """What the rounder makes of a weight on the scales of its format."""
        if rounding is Rounding.NEAREST or self.rounder is None:
            return None
        key = (name, tensor_format, axis, rounding)
        if key not in self._answers:
            plain = self._params(name, tensor_format, axis)
            self._answers[key] = self.rounder(name, plain.scale, plain.zero_point, plain.dtype, rounding)
        return self._answers[key]

    def rounded(self, name: TensorName, params: QuantParams, rounding: Rounding) -> npt.NDArray[np.generic] | None:
        """The integers of a weight on given scales, as ``Rounder`` takes them; None for the nearest ones."""
        if rounding is Rounding.NEAREST or self.rounder is None:
            return None
        answer = self.rounder(name, params.scale, params.zero_point, params.dtype, rounding)
        return None if answer is None else answer[0]

    def _with_zeros(
        self, name: TensorName, scale: npt.NDArray[np.float32], axis: int | None, bias: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """With the scale that channels of zeros take, which is no matter to their weights; the same without any.

        What is too small for a scale of its own counts as zero.
        """
        if (name, axis) not in self._zeros:
            others = tuple(i for i in range(len(self.graph.shape(name) or ())) if i != axis)
            magnitude = np.abs(self.graph.constant(name)).max(axis=others, initial=0)
            self._zeros[name, axis] = np.asarray(magnitude < _LEAST_MAGNITUDE)
        zeros = self._zeros[name, axis]
        if zeros.all() and bias.any():
            return np.full_like(scale, _FREE_SCALE)
        return np.where(zeros, scale[~zeros].max(), scale) if zeros.any() and not zeros.all() else scale

    def _params(self, name: TensorName, tensor_format: TensorFormat, axis: int | None) -> QuantParams:
        key = (name, tensor_format, axis)
        if key not in self._extremes:
            self._extremes[key] = constant_params(name, self.graph, tensor_format, axis)
        return self._extremes[key]


def bias_vector(node: Node, graph: Graph) -> npt.NDArray[np.float32] | None:
    """What a linear operator with a constant bias adds, shape (C,), Gemm's ``beta`` multiplied in."""
    name = bias_of(node)
    if name is None:
        return None
    values, axis = graph.constant(name).reshape(-1), channel_axis(node, graph)
    shape = graph.shape(node.inputs[1])
    assert shape is not None
    n_outputs = shape[axis] if axis is not None else values.size
    beta = np.float32(node.attributes.get("beta", 1.0) if node.op_type == "Gemm" else 1.0)
    vector: npt.NDArray[np.float32] = beta * (np.broadcast_to(values, (n_outputs,)) if values.size == 1 else values)
    return vector


def quantize_bias(
    bias: npt.NDArray[np.float32], input_scale: np.float32, weight_scale: npt.NDArray[np.float32]
) -> QuantizedBias:
    """Int32 bias at the scale input x weight: an integer kernel adds it to its accumulator.

    Args:
        bias: Shape (C,), Gemm's ``beta`` multiplied in.
        input_scale: Of the operator's input.
        weight_scale: Scalar or shape (C,).
    """
    scale = np.asarray(input_scale * weight_scale, dtype=np.float32)
    divisor = np.where(scale > 0, scale, np.inf).astype(np.float64)  # the product of two tiny scales may underflow
    exact = np.rint(bias.astype(np.float64) / divisor)
    return QuantizedBias(np.clip(exact, np.iinfo(np.int32).min, np.iinfo(np.int32).max).astype(np.int32), scale)


def _label(tensor_format: TensorFormat, axis: int | None, adjusted: bytes) -> str:
    """Depends on content alone: equal models get equal names, whatever was built before them."""
    along = "" if axis is None else f":axis-{axis}"
    return f"{tensor_format}{along}" + (f":bias-{hashlib.sha256(adjusted).hexdigest()[:12]}" if adjusted else "")


def _merged(
    nearest: QuantizedWeight,
    values: npt.NDArray[np.generic],
    scale: npt.NDArray[np.float32],
    fits: npt.NDArray[np.bool_],
    rounding: Rounding,
) -> QuantizedWeight:
    """Rounded where the bias fits into int32 on the rounded scale; the other channels are the nearest ones."""
    shape = [-1 if i == nearest.axis else 1 for i in range(values.ndim)]
    values = np.where(fits.reshape(shape), values, nearest.values)
    scale = np.where(fits, scale, nearest.params.scale)
    if np.array_equal(values, nearest.values) and np.array_equal(scale, nearest.params.scale):
        return nearest
    params, label = replace(nearest.params, scale=scale), label_of_rounding(rounding, values, scale)
    return replace(nearest, values=values, params=params, label=f"{nearest.label}{label}")


def label_of_rounding(rounding: Rounding, values: npt.NDArray[np.generic], scale: npt.NDArray[np.float32]) -> str:
    """What tells a variant of a constant from the one with the nearest integers."""
    digest = hashlib.sha256(values.tobytes() + scale.tobytes()).hexdigest()
    return f":{rounding}-{digest[:12]}"


def _fit_bias(
    scale: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], input_scale: np.float32
) -> npt.NDArray[np.float32]:
    # onnxruntime's order of operations: in float32 per channel, in float64 per tensor.
    largest = np.abs(bias) if scale.ndim else np.abs(bias.astype(np.float64)).max(initial=0.0)
    smallest = 1.0001 * (2.0 * largest) / _BIAS_SPAN
    product = np.float64(input_scale) * scale.astype(np.float64)
    small = (product > 0) & (product < smallest)
    if not small.any():
        return scale
    safe = np.where(product > 0, product, 1.0)
    return np.asarray(np.where(small, scale.astype(np.float64) * (smallest / safe), scale), dtype=np.float32)
