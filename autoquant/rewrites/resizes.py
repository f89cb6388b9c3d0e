"""Images resized by cubic interpolation, as products with constant matrices: decision 0045."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import helper

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import SCALES
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["CubicInterpolation", "multiply_resizes"]

_MOST_PRODUCTS = 1000
"""For each value that is written; with 768 they took a thirteenth of the kernel's time: decision 0045."""
_POSITIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_RANK, _ROWS, _COLUMNS = 4, 2, 3
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CubicInterpolation:
    """How a Resize makes values of the four that are nearest along each axis.

    Attributes:
        position: ``coordinate_transformation_mode``.
        coefficient: ``cubic_coeff_a``.
        is_inside: ``exclude_outside``: what lies beyond an edge counts for nothing, instead of being the value there.

    References:
        Resize in the ONNX operator specification; Keys, "Cubic convolution interpolation for digital image processing",
        IEEE TASSP 29(6), 1981.
    """

    position: str = "half_pixel"
    coefficient: float = -0.75
    is_inside: bool = False

    def matrix(self, n: int, n_resized: int, scale: float) -> Floats:
        """The share of each value along an axis in those that are written, shape (``n_resized``, ``n``).

        Args:
            n: Values before.
            n_resized: Values that are written.
            scale: One by the other, before it was rounded.
        """
        places = self._places(n, n_resized, scale)
        indices = np.floor(places)[:, None] + np.arange(-1, 3)
        shares = self._shares(np.abs(places[:, None] - indices))
        if self.is_inside:
            shares = np.where((indices >= 0) & (indices < n), shares, 0.0)
            shares /= shares.sum(axis=1, keepdims=True)
        found = np.zeros((n_resized, n))
        np.add.at(found, (np.arange(n_resized)[:, None], np.clip(indices, 0, n - 1).astype(np.int64)), shares)
        return found

    def _places(self, n: int, n_resized: int, scale: float) -> Floats:
        """Of what is written, among the values before."""
        indices = np.arange(n_resized, dtype=np.float64)
        if self.position == "align_corners":
            return indices * (n - 1) / max(n_resized - 1, 1)
        if self.position == "asymmetric":
            return indices / scale
        is_single = self.position == "pytorch_half_pixel" and n_resized == 1
        return np.zeros(1) if is_single else (indices + 0.5) / scale - 0.5

    def _shares(self, distance: Floats) -> Floats:
        a = self.coefficient
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * a * distance - 4 * a
        return np.where(distance <= 1, near, far)


@of_each_node()
def multiply_resizes(edit: Edit, node: Node) -> None:
    """A cubic Resize of images of known size becomes a MatMul for each axis.

    The model stays as it is, and is given back where there is nothing to do.
    """
    found = _matrices(edit.graph, node)
    if found is not None:
        rows, columns = (
            edit.constant(f"{node.name}_{called}", values.astype(np.float32))
            for called, values in zip(("rows", "columns"), found, strict=True)
        )
        wide = edit.names.new(f"{node.name}_wide")
        edit.replaced[node.index] = (
            helper.make_node("MatMul", [node.inputs[0], columns], [wide], name=f"{node.name}_columns"),
            helper.make_node("MatMul", [rows, wide], list(node.outputs), name=node.name),
        )


def _matrices(graph: Graph, node: Node) -> tuple[Floats, Floats] | None:
    """By which images are multiplied from the left and from the right; None where the node stays."""
    interpolation = _interpolation(node) if node.op_type == "Resize" else None
    if interpolation is None or node.inputs[0] not in graph.float_tensors:
        return None
    before, behind = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if before is None or behind is None or len(before) != _RANK or 0 in (*before, *behind):
        return None
    (*outside, height, width), (*others, high, _) = before, behind
    scales = _scales(graph, node, before, behind)
    if scales is None or outside != others or height * width / high + height > _MOST_PRODUCTS:
        return None
    rows, columns = (interpolation.matrix(before[i], behind[i], scales[i]) for i in (_ROWS, _COLUMNS))
    return rows, columns.T


def _scales(graph: Graph, node: Node, before: Sequence[int], behind: Sequence[int]) -> Sequence[float] | None:
    """For each axis; None where they are not known."""
    name = node.inputs[SCALES] if len(node.inputs) > SCALES else None
    if not name or graph.shape(name) == (0,):  # as before opset 13 beside sizes
        return [n_resized / n for n, n_resized in zip(before, behind, strict=True)]
    if not graph.is_constant(name) or node.attributes.get("axes"):
        return None
    given = graph.constant(name).astype(np.float64).ravel().tolist()
    return given if len(given) == _RANK else None


def _interpolation(node: Node) -> CubicInterpolation | None:
    """None for what is no cubic one, or one of its rarer kinds."""

    def text(name: str, usual: str) -> str:
        return bytes(node.attributes.get(name, usual.encode())).decode()

    position = text("coordinate_transformation_mode", "half_pixel")
    is_known = text("mode", "nearest") == "cubic" and position in _POSITIONS and not node.attributes.get("antialias", 0)
    if not is_known or text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    coefficient = float(node.attributes.get("cubic_coeff_a", -0.75))
    return CubicInterpolation(position, coefficient, bool(node.attributes.get("exclude_outside", 0)))
