"""Linear operators as products of matrices."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from autoquant.model.graph import Node
from autoquant.model.windows import pads_of
from autoquant.rounding.problem import Floats

__all__ = ["MAX_INPUTS", "Layout", "as_columns", "as_weight", "inputs_of_products", "layout_of"]

MAX_INPUTS = 6144
"""Of a product whose inputs are one part: the moment of so many takes 151 MB, and rounding 1 GB for a while."""


class Layout(NamedTuple):
    """How the inputs of an operator's products are grouped.

    Attributes:
        n_groups: Of the operator, which share no inputs.
        n_parts: Of the inputs of each group, whose moments with each other are left out.
        size: Inputs of each part.
    """

    n_groups: int
    n_parts: int
    size: int

    @property
    def n_moments(self) -> int:
        """Numbers in the moments of all parts."""
        return self.n_groups * self.n_parts * self.size**2


def layout_of(node: Node, shape: Sequence[int]) -> Layout:
    """Of a Conv, Gemm or MatMul with a weight of this shape.

    Inputs are divided into as few parts of one size as it takes for their moments to be no larger than one of
    ``MAX_INPUTS``, so that memory stays bounded.
    """
    n_groups, n_inputs = _inputs(node, shape)
    layouts = (
        Layout(n_groups, n_parts, n_inputs // n_parts) for n_parts in range(1, n_inputs + 1) if n_inputs % n_parts == 0
    )
    return next((each for each in layouts if each.n_moments <= MAX_INPUTS**2), Layout(n_groups, n_inputs, 1))


def _inputs(node: Node, shape: Sequence[int]) -> tuple[int, int]:
    """Groups of the operator, and inputs of each product in one."""
    if node.op_type == "Conv":
        return int(node.attributes.get("group", 1)), math.prod(shape[1:])
    return 1, shape[1] if node.attributes.get("transB", 0) else shape[0]


def as_columns(weight: Floats, node: Node) -> Floats:
    """The weight with one column for each output channel in every part of the layout.

    Returns:
        Shape (G, D, N), where G are the parts of all groups, D the inputs of each, N the output channels of a group.
    """
    n_groups, n_parts, size = layout_of(node, weight.shape)
    if node.op_type == "Conv":
        whole = weight.reshape(n_groups, -1, n_parts * size).swapaxes(1, 2)
    else:
        whole = weight.T if node.attributes.get("transB", 0) else weight
    return whole.reshape(n_groups * n_parts, size, -1)


def as_weight(columns: npt.NDArray[np.generic], node: Node, shape: Sequence[int]) -> npt.NDArray[np.generic]:
    """The inverse of ``as_columns``, for a weight of this shape."""
    n_groups, n_parts, size = layout_of(node, shape)
    whole = columns.reshape(n_groups, n_parts * size, -1)
    if node.op_type == "Conv":
        return np.ascontiguousarray(whole.swapaxes(1, 2)).reshape(shape)
    return np.ascontiguousarray(whole[0].T if node.attributes.get("transB", 0) else whole[0])


def inputs_of_products(
    values: Floats, node: Node, shape: Sequence[int], rng: np.random.Generator, limit: int
) -> Floats:
    """What the columns of the weight are multiplied with, in all products of one run or ``limit`` of them.

    The products of a weight whose inputs are several parts are the sums over these.

    Args:
        values: The operator's input.
        node: A Conv, Gemm or MatMul whose second input is a weight.
        shape: Of the weight; two dimensions unless the node is a Conv.
        rng: Chooses where there are more products.
        limit: At least 1.

    Returns:
        Shape (G, P, D), G and D as those of ``as_columns``, P products.
    """
    n_groups, n_parts, size = layout_of(node, shape)
    if node.op_type == "Conv":
        found = _patches(values, node, shape, rng, limit)
    else:
        rows = values.T if node.attributes.get("transA", 0) else values.reshape(-1, values.shape[-1])
        found = rows[_chosen(len(rows), rng, limit)]
    parts = found.reshape(len(found), n_groups * n_parts, size)
    return np.ascontiguousarray(parts.swapaxes(0, 1))


def _patches(values: Floats, node: Node, shape: Sequence[int], rng: np.random.Generator, limit: int) -> Floats:
    """One for each product, shape (P, C, *kernel)."""
    kernel = shape[2:]
    strides = node.attributes.get("strides") or [1] * len(kernel)
    dilations = node.attributes.get("dilations") or [1] * len(kernel)
    extents = tuple((n - 1) * dilation + 1 for n, dilation in zip(kernel, dilations, strict=True))
    pads = pads_of(node, values.shape[2:], extents, strides)
    padded = np.pad(values, [(0, 0), (0, 0), *zip(pads[: len(kernel)], pads[len(kernel) :], strict=True)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, extents, axis=tuple(range(2, values.ndim)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    windows = windows[(slice(None), slice(None), *steps)]
    places = (windows.shape[0], *windows.shape[2 : values.ndim])
    sample, *position = np.unravel_index(_chosen(math.prod(places), rng, limit), places)
    return np.asarray(np.moveaxis(windows, 1, -len(kernel) - 1)[(sample, *position)])


def _chosen(count: int, rng: np.random.Generator, limit: int) -> npt.NDArray[np.intp]:
    """Indices of the products that are taken."""
    if count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False)).astype(np.intp)
