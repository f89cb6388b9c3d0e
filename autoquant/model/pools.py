"""Means written as convolutions, whose integer kernels are faster.

What it costs and wins is in decision 0039.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.chain import Chain, rewritten
from autoquant.model.graph import Graph, Node

__all__ = ["lower_average_pool"]

_SPATIAL = 2
"""The first axis of the places of an image or a line."""
_RANKS = (3, 4)
"""Of lines and images."""
_MOST_PLACES = 14 * 14
"""Of a window: larger ones are as fast, but each channel of the weight holds them all."""
_CARRIED = ("auto_pad", "dilations", "pads", "strides")
"""Attributes that a Conv has too."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """How windows lie along an axis of what a pool reads.

    Attributes:
        size: None where it is not known.
        span: Places from the first to the last of a window.
        stride: From one window to the next.
        dilation: From one place of a window to the next.
        pad: Places put around what is read, together.
    """

    size: int | None
    span: int
    stride: int
    dilation: int
    pad: int

    @property
    def is_divided(self) -> bool:
        """Whether the last window ends where the padding does."""
        return self.size is not None and (self.size + self.pad - self.span) % self.stride == 0

    @property
    def is_tiled(self) -> bool:
        """Whether windows lie side by side and nothing is left over."""
        return self.stride == self.span and self.is_divided

    @property
    def is_one_window(self) -> bool:
        """Whether there is no place but those of one window."""
        return self.span == self.size and not self.pad


def lower_average_pool(model: onnx.ModelProto) -> onnx.ModelProto:
    """An AveragePool of images or lines behind a convolution becomes a depthwise Conv, whose weights are all the same.

    All its means are over as many places, of which zeros around images may be some. Pools of whole images stay, as
    those have a fast kernel, and so do those that no convolution is before: a Conv has the channels of integers moved
    to the last axis, which takes longer for what a pool reads than for what it writes.
    """
    convolved: set[TensorName] = set()

    def write(graph: Graph, chain: Chain) -> None:
        node = chain.node
        is_behind = not convolved.isdisjoint(node.inputs)
        if is_behind or node.op_type in ("Conv", "ConvTranspose"):
            convolved.update(name for name in node.outputs if name)
        if is_behind and node.op_type == "AveragePool":
            _convolve(graph, chain)

    return rewritten(model, write)


def _convolve(graph: Graph, chain: Chain) -> None:
    node = chain.node
    window, sizes = node.attributes["kernel_shape"], graph.sizes(node.inputs[0]) or ()
    n_channels = sizes[1] if len(sizes) in _RANKS and node.inputs[0] in graph.float_tensors else None
    n_places = math.prod(window)
    if not n_channels or n_places > _MOST_PLACES:
        return
    axes = _axes(node, sizes[_SPATIAL:])
    if _is_even(node, axes) and not all(axis.is_one_window for axis in axes):
        weight = np.full((n_channels, 1, *window), 1 / n_places, np.float32)
        carried = {name: node.attributes[name] for name in _CARRIED if name in node.attributes}
        chain.add("Conv", {"weight": weight}, group=n_channels, **carried)


def _axes(node: Node, sizes: tuple[int | None, ...]) -> list[_Axis]:
    window = node.attributes["kernel_shape"]
    n_axes, pads = len(window), node.attributes.get("pads", (0,) * 2 * len(window))
    strides, dilations = (node.attributes.get(name, (1,) * n_axes) for name in ("strides", "dilations"))
    return [
        _Axis(
            size=sizes[i],
            span=dilations[i] * (window[i] - 1) + 1,
            stride=strides[i],
            dilation=dilations[i],
            pad=pads[i] + pads[i + n_axes],
        )
        for i in range(n_axes)
    ]


def _is_even(node: Node, axes: Sequence[_Axis]) -> bool:
    """Whether all windows of a pool have as many places that count."""
    is_counted = bool(node.attributes.get("count_include_pad", 0))
    if node.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME"):
        # onnxruntime has no such Conv with dilations, and cuts what is read by a pool whose windows leave gaps
        is_possible = all(axis.dilation == 1 and axis.stride <= axis.span for axis in axes)
        return is_possible and (is_counted or all(axis.is_tiled for axis in axes))
    is_partial = node.attributes.get("ceil_mode", 0) and not all(axis.is_divided for axis in axes)
    return not is_partial and (is_counted or not any(axis.pad for axis in axes))
