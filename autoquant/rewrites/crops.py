"""What is cut off of images and lines, not computed.

Its argument stays untouched, and is given back where there is nothing to do.
"""

from collections.abc import Sequence

from onnx import helper

from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL, UNPADDED
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.moves import FAR, axes_of

__all__ = ["crop_windows"]

_STEPS = 4
"""The input of a Slice that says them."""
Ends = tuple[int, ...]
"""Of all axes of places, what is before them and then what is behind them."""


@of_each_node(SLICE_HAS_INPUTS)
def crop_windows(edit: Edit, node: Node) -> None:
    """A Slice that cuts off ends of what a Conv or ConvTranspose writes becomes other padding of that.

    Causal convolutions are written so, with padding on both sides of which one is cut off, and so are transposed ones
    whose ends are no good.
    """
    graph, conv = edit.graph, edit.graph.producer.get(node.inputs[0])
    if node.op_type != "Slice" or conv is None or graph.only_reader(node.inputs[0]) is not node:
        return
    cut = _cut_off(graph, node)
    pads = None if cut is None else _padded(graph, conv, cut)
    if pads is None:
        return
    proto = graph.copy_of(conv)
    others = [attribute for attribute in proto.attribute if attribute.name not in ("auto_pad", "pads")]
    del proto.attribute[:]
    proto.attribute.extend([*others, helper.make_attribute("pads", pads)])
    proto.output[0] = node.outputs[0]
    edit.replaced |= {conv.index: (proto,), node.index: ()}


def _cut_off(graph: Graph, node: Node) -> Ends | None:
    """Places that a Slice leaves out at both ends of each axis; None where it does more than that, or nothing."""
    sizes, axes = graph.sizes(node.inputs[0]) or (), axes_of(graph, node, graph.rank(node.inputs[0]))
    if not axes or min(axes) < SPATIAL or not all(map(graph.is_constant, node.inputs[1:])):
        return None
    starts, ends = (graph.constant(name).ravel().tolist() for name in node.inputs[1:3])
    if any(step != 1 for name in node.inputs[_STEPS:] for step in graph.constant(name).ravel()):
        return None
    found = [0] * 2 * (len(sizes) - SPATIAL)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        cut = _ends_of(sizes[axis], start, end)
        if cut is None:
            return None
        found[axis - SPATIAL], found[axis - SPATIAL + len(found) // 2] = cut
    return tuple(found) if any(found) else None


def _ends_of(size: int | None, start: int, end: int) -> tuple[int, int] | None:
    """How many places there are before and behind; of an open size those alone that are counted from an end."""
    if size is not None:
        first, last, _ = slice(start, end).indices(size)
        return (first, size - last) if first < last else None
    if start < 0 or 0 <= end < FAR:
        return None
    return start, -min(end, 0)


def _padded(graph: Graph, conv: Node, cut: Ends) -> Ends | None:
    """The padding with which a node writes no more than is left; None where no padding does that."""
    window: Sequence[int] = (graph.shape(conv.inputs[1]) or ())[SPATIAL:] if len(conv.inputs) > 1 else ()
    if conv.op_type not in ("Conv", "ConvTranspose") or conv.attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED:
        return None
    if not window or "output_shape" in conv.attributes:
        return None
    n_axes = len(window)
    dilations, strides = (conv.attributes.get(name) or (1,) * n_axes for name in ("dilations", "strides"))
    reach = [step * (n - 1) for step, n in zip(dilations, window, strict=True)]
    before = conv.attributes.get("pads") or (0,) * 2 * n_axes
    open_axes = [i for i, size in enumerate((graph.sizes(conv.outputs[0]) or ())[SPATIAL:]) if size is None]
    if conv.op_type == "ConvTranspose":
        found = tuple(pad + n for pad, n in zip(before, cut, strict=True))
        is_short = all(pad <= n for pad, n in zip(found, reach * 2, strict=True))
        return found if is_short and all(sum(found[i::n_axes]) <= reach[i] for i in open_axes) else None
    found = tuple(pad - n for pad, n in zip(before, cut, strict=True))
    is_of_each = all(stride == 1 for stride, n in zip(tuple(strides) * 2, cut, strict=True) if n)
    has_places = all(sum(found[i::n_axes]) >= reach[i] for i in open_axes)
    return found if min(found) >= 0 and is_of_each and has_places else None
