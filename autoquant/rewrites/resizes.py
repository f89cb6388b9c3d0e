"""Images and volumes resized by interpolation, as products with constant matrices: decision 0045."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import SCALES, Kind, kind_of
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["CubicInterpolation", "LinearInterpolation", "multiply_linear", "multiply_resizes"]

_MOST_PRODUCTS, _MOST_LINEAR = 1000, {4: 64, 5: 96}
"""For each value that is written, of cubic and by rank of linear ones: with 768 the first took a thirteenth of their
kernel's time, the others with 70 to 80 half of it and with 144 as long: decision 0045."""
_POSITIONS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_RANKS = (4, 5)
"""Of images and volumes."""
_BLOCKED = 8
"""Channels of images that onnxruntime resizes linearly by blocks are a multiple of it, and take no longer than this."""
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
        places = _places(self.position, n, n_resized, scale)
        indices = np.floor(places)[:, None] + np.arange(-1.0, 3.0)
        shares = self._shares(np.abs(places[:, None] - indices))
        if self.is_inside:
            shares = np.where((indices >= 0) & (indices < n), shares, 0.0)
            shares /= shares.sum(axis=1, keepdims=True)
        return _shared_out(indices, shares, n)

    def _shares(self, distance: Floats) -> Floats:
        a = self.coefficient
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((distance - 5) * distance + 8) * a * distance - 4 * a
        return np.where(distance <= 1, near, far)


@dataclass(frozen=True, slots=True)
class LinearInterpolation:
    """How a Resize makes values of the two that are nearest along each axis.

    Attributes:
        position: ``coordinate_transformation_mode``.

    References:
        Resize in the ONNX operator specification.
    """

    position: str = "half_pixel"

    def matrix(self, n: int, n_resized: int, scale: float) -> Floats:
        """As of ``CubicInterpolation``."""
        places = _places(self.position, n, n_resized, scale)
        indices = np.floor(places)[:, None] + np.arange(2.0)
        return _shared_out(indices, 1 - np.abs(places[:, None] - indices), n)


def _places(position: str, n: int, n_resized: int, scale: float) -> Floats:
    """Of what is written, among the values before."""
    indices = np.arange(n_resized, dtype=np.float64)
    if position == "align_corners":
        return indices * (n - 1) / max(n_resized - 1, 1)
    if position == "asymmetric":
        return indices / scale
    is_single = position == "pytorch_half_pixel" and n_resized == 1
    return np.zeros(1) if is_single else (indices + 0.5) / scale - 0.5


def _shared_out(indices: Floats, shares: Floats, n: int) -> Floats:
    """A matrix of the shares of values, those beyond an edge for the value there, shape (``len(indices)``, ``n``)."""
    found = np.zeros((len(indices), n))
    np.add.at(found, (np.arange(len(indices))[:, None], np.clip(indices, 0, n - 1).astype(np.int64)), shares)
    return found


@of_each_node()
def multiply_resizes(edit: Edit, node: Node) -> None:
    """A cubic Resize of images or volumes of known size becomes a MatMul for each axis.

    The model stays as it is, and is given back where there is nothing to do.
    """
    _multiply(edit, node, CubicInterpolation)


@of_each_node()
def multiply_linear(edit: Edit, node: Node) -> None:
    """The same of a linear Resize that the CPU provider has no fast kernel for.

    One of images that products read later stays: on integers it moves values, and in blocks of channels it is fast.
    """
    is_of_volumes = edit.graph.rank(node.inputs[0]) == max(_RANKS) if node.inputs else False
    if node.op_type == "Resize" and (is_of_volumes or not _leads_to_products(edit.graph, node)):
        _multiply(edit, node, LinearInterpolation)


def _leads_to_products(graph: Graph, node: Node) -> bool:
    """Whether something behind a node multiplies activations with others or weights."""
    behind, new = {node.index}, [node]
    while new:
        readers = [reader for name in new.pop().outputs for reader in graph.consumers.get(name, ())]
        if any(kind_of(reader) is Kind.LINEAR for reader in readers):
            return True
        found = [reader for reader in readers if reader.index not in behind]
        behind |= {reader.index for reader in found}
        new += found
    return False


def _multiply(edit: Edit, node: Node, kind: type[CubicInterpolation | LinearInterpolation]) -> None:
    matrices = _matrices(edit.graph, node, kind)
    before, behind = edit.graph.shape(node.inputs[0]) or (), edit.graph.shape(node.outputs[0]) or ()
    if matrices:
        parts, source = Parts(edit, node), node.inputs[0]
        for axis in sorted(matrices, reverse=True):
            source = _multiplied(parts, source, (*before[: axis + 1], *behind[axis + 1 :]), axis, matrices[axis])
        parts.nodes[-1].output[0] = node.outputs[0]
        edit.replaced[node.index] = parts.nodes


def _multiplied(parts: Parts, source: TensorName, sizes: tuple[int, ...], axis: int, matrix: Floats) -> TensorName:
    """One axis of what has these sizes, those behind it resized already."""
    last = len(sizes) - 1
    called = ("columns", "rows", "slices")[last - axis]
    factor = parts.constant(called, (matrix.T if axis == last else matrix).astype(np.float32))
    if axis == last:
        return parts.add("MatMul", [source, factor], part=called)
    if axis == last - 1:
        return parts.add("MatMul", [factor, source], part=called)
    flat = parts.constant(f"{called}_flat", np.array((*sizes[: axis + 1], math.prod(sizes[axis + 1 :])), np.int64))
    whole = parts.constant(f"{called}_whole", np.array((*sizes[:axis], len(matrix), *sizes[axis + 1 :]), np.int64))
    rows = parts.add("Reshape", [source, flat], part=f"{called}_rows")
    return parts.add("Reshape", [parts.add("MatMul", [factor, rows], part=called), whole], part=f"{called}_back")


def _matrices(graph: Graph, node: Node, kind: type[CubicInterpolation | LinearInterpolation]) -> dict[int, Floats]:
    """By which each axis of places is multiplied; none where the node stays."""
    interpolation = _interpolation(node) if node.op_type == "Resize" else None
    if not isinstance(interpolation, kind) or node.inputs[0] not in graph.float_tensors:
        return {}
    before, behind = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if before is None or behind is None or len(before) not in _RANKS or 0 in (*before, *behind):
        return {}
    is_linear = isinstance(interpolation, LinearInterpolation)
    if is_linear and len(before) == min(_RANKS) and before[1] % _BLOCKED == 0:
        return {}
    most = _MOST_LINEAR[len(before)] if is_linear else _MOST_PRODUCTS
    scales = _scales(graph, node, before, behind)
    if scales is None or before[:SPATIAL] != behind[:SPATIAL] or _products(before, behind) > most:
        return {}
    axes = [axis for axis in range(SPATIAL, len(before)) if (before[axis], scales[axis]) != (behind[axis], 1.0)]
    return {axis: interpolation.matrix(before[axis], behind[axis], scales[axis]) for axis in axes}


def _products(before: Sequence[int], behind: Sequence[int]) -> float:
    """For each value that is written, where the last axis is resized first."""
    found, share = 0.0, 1.0
    for axis in range(SPATIAL, len(before)):
        found += share * before[axis]
        share *= before[axis] / behind[axis]
    return found


def _scales(graph: Graph, node: Node, before: Sequence[int], behind: Sequence[int]) -> Sequence[float] | None:
    """For each axis; None where they are not known."""
    name = node.inputs[SCALES] if len(node.inputs) > SCALES else None
    if not name or graph.shape(name) == (0,):  # as before opset 13 beside sizes
        return [n_resized / n for n, n_resized in zip(before, behind, strict=True)]
    if not graph.is_constant(name) or node.attributes.get("axes"):
        return None
    given = graph.constant(name).astype(np.float64).ravel().tolist()
    return given if len(given) == len(before) else None


def _interpolation(node: Node) -> CubicInterpolation | LinearInterpolation | None:
    """None for what is neither a cubic nor a linear one, or one of their rarer kinds."""

    def text(name: str, usual: str) -> str:
        return bytes(node.attributes.get(name, usual.encode())).decode()

    position = text("coordinate_transformation_mode", "half_pixel")
    mode = text("mode", "nearest")
    is_known = mode in ("cubic", "linear") and position in _POSITIONS and not node.attributes.get("antialias", 0)
    if not is_known or text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    if mode == "linear":
        return LinearInterpolation(position)
    coefficient = float(node.attributes.get("cubic_coeff_a", -0.75))
    return CubicInterpolation(position, coefficient, bool(node.attributes.get("exclude_outside", 0)))
