"""Scales of the weights of a graph."""

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scales import next_power_of_two
from autoquant.domain.scheme import TensorFormat
from autoquant.model.graph import Graph, Node
from autoquant.qdq.params import QuantParams, weight_params

__all__ = ["constant_params", "widened_for_pairs"]

Floats = npt.NDArray[np.float32]

_LARGEST_PAIR = 127
"""Rounded it is at most 128, and 255 * 128 is an int16."""


def constant_params(name: TensorName, graph: Graph, tensor_format: TensorFormat, axis: int | None) -> QuantParams:
    """Parameters of a constant from its own values and, where the format says so, from how kernels add their products.

    Args:
        name: Of the constant.
        graph: That holds it.
        tensor_format: Type and symmetry.
        axis: Of the channels that have a scale each, None for one scale.
    """
    params = weight_params(graph.constant(name), tensor_format, axis)
    if tensor_format.unsaturated:
        for reader in graph.consumers.get(name, ()):
            columns = _columns(reader, name, graph)
            if columns is not None:
                params = widened_for_pairs(params, columns if axis is not None else columns.reshape(-1), tensor_format)
    return params


def widened_for_pairs(params: QuantParams, columns: Floats, tensor_format: TensorFormat) -> QuantParams:
    """With scales at which the products of no two neighbours with u8 activations add up beyond an int16.

    Args:
        params: Scale of shape ``S``.
        columns: What is multiplied with a vector of activations, in its order, one or several that share a scale behind
            each other, shape ``(*S, n)``; those of an odd length have a zero behind them.
        tensor_format: Of the scales.

    References:
        onnxruntime's documentation, "Quantize ONNX models", data type selection: on AVX2 and AVX512 U8S8 uses
        VPMADDUBSW, which adds two products in 16 bits, those of inputs 2i and 2i + 1.
    """
    largest = np.abs(columns[..., 0::2] + columns[..., 1::2]).max(axis=-1, initial=0.0)
    least = np.asarray(largest / np.float32(_LARGEST_PAIR), np.float32)
    if tensor_format.power_of_two:
        least = next_power_of_two(least)
    return QuantParams(np.maximum(params.scale, least), params.zero_point, params.dtype)


def _columns(node: Node, name: TensorName, graph: Graph) -> Floats | None:
    """The weight of an operator, shape (outputs, even number of inputs), as its kernel multiplies it.

    None for depthwise convolutions, which are added in 32 bits, and for what is no weight.
    """
    if len(node.inputs) < 2 or node.inputs[1] != name:
        return None
    values: Floats = graph.constant(name)
    if node.op_type == "Conv":
        if values.shape[0] == node.attributes.get("group", 1) and values.shape[1] == 1:
            return None
        columns = np.moveaxis(values, 1, -1).reshape(values.shape[0], -1)
    elif node.op_type == "Gemm":
        columns = values if node.attributes.get("transB", 0) else values.T
    elif node.op_type == "MatMul" and values.ndim > 1:
        columns = np.moveaxis(values, -2, -1).reshape(-1, values.shape[-2])
    else:
        return None
    return np.pad(columns, [(0, 0), (0, columns.shape[1] % 2)])
