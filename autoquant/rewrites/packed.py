"""Convolutions that write few channels, as ones that write neighbouring places as channels.

Kernels compute 8 or 16 channels at a time, whether there are so many or not: decision 0047.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, has_constant_bias, is_float_constant
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL, pads_of
from autoquant.rewrites.chain import Chain, of_each_chain

__all__ = ["pack_places"]

_FEW, _MANY = 8, 64
"""Channels that a convolution writes at most before, and behind."""
_STEPS = (1, 2, 4, 8, 16)
_LARGE, _LITTLE = 16, 8
"""Channels of a block with AVX-512, and with AVX2."""
_SAVED, _KEPT = 0.8, 1.05
"""Of its products a convolution is to have at most so many with the large blocks, and with the small ones."""
_READ, _WIDE = 8, 32
"""Channels that are read at least, or places along the longest axis of a kernel of fewer."""
_MOST_FILLED = 1 / 16
"""Of the places that are computed, those that are cut off again at most."""
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Window:
    """Of a convolution: sizes of its kernel, steps, padding before and behind, sizes of what it reads and writes."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]

    def kernel_of(self, packing: Sequence[int]) -> tuple[int, ...]:
        return tuple(k + (n - 1) * s for k, n, s in zip(self.kernel, packing, self.strides, strict=True))

    def blocks_of(self, packing: Sequence[int]) -> tuple[int, ...]:
        return tuple(-(-size // n) for size, n in zip(self.written, packing, strict=True))

    def cost(self, packing: Sequence[int], n_channels: int, block: int) -> float:
        """Products for a place and channel that is read, in whole blocks of channels."""
        n_places = math.prod(packing)
        whole = -(-n_channels * n_places // block) * block
        return whole / n_places * math.prod(self.kernel_of(packing))

    def pads_of(self, packing: Sequence[int]) -> tuple[int, ...]:
        """As before, and more behind for whole blocks of places."""
        n_axes = len(self.kernel)
        before, behind = self.pads[:n_axes], self.pads[n_axes:]
        needed = [
            (n_blocks - 1) * n * stride + kernel - (read + first)
            for n_blocks, n, stride, kernel, read, first in zip(
                self.blocks_of(packing), packing, self.strides, self.kernel_of(packing), self.read, before, strict=True
            )
        ]
        return (*before, *map(max, behind, needed))


@of_each_chain(SLICE_HAS_INPUTS)
def pack_places(graph: Graph, chain: Chain) -> None:
    """A Conv that writes few channels writes those of neighbouring places at once; Transposes put them in their places.

    Its kernel is as much wider, with zeros in it. The model stays as it is, and is given back where there is nothing
    to do.
    """
    window = _window(graph, chain.node)
    packing = _packing(window, graph.shape(chain.node.inputs[1]) or ()) if window is not None else None
    if window is not None and packing is not None:
        _pack(graph, chain, window, packing)


def _window(graph: Graph, node: Node) -> _Window | None:
    """None for what is no Conv of known size that could write places as channels."""
    if node.op_type != "Conv" or not is_float_constant(node.inputs[1], graph) or not has_constant_bias(node, graph):
        return None
    read, written = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    kernel = (graph.shape(node.inputs[1]) or ())[SPATIAL:]
    if read is None or written is None or 0 in (*read, *written) or len(kernel) not in (1, 2):
        return None
    if node.attributes.get("group", 1) != 1 or not set(node.attributes.get("dilations", ())) <= {1}:
        return None
    strides = tuple(node.attributes.get("strides", (1,) * len(kernel)))
    sizes = read[SPATIAL:], written[SPATIAL:]
    return _Window(kernel, strides, pads_of(node, read[SPATIAL:], kernel, strides), *sizes)


def _packing(window: _Window, weight: Sequence[int]) -> tuple[int, ...] | None:
    """How many places along each axis become channels; None where that saves little with blocks of some size."""
    n_written, n_read = weight[:SPATIAL]
    if n_written > _FEW or (n_read < _READ and max(window.kernel) < _WIDE):
        return None
    alone = (1,) * len(window.kernel)

    def cost(packing: tuple[int, ...], block: int) -> float:
        return window.cost(packing, n_written, block) / window.cost(alone, n_written, block)

    possible = [
        packing
        for packing in itertools.product(_STEPS, repeat=len(alone))
        if n_written * math.prod(packing) <= _MANY
        and math.prod(window.blocks_of(packing)) * math.prod(packing) <= (1 + _MOST_FILLED) * math.prod(window.written)
        and cost(packing, _LITTLE) <= _KEPT
    ]
    best = min(possible, key=lambda packing: (cost(packing, _LARGE), math.prod(packing), packing))
    return best if cost(best, _LARGE) <= _SAVED else None


def _pack(graph: Graph, chain: Chain, window: _Window, packing: tuple[int, ...]) -> None:
    node, bias = chain.node, bias_of(chain.node)
    constants = {"weight": _packed(graph.constant(node.inputs[1]), window, packing)}
    if bias is not None:
        constants["bias"] = np.repeat(graph.constant(bias).ravel(), math.prod(packing))
    strides = [n * stride for n, stride in zip(packing, window.strides, strict=True)]
    chain.add("Conv", constants, strides=strides, pads=window.pads_of(packing))
    n_images, n_channels = (graph.shape(node.outputs[0]) or ())[:SPATIAL]
    blocks = window.blocks_of(packing)
    chain.interleave((n_images, n_channels * math.prod(packing), *blocks), packing, is_in_a_row=True)
    left = [n_blocks * n - size for n_blocks, n, size in zip(blocks, packing, window.written, strict=True)]
    if any(left):
        chain.crop([0] * len(packing), left, "cut")


def _packed(weight: Floats, window: _Window, packing: tuple[int, ...]) -> Floats:
    """The weight, shape (M, C, k, ...), once for each of the places, shape (M * n * ..., C, wider k, ...)."""
    n_written, n_read = weight.shape[:SPATIAL]
    found = np.zeros((n_written, *packing, n_read, *window.kernel_of(packing)), np.float32)
    for place in np.ndindex(*packing):
        taps = [
            slice(i * stride, i * stride + size)
            for i, stride, size in zip(place, window.strides, window.kernel, strict=True)
        ]
        found[(slice(None), *place, slice(None), *taps)] = weight
    return found.reshape(-1, n_read, *window.kernel_of(packing))
