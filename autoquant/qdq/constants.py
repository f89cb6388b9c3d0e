"""Scales of the weights of a graph."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scales import next_power_of_two
from autoquant.domain.scheme import TensorFormat
from autoquant.model.columns import columns_of, pair_sums
from autoquant.model.graph import Graph
from autoquant.model.ops import channel_axis, weight_of
from autoquant.qdq.params import QuantParams, weight_params

__all__ = ["centred", "constant_params", "widened_for_pairs"]

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
    if tensor_format.symmetric and axis is not None:
        params = centred(params)
    if tensor_format.unsaturated:
        readers = [node for node in graph.consumers.get(name, ()) if weight_of(node, graph) == name]
        taking = [node for node in readers if axis in (None, channel_axis(node, graph))]
        by_order = {(n.op_type, n.attributes.get("group", 1), n.attributes.get("transB", 0)): n for n in taking}
        for reader in by_order.values():
            columns = columns_of(reader.op_type, graph.constant(name), reader.attributes)
            if columns is not None:
                params = widened_for_pairs(params, columns if axis is not None else columns.reshape(-1), tensor_format)
    return params


def centred(params: QuantParams) -> QuantParams:
    """With the middle of the integers as the zero point of channels of zeros too, as some kernels want one for all."""
    middle = 0 if params.dtype.is_signed else 1 << (params.dtype.bits - 1)
    return replace(params, zero_point=np.full_like(params.zero_point, middle))


def widened_for_pairs(params: QuantParams, columns: Floats, tensor_format: TensorFormat) -> QuantParams:
    """With scales at which the products of no two neighbours with u8 activations add up beyond an int16.

    Args:
        params: Scale of shape ``S``.
        columns: What is multiplied with a vector of activations, in its order, one or several that share a scale behind
            each other, shape ``(*S, n)``; those of an odd length have a zero behind them.
        tensor_format: Of the scales.
    """
    half = np.abs(pair_sums(columns / 2)).max(axis=-1, initial=0.0)  # the sum of two may be no float32
    least = np.asarray(half / np.float32(_LARGEST_PAIR / 2), np.float32)
    if tensor_format.power_of_two:
        least = next_power_of_two(least)
    return QuantParams(np.maximum(params.scale, least), params.zero_point, params.dtype)
