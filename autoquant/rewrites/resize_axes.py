"""Resizes that name their axes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import ROI, SCALES, SIZES
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["spell_axes"]


@of_each_node()
def spell_axes(edit: Edit, node: Node) -> None:
    """A Resize with ``axes`` says factors, sizes and regions of interest for all axes instead.

    Where a convolution on integers changes the layout around it, onnxruntime moves what such a Resize says as if it
    were of all axes: it cannot open the model, or not run it.

    The model stays as it is, and is given back where there is nothing to do.
    """
    if node.op_type == "Resize" and node.attributes.get("axes"):
        spelled = _spelled(edit.graph, node)
        if spelled is not None:
            edit.replaced[node.index] = [_written(edit, node, spelled)]


def _spelled(graph: Graph, node: Node) -> dict[int, npt.NDArray[np.generic]] | None:
    """What it reads instead, by position; None where it is not known, or sizes are no more than a frame."""
    sizes = graph.sizes(node.inputs[0])
    given = {i: name for i, name in enumerate(node.inputs) if i in (ROI, SCALES, SIZES) and not _is_empty(graph, name)}
    is_stretched = node.attributes.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
    if sizes is None or not is_stretched or not all(map(graph.is_constant, given.values())):
        return None
    axes = [axis % len(sizes) for axis in node.attributes["axes"]]
    if SIZES in given and any(size is None for axis, size in enumerate(sizes) if axis not in axes):
        return None
    usual = {ROI: [0] * len(sizes) + [1] * len(sizes), SCALES: [1] * len(sizes), SIZES: sizes}
    places = {ROI: [*axes, *(len(sizes) + axis for axis in axes)], SCALES: axes, SIZES: axes}
    return {i: _filled(graph.constant(name), usual[i], places[i]) for i, name in given.items()}


def _is_empty(graph: Graph, name: TensorName) -> bool:
    """As before opset 13 beside what is given."""
    return not name or graph.shape(name) == (0,)


def _filled(
    given: npt.NDArray[np.generic], usual: Sequence[int | None], places: Sequence[int]
) -> npt.NDArray[np.generic]:
    found = np.array([0 if value is None else value for value in usual], given.dtype)
    found[places] = given.reshape(-1)
    return found


def _written(edit: Edit, node: Node, spelled: dict[int, npt.NDArray[np.generic]]) -> onnx.NodeProto:
    found = edit.graph.copy_of(node)
    kept = [attribute for attribute in found.attribute if attribute.name != "axes"]
    del found.attribute[:]
    found.attribute.extend(kept)
    for position, values in spelled.items():
        found.input[position] = edit.constant(f"{node.inputs[position]}_of_all_axes", values)
    return found
