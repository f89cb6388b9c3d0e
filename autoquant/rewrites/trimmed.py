"""Kernels without the zeros at their ends, as filters of a window that is shorter than the transform have them."""

import numpy as np
import numpy.typing as npt

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, has_constant_bias, is_float_constant
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.chain import Chain, of_each_chain

__all__ = ["trim_kernels"]

_SAVED = 0.95
"""Of the taps of a kernel, those that are left at most."""
Floats = npt.NDArray[np.float32]


@of_each_chain(SLICE_HAS_INPUTS)
def trim_kernels(graph: Graph, chain: Chain) -> None:
    """A Conv whose taps at the ends of an axis are all zero does without them, and without what they would read.

    That is less padding, or where there is none a Slice before. The model stays as it is, and is given back where
    there is nothing to do.
    """
    if _may_be_trimmed(graph, chain.node):
        _trim(graph, chain)


def _may_be_trimmed(graph: Graph, node: Node) -> bool:
    return (
        node.op_type == "Conv"
        and is_float_constant(node.inputs[1], graph)
        and has_constant_bias(node, graph)
        and node.attributes.get("auto_pad", b"NOTSET") == b"NOTSET"
    )


def _trim(graph: Graph, chain: Chain) -> None:
    node = chain.node
    weight, bias = graph.constant(node.inputs[1]), bias_of(node)
    inside = [_inside(weight, axis) for axis in range(SPATIAL, weight.ndim)]
    trimmed = weight[(slice(None), slice(None), *inside)]
    if not 0 < trimmed.size <= _SAVED * weight.size:
        return
    n_axes = len(inside)
    dilations = node.attributes.get("dilations", (1,) * n_axes)
    gone = [part.start * step for part, step in zip(inside, dilations, strict=True)]
    gone += [
        (size - part.stop) * step for part, size, step in zip(inside, weight.shape[SPATIAL:], dilations, strict=True)
    ]
    pads = [pad - n for pad, n in zip(node.attributes.get("pads", (0,) * 2 * n_axes), gone, strict=True)]
    if min(pads) < 0:
        before, behind = ([max(-pad, 0) for pad in part] for part in (pads[:n_axes], pads[n_axes:]))
        chain.crop(before, behind, "inside")
    attributes = {name: value for name, value in node.attributes.items() if name not in ("kernel_shape", "pads")}
    constants = {"weight": trimmed} | ({} if bias is None else {"bias": graph.constant(bias)})
    chain.add("Conv", constants, pads=[max(pad, 0) for pad in pads], **attributes)


def _inside(weight: Floats, axis: int) -> slice:
    """From the first tap along an axis that is not zero everywhere to the last one."""
    others = tuple(i for i in range(weight.ndim) if i != axis)
    (kept,) = np.nonzero(np.abs(weight).max(axis=others, initial=0.0))
    return slice(int(kept[0]), int(kept[-1]) + 1) if len(kept) else slice(0, 0)
