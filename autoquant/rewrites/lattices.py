"""Convolutions at some places alone."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from autoquant.model.graph import Graph, Node
from autoquant.model.windows import SPATIAL, UNPADDED

__all__ = ["Lattice", "lattice_of"]

_WINDOW = ("dilations", "strides")


@dataclass(frozen=True, slots=True)
class Lattice:
    """Places of an axis that a Conv reads for some that it writes, as many apart as all of them allow.

    Attributes:
        axis: Of places, counted from the first one of these.
        places: Those that are not padding.
        pads: How many of them are padding, before and behind.
        stride: From one window to the next, counted in these places.
        dilation: From one place of a window to the next, counted in these places.
    """

    axis: int
    places: tuple[int, ...]
    pads: tuple[int, int]
    stride: int
    dilation: int

    def set(self, conv: onnx.NodeProto, n_axes: int) -> None:
        """Give a Conv that reads these places alone the attributes with which it does."""
        known = {attribute.name: list(attribute.ints) for attribute in conv.attribute if attribute.ints}
        pads = known.get("pads", [0] * 2 * n_axes)
        dilations, strides = (known.get(name, [1] * n_axes) for name in _WINDOW)
        pads[self.axis], pads[self.axis + n_axes] = self.pads
        dilations[self.axis], strides[self.axis] = self.dilation, self.stride
        others = [each for each in conv.attribute if each.name not in ("auto_pad", "pads", *_WINDOW)]
        del conv.attribute[:]
        conv.attribute.extend(others)
        for name, values in (("pads", pads), ("dilations", dilations), ("strides", strides)):
            conv.attribute.append(helper.make_attribute(name, values))


def lattice_of(graph: Graph, node: Node, axis: int, places: Sequence[int]) -> Lattice | None:
    """What a Conv reads of an axis for places of it that are equally far apart.

    So a causal convolution of which the last place is read reads few places, and the one before it for these few more:
    work that doubles from the last layer to the first, in place of all places in all layers.

    References:
        Le Paine et al. 2016 (arXiv 1611.09482), where what was computed for earlier places is kept instead.

    Args:
        graph: With shapes.
        node: Any one.
        axis: Of what it writes.
        places: Of that, from the front.

    Returns:
        None for other nodes and axes, places that are not equally far apart, and sizes that are not known.
    """
    window = (graph.shape(node.inputs[1]) or ())[SPATIAL:] if node.op_type == "Conv" else ()
    own, size = axis - SPATIAL, ((graph.sizes(node.inputs[0]) or ()) + (None,) * (axis + 1))[axis]
    if not window or own < 0 or size is None or node.attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED:
        return None
    gaps = {later - earlier for earlier, later in itertools.pairwise(places)}
    if len(gaps) > 1 or min(gaps, default=1) < 1:
        return None
    dilation, stride = ((node.attributes.get(name) or (1,) * len(window))[own] for name in _WINDOW)
    pad = (node.attributes.get("pads") or (0,) * 2 * len(window))[own]
    apart = min(gaps, default=0) * stride
    inside = dilation if window[own] > 1 else 0
    step = math.gcd(apart, inside) or 1
    n_read = (len(places) - 1) * (apart // step) + (window[own] - 1) * (inside // step) + 1
    read = [places[0] * stride - pad + step * i for i in range(n_read)]
    kept = tuple(place for place in read if 0 <= place < size)
    pads = (sum(place < 0 for place in read), sum(place >= size for place in read))
    return Lattice(own, kept, pads, apart // step or 1, inside // step or 1) if kept else None
