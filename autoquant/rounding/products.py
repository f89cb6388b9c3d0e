"""Linear operators as products of matrices."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoquant.model.graph import Node
from autoquant.rounding.problem import Floats

__all__ = ["as_columns", "as_weight", "inputs_of_products", "n_inputs"]


def n_inputs(node: Node, shape: Sequence[int]) -> tuple[int, int]:
    """Groups G of a Conv, Gemm or MatMul with a weight of this shape, and inputs D of each product in one."""
    if node.op_type == "Conv":
        return int(node.attributes.get("group", 1)), math.prod(shape[1:])
    return 1, shape[1] if node.attributes.get("transB", 0) else shape[0]


def as_columns(weight: Floats, node: Node) -> Floats:
    """The weight with one column for each output channel, shape (G, D, N)."""
    if node.op_type == "Conv":
        groups, size = n_inputs(node, weight.shape)
        return weight.reshape(groups, -1, size).swapaxes(1, 2)
    return (weight.T if node.attributes.get("transB", 0) else weight)[np.newaxis]


def as_weight(columns: npt.NDArray[np.generic], node: Node, shape: Sequence[int]) -> npt.NDArray[np.generic]:
    """The inverse of ``as_columns``, for a weight of this shape."""
    if node.op_type == "Conv":
        return np.ascontiguousarray(columns.swapaxes(1, 2)).reshape(shape)
    return np.ascontiguousarray(columns[0].T if node.attributes.get("transB", 0) else columns[0])


def inputs_of_products(
    values: Floats, node: Node, shape: Sequence[int], rng: np.random.Generator, limit: int
) -> Floats:
    """What the columns of the weight are multiplied with, in all products of one run or ``limit`` of them.

    Args:
        values: The operator's input.
        node: A Conv, Gemm or MatMul whose second input is a weight.
        shape: Of the weight; two dimensions unless the node is a Conv.
        rng: Chooses where there are more products.
        limit: At least 1.

    Returns:
        Shape (G, P, D).
    """
    if node.op_type == "Conv":
        return _patches(values, node, shape, rng, limit)
    rows = values.T if node.attributes.get("transA", 0) else values.reshape(-1, values.shape[-1])
    return rows[_chosen(len(rows), rng, limit)][np.newaxis]


def _patches(values: Floats, node: Node, shape: Sequence[int], rng: np.random.Generator, limit: int) -> Floats:
    kernel, (groups, size) = shape[2:], n_inputs(node, shape)
    strides = node.attributes.get("strides") or [1] * len(kernel)
    dilations = node.attributes.get("dilations") or [1] * len(kernel)
    extents = tuple((n - 1) * dilation + 1 for n, dilation in zip(kernel, dilations, strict=True))
    padded = np.pad(values, [(0, 0), (0, 0), *_pads(node, values.shape[2:], extents, strides)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, extents, axis=tuple(range(2, values.ndim)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    windows = windows[(slice(None), slice(None), *steps)]
    places = (windows.shape[0], *windows.shape[2 : values.ndim])
    sample, *position = np.unravel_index(_chosen(math.prod(places), rng, limit), places)
    found = np.moveaxis(windows, 1, -len(kernel) - 1)[(sample, *position)]
    return np.ascontiguousarray(found.reshape(len(sample), groups, size).swapaxes(0, 1))


def _pads(node: Node, sizes: Sequence[int], extents: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Zeros before and behind along each spatial axis."""
    n_axes, mode = len(extents), node.attributes.get("auto_pad", b"NOTSET")
    if mode == b"VALID":
        return [(0, 0)] * n_axes
    if mode == b"NOTSET":
        pads = node.attributes.get("pads") or [0] * (2 * n_axes)
        return list(zip(pads[:n_axes], pads[n_axes:], strict=True))
    totals = [
        max((-(-size // stride) - 1) * stride + extent - size, 0)
        for size, extent, stride in zip(sizes, extents, strides, strict=True)
    ]
    less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return list(zip(less, more, strict=True) if mode == b"SAME_UPPER" else zip(more, less, strict=True))


def _chosen(count: int, rng: np.random.Generator, limit: int) -> npt.NDArray[np.intp]:
    """Indices of the products that are taken."""
    if count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False)).astype(np.intp)
