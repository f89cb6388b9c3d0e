"""Operators that quantize what they read with the range of each input, as onnxruntime's ``quantize_dynamic`` writes."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import Granularity, TensorFormat
from autoquant.model import fragments
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import channel_axis
from autoquant.qdq.constants import widened_for_pairs
from autoquant.qdq.params import QuantParams, quantize, weight_params
from autoquant.qdq.parts import Parts
from autoquant.qdq.weights import QuantizedWeight, Weights, bias_vector

__all__ = ["DynamicWriter"]

_DOMAIN = "com.microsoft"
_N_LSTM_INPUTS = 8


@dataclass(slots=True)
class DynamicWriter:
    """Writes such operators of one graph; their weights are made once.

    Attributes:
        graph: The float model.
        weights: Its quantized constants.
    """

    graph: Graph
    weights: Weights
    _made: dict[Hashable, QuantizedWeight] = field(default_factory=dict)

    def write(self, parts: Parts, node: Node, inputs: list[str], weight_format: TensorFormat) -> None:
        """Add an operator that ``can_be_dynamic``.

        Args:
            parts: Of the model.
            node: MatMul, Gemm or LSTM.
            inputs: Names under which it reads its inputs; those of the weights don't count.
            weight_format: Of its weights.
        """
        if node.op_type == "LSTM":
            self._write_lstm(parts, node, inputs, weight_format)
        else:
            self._write_product(parts, node, inputs[0], weight_format)

    def _write_product(self, parts: Parts, node: Node, source: str, weight_format: TensorFormat) -> None:
        """``MatMulInteger * (input scale * weight scale) + bias``: onnxruntime fuses it into one kernel."""
        name, target, free = node.name, node.outputs[0], parts.pieces.free
        quantized, scale, zero_point = _quantized_input(parts, source)
        weight, weight_scale, weight_zero_point = _weight(parts, node.inputs[1], self._matrix(node, weight_format))
        bias = bias_vector(node, self.graph)
        sums, floats, scales = (free(f"{target}_{kind}") for kind in ("sums", "sums_float", "scales"))
        product = target if bias is None else free(f"{target}_without_bias")
        parts.node("MatMulInteger", [quantized, weight, zero_point, weight_zero_point], [sums], name)
        parts.node("Cast", [sums], [floats], f"{name}_cast", to=fragments.FLOAT32)
        parts.node("Mul", [scale, weight_scale], [scales], f"{name}_scales")
        parts.node("Mul", [floats, scales], [product], f"{name}_scaled")
        if bias is not None:
            summand = parts.new_constant(f"{node.inputs[2]}/{node.index}_float", bias)
            parts.node("Add", [product, summand], [target], f"{name}_biased")

    def _write_lstm(self, parts: Parts, node: Node, inputs: list[str], weight_format: TensorFormat) -> None:
        if parts.is_new(_DOMAIN) and all(known.domain != _DOMAIN for known in self.graph.model.opset_import):
            parts.add(_DOMAIN, lambda: fragments.opset_import(_DOMAIN, 1))
        input_weight, recurrent_weight = (
            _weight(parts, weight, self._recurrent(weight, weight_format)) for weight in node.inputs[1:3]
        )
        others = [*inputs, *[""] * (_N_LSTM_INPUTS - len(inputs))]
        read = [
            others[0],
            input_weight[0],
            recurrent_weight[0],
            *others[3:],
            *input_weight[1:],
            *recurrent_weight[1:],
        ]
        proto = self.graph.model.graph.node[node.index]
        parts.add(
            ("lstm", node.index, tuple(read)),
            lambda: fragments.converted(proto, read, node.outputs, "DynamicQuantizeLSTM", _DOMAIN, "layout"),
        )

    def _matrix(self, node: Node, weight_format: TensorFormat) -> QuantizedWeight:
        """The weight of a MatMul or Gemm with its output channels last, and Gemm's ``alpha`` in the scale."""
        given = self.weights.weight(node.inputs[1], weight_format, channel_axis(node, self.graph))
        is_transposed = bool(node.attributes.get("transB", 0))
        alpha = np.float32(node.attributes.get("alpha", 1.0))
        if not is_transposed and alpha == 1.0:
            return given
        key = (node.inputs[1], weight_format, is_transposed, alpha)
        if key not in self._made:
            self._made[key] = QuantizedWeight(
                values=np.ascontiguousarray(given.values.T) if is_transposed else given.values,
                params=replace(given.params, scale=np.asarray(given.params.scale * alpha)),
                axis=None if given.axis is None else 1,
                label=f"{given.label}:alpha-{alpha}" + (":transposed" if is_transposed else ""),
            )
        return self._made[key]

    def _recurrent(self, name: TensorName, weight_format: TensorFormat) -> QuantizedWeight:
        """A weight of an LSTM, shape (D, 4H, I), as its kernel takes it: shape (D, I, 4H).

        Directions have a scale each in any case.
        """
        key = ("recurrent", name, weight_format)
        if key not in self._made:
            given = self.graph.constant(name)
            is_per_channel = weight_format.granularity is Granularity.CHANNEL
            shape = given.shape[:2] if is_per_channel else given.shape[:1]
            rows = given.reshape(int(np.prod(shape)), -1)
            params = weight_params(rows, weight_format, 0)
            if weight_format.unsaturated:
                even = np.pad(given, [(0, 0), (0, 0), (0, given.shape[2] % 2)])
                params = widened_for_pairs(params, even.reshape(rows.shape[0], -1), weight_format)
            if weight_format.symmetric:  # the kernel wants one zero point, also for rows of zeros
                middle = 0 if params.dtype.is_signed else 1 << (params.dtype.bits - 1)
                params = replace(params, zero_point=np.full_like(params.zero_point, middle))
            values = quantize(rows, params, 0).reshape(given.shape)
            self._made[key] = QuantizedWeight(
                values=np.ascontiguousarray(values.transpose(0, 2, 1)),
                params=QuantParams(params.scale.reshape(shape), params.zero_point.reshape(shape), params.dtype),
                axis=0,
                label=f"{weight_format}:recurrent",
            )
        return self._made[key]


def _quantized_input(parts: Parts, source: str) -> tuple[str, str, str]:
    """Integers, scale and zero point of a tensor, made once for all its readers."""
    free = parts.pieces.free
    found = free(f"{source}_dynamic"), free(f"{source}_dynamic_scale"), free(f"{source}_dynamic_zero_point")
    if parts.is_new(("dynamic", source)):
        parts.node("DynamicQuantizeLinear", [source], found, f"{source}_DynamicQuantizeLinear")
    return found


def _weight(parts: Parts, name: TensorName, weight: QuantizedWeight) -> tuple[str, str, str]:
    """Integers, scale and zero point of a constant."""
    base = parts.base(name, weight.label)
    return (
        parts.constant(parts.pieces.free(f"{base}_quantized"), weight.values, weight.label),
        parts.new_constant(f"{base}_scale", weight.params.scale),
        parts.new_constant(f"{base}_zero_point", weight.params.zero_point),
    )
