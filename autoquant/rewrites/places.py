"""Places that are taken or written one by one although they lie in a row."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.rewrites.edits import Edit, Parts, of_each_node
from autoquant.rewrites.moves import axes_of

__all__ = ["gather_rows", "take_rows"]

_Places = npt.NDArray[np.int64]


@of_each_node()
def gather_rows(edit: Edit, node: Node) -> None:
    """A GatherND of rows becomes a Gather, which other rewrites know.

    So PyTorch's exporter of ``torch.export`` writes rows that a tensor picks.

    References:
        ONNX operators, GatherND: with one index a row it takes what Gather takes along the first axis.
    """
    graph, parts = edit.graph, Parts(edit, node)
    if node.op_type != "GatherND" or node.attributes.get("batch_dims", 0):
        return
    shape = graph.shape(node.inputs[1])
    if not shape or shape[-1] != 1:
        return
    added = graph.producer.get(node.inputs[1])
    if graph.is_constant(node.inputs[1]):
        rows = parts.constant("rows", graph.constant(node.inputs[1])[..., 0])
    elif added is not None and added.op_type == "Unsqueeze" and _is_last(axes_of(graph, added, len(shape)), shape):
        rows = added.inputs[0]
        if graph.only_reader(node.inputs[1]) is node:
            edit.replaced[added.index] = ()
    else:
        return
    parts.add("Gather", [node.inputs[0], rows], output=node.outputs[0], axis=0)
    edit.replaced[node.index] = parts.nodes


def _is_last(axes: Sequence[int] | None, shape: Sequence[int]) -> bool:
    return axes is not None and tuple(axes) == (len(shape) - 1,)


@of_each_node(SLICE_HAS_INPUTS)
def take_rows(edit: Edit, node: Node) -> None:
    """A Gather of places in a row becomes a Slice, that of the only place a Reshape, a ScatterND of rows a Concat.

    Of an inner axis a Gather copies element by element. So exporters of PyTorch write ``unfold``, ``index_select`` and
    what a network assigns to a slice.
    """
    parts = Parts(edit, node)
    if node.outputs[0] in edit.graph.float_tensors and not edit.graph.is_constant(node.inputs[0]):
        if node.op_type == "Gather":
            _take(edit.graph, parts)
        elif node.op_type == "ScatterND" and node.attributes.get("reduction", "none") in ("none", b"none"):
            _write(edit.graph, parts)
    if parts.nodes:
        edit.replaced[node.index] = parts.nodes


def _take(graph: Graph, parts: Parts) -> None:
    node = parts.node
    shape, written = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    axis = int(node.attributes.get("axis", 0))
    places = None if shape is None else _places(graph, node, shape[axis])
    if shape is None or places is None:
        return
    if shape[axis] == places.size == 1 and written is not None and 0 not in written:
        sizes = parts.constant("shape", np.array(written, np.int64))
        parts.add("Reshape", [node.inputs[0], sizes], output=node.outputs[0])
    elif places.ndim == 1 and places.size > 1 and _are_in_a_row(places):
        ends = {"starts": places[0], "ends": places[-1] + 1, "axes": axis % len(shape)}
        constants = [parts.constant(name, np.array([value], np.int64)) for name, value in ends.items()]
        parts.add("Slice", [node.inputs[0], *constants], output=node.outputs[0])


def _write(graph: Graph, parts: Parts) -> None:
    node = parts.node
    data, _, rows = node.inputs
    shape = graph.shape(data)
    places = None if shape is None else _places(graph, node, shape[0])
    if shape is None or places is None or places.shape != (places.size, 1) or not _are_in_a_row(places.ravel()):
        return
    joined = [rows]
    for called, start, end in (("before", 0, places[0, 0]), ("behind", places[-1, 0] + 1, shape[0])):
        if start < end:
            numbers = (("starts", start), ("ends", end), ("axes", 0))
            constants = [parts.constant(f"{called}_{name}", np.array([value], np.int64)) for name, value in numbers]
            kept = parts.add("Slice", [data, *constants], part=called)
            joined = [kept, *joined] if called == "before" else [*joined, kept]
    if len(joined) > 1:
        parts.add("Concat", joined, output=node.outputs[0], axis=0)


def _places(graph: Graph, node: Node, size: int) -> _Places | None:
    """Counted from the front; None where they are no constants."""
    if not graph.is_constant(node.inputs[1]):
        return None
    places = graph.constant(node.inputs[1]).astype(np.int64)
    return np.where(places < 0, places + size, places)


def _are_in_a_row(places: _Places) -> bool:
    return bool(places.size and (np.diff(places) == 1).all())
