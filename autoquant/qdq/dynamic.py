"""Operators that quantize what they read with the range of each input, as onnxruntime's ``quantize_dynamic`` writes."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, Granularity, Scheme, TensorFormat
from autoquant.model import fragments
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import channel_axis
from autoquant.qdq.constants import centred, widened_for_pairs
from autoquant.qdq.params import QuantParams, block_params, quantize, weight_params
from autoquant.qdq.parts import CONTRIB, Parts
from autoquant.qdq.weights import QuantizedWeight, Weights, bias_vector, label_of_rounding

__all__ = ["INT8_LEVEL", "DynamicWriter", "in_blocks", "recurrent_params"]

_N_LSTM_INPUTS = 8
Number = TypeVar("Number", bound=np.generic)
INT8_LEVEL = 4
"""The accuracy level of MatMulNBits at which it rounds what it reads to 8 bits; at others only its weight is."""


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

    def write(self, parts: Parts, node: Node, inputs: list[str], target: TensorName, scheme: Scheme) -> None:
        """Add an operator that ``can_be_dynamic``.

        Args:
            parts: Of the model.
            node: MatMul, Gemm or LSTM.
            inputs: Names under which it reads its inputs; those of the weights don't count.
            target: What a MatMul or Gemm writes.
            scheme: Format and rounding of its weights; those of an LSTM are the nearest integers in any case.
        """
        if node.op_type == "LSTM":
            self._write_lstm(parts, node, inputs, scheme.weight)
        elif scheme.is_blockwise:
            self._write_blocks(parts, node, inputs[0], target, scheme)
        else:
            self._write_product(parts, node, inputs[0], target, scheme)

    def _write_product(self, parts: Parts, node: Node, source: str, target: TensorName, scheme: Scheme) -> None:
        """``MatMulInteger * (input scale * weight scale) + bias``: onnxruntime fuses it into one kernel."""
        name, free, free_node = node.name, parts.pieces.free, parts.pieces.free_node
        quantized, scale, zero_point = _quantized_input(parts, source)
        weight, weight_scale, weight_zero_point = _weight(parts, node.inputs[1], self._matrix(node, scheme))
        bias = bias_vector(node, self.graph)
        sums, floats, scales = (free(f"{target}_{kind}") for kind in ("sums", "sums_float", "scales"))
        product = target if bias is None else free(f"{target}_without_bias")
        parts.node("MatMulInteger", [quantized, weight, zero_point, weight_zero_point], [sums], name)
        parts.node("Cast", [sums], [floats], free_node(f"{name}_cast"), to=fragments.FLOAT32)
        parts.node("Mul", [scale, weight_scale], [scales], free_node(f"{name}_scales"))
        parts.node("Mul", [floats, scales], [product], free_node(f"{name}_scaled"))
        if bias is not None:
            parts.node("Add", [product, _summand(parts, node, bias)], [target], free_node(f"{name}_biased"))

    def _write_blocks(self, parts: Parts, node: Node, source: str, target: TensorName, scheme: Scheme) -> None:
        """``MatMulNBits``: blocks of what it reads get a scale each at every inference, those of the weight have one.

        References:
            https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md#com.microsoft.MatMulNBits
        """
        parts.import_contrib()
        assert scheme.weight.block is not None
        weight, bias = self._blocks(node, scheme), bias_vector(node, self.graph)
        free, base = parts.pieces.free, parts.base(node.inputs[1], weight.label)
        integers = parts.constant(free(f"{base}_quantized"), weight.values, weight.label)
        scale = parts.constant(free(f"{base}_scale"), weight.params.scale, weight.label)
        read = [source, integers, scale, *([] if bias is None else ["", "", _summand(parts, node, bias)])]
        n_inputs, n_outputs = _matrix_shape(node, self.graph)
        parts.node(
            f"{CONTRIB}:MatMulNBits",
            read,
            [target],
            node.name,
            bits=scheme.weight.dtype.bits,
            K=n_inputs,
            N=n_outputs,
            block_size=scheme.weight.block,
            accuracy_level=INT8_LEVEL,
        )

    def _write_lstm(self, parts: Parts, node: Node, inputs: list[str], weight_format: TensorFormat) -> None:
        parts.import_contrib()
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
            lambda: fragments.converted(proto, read, node.outputs, "DynamicQuantizeLSTM", CONTRIB, "layout"),
        )

    def _matrix(self, node: Node, scheme: Scheme) -> QuantizedWeight:
        """The weight of a MatMul or Gemm with its output channels last, and Gemm's ``alpha`` in the scale."""
        axis = channel_axis(node, self.graph)
        given = self.weights.weight(node.inputs[1], scheme.weight, axis, rounding=scheme.rounding)
        is_transposed, alpha = _attributes(node)
        if not is_transposed and alpha == 1.0:
            return given
        key = (node.inputs[1], given.label, is_transposed, alpha)
        if key not in self._made:
            self._made[key] = QuantizedWeight(
                values=np.ascontiguousarray(given.values.T) if is_transposed else given.values,
                params=replace(given.params, scale=np.asarray(given.params.scale * alpha)),
                axis=None if given.axis is None else 1,
                label=f"{given.label}:alpha-{alpha}" + (":transposed" if is_transposed else ""),
            )
        return self._made[key]

    def _blocks(self, node: Node, scheme: Scheme) -> QuantizedWeight:
        """The weight of a MatMul or Gemm as its kernel takes it, shape (N, ceil(K / block), block * bits / 8).

        Integers have the middle of their range for 0, two of 4 bits share a byte, the first in its lower half. Blocks
        at the end are filled with zeros. Scales have the shape (N, ceil(K / block)), Gemm's ``alpha`` in them, and are
        0 for blocks of zeros: the kernel takes the middle off in float, whose error grows with the scale.
        """
        is_transposed, alpha = _attributes(node)
        key = (node.inputs[1], scheme.weight, scheme.rounding, is_transposed, alpha)
        if key not in self._made:
            assert scheme.weight.block is not None
            given, size = self.graph.constant(node.inputs[1]), scheme.weight.block
            blocks = in_blocks(given, node, size)
            params = block_params(blocks, scheme.weight)
            n_inputs, n_outputs = _matrix_shape(node, self.graph)
            shape = (n_outputs, -(-n_inputs // size))
            by_block = replace(
                params, scale=params.scale.reshape(shape).T, zero_point=np.zeros_like(params.zero_point, shape=())
            )
            answer = self.weights.rounded(node.inputs[1], by_block, scheme.rounding)
            nearest = quantize(blocks, params, 0)
            integers = nearest if answer is None else in_blocks(answer, node, size)
            is_nearest = np.array_equal(integers, nearest)
            stored = (integers.astype(np.int16) - scheme.weight.dtype.lowest).astype(np.uint8)
            packed = _packed(stored, scheme.weight.dtype)
            scale = np.where(integers.any(axis=1), params.scale * alpha, np.float32(0))
            self._made[key] = QuantizedWeight(
                values=packed.reshape(*shape, packed.shape[-1]),
                params=replace(params, scale=scale.reshape(shape)),
                axis=None,
                label=f"{scheme.weight}:alpha-{alpha}"
                + (":transposed" if is_transposed else "")
                + ("" if is_nearest else label_of_rounding(scheme.rounding, integers, params.scale)),
            )
        return self._made[key]

    def _recurrent(self, name: TensorName, weight_format: TensorFormat) -> QuantizedWeight:
        """A weight of an LSTM, shape (D, 4H, I), as its kernel takes it: shape (D, I, 4H).

        Directions have a scale each in any case.
        """
        key = ("recurrent", name, weight_format)
        if key not in self._made:
            given = self.graph.constant(name)
            rows, params = recurrent_params(given, weight_format)
            shape = given.shape[: 2 if weight_format.granularity is Granularity.CHANNEL else 1]
            if weight_format.symmetric:
                params = centred(params)
            values = quantize(rows, params, 0).reshape(given.shape)
            self._made[key] = QuantizedWeight(
                values=np.ascontiguousarray(values.transpose(0, 2, 1)),
                params=QuantParams(params.scale.reshape(shape), params.zero_point.reshape(shape), params.dtype),
                axis=0,
                label=f"{weight_format}:recurrent",
            )
        return self._made[key]


def recurrent_params(
    given: npt.NDArray[np.float32], weight_format: TensorFormat
) -> tuple[npt.NDArray[np.float32], QuantParams]:
    """What shares a scale of an LSTM's weight, (D, 4H, I), as rows, (D * 4H, I) or (D, 4H * I), and theirs."""
    n_rows = given.shape[0] * (given.shape[1] if weight_format.granularity is Granularity.CHANNEL else 1)
    rows = given.reshape(n_rows, -1)
    params = weight_params(rows, weight_format, 0)
    if weight_format.unsaturated:
        even = np.pad(given, [(0, 0), (0, 0), (0, given.shape[2] % 2)])
        params = widened_for_pairs(params, even.reshape(n_rows, -1), weight_format)
    return rows, params


def in_blocks(given: npt.NDArray[Number], node: Node, size: int) -> npt.NDArray[Number]:
    """The weight of a MatMul or Gemm by what shares a scale, shape (N * ceil(K / size), size), filled with zeros."""
    rows = given if _attributes(node)[0] else given.T
    filled = np.pad(rows, [(0, 0), (0, -rows.shape[1] % size)])
    return np.ascontiguousarray(filled).reshape(-1, size)


def _packed(integers: npt.NDArray[np.uint8], dtype: DType) -> npt.NDArray[np.uint8]:
    """As they are stored: two of 4 bits a byte, along the last axis."""
    return integers if dtype.bits == 8 else integers[:, ::2] | integers[:, 1::2] * np.uint8(16)


def _attributes(node: Node) -> tuple[bool, np.float32]:
    """Whether the weight of a MatMul or Gemm has its output channels first, and what the product is multiplied with."""
    return bool(node.attributes.get("transB", 0)), np.float32(node.attributes.get("alpha", 1.0))


def _matrix_shape(node: Node, graph: Graph) -> tuple[int, int]:
    """How many values each output of a product sums up, and how many outputs there are."""
    shape = graph.shape(node.inputs[1])
    assert shape is not None
    return (shape[1], shape[0]) if _attributes(node)[0] else (shape[0], shape[1])


def _summand(parts: Parts, node: Node, bias: npt.NDArray[np.float32]) -> str:
    return parts.new_constant(f"{node.inputs[2]}/{node.index}_float", bias)


def _quantized_input(parts: Parts, source: str) -> tuple[str, str, str]:
    """Integers, scale and zero point of a tensor, made once for all its readers."""
    free = parts.pieces.free
    found = free(f"{source}_dynamic"), free(f"{source}_dynamic_scale"), free(f"{source}_dynamic_zero_point")
    if parts.is_new(("dynamic", source)):
        parts.node("DynamicQuantizeLinear", [source], found, parts.pieces.free_node(f"{source}_DynamicQuantizeLinear"))
    return found


def _weight(parts: Parts, name: TensorName, weight: QuantizedWeight) -> tuple[str, str, str]:
    """Integers, scale and zero point of a constant."""
    base = parts.base(name, weight.label)
    return (
        parts.constant(parts.pieces.free(f"{base}_quantized"), weight.values, weight.label),
        parts.new_constant(f"{base}_scale", weight.params.scale),
        parts.new_constant(f"{base}_zero_point", weight.params.zero_point),
    )
