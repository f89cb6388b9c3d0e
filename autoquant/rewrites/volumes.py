"""Convolutions of volumes as those of images, for which onnxruntime has faster kernels: decision 0075."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, has_constant_bias, is_float_constant
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL, pads_of
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["slice_volumes"]

_RANK = 5
"""Of a batch of volumes with channels."""
_SLICES_FIRST = (0, 2, 1, 3, 4)
"""Axes of a batch of volumes such that those of slices come before those of channels, and back."""
_DEPTH, _CHANNELS = 1, 2
"""Of these."""
_BLOCK = 16
"""Channels that kernels compute at a time, whether there are so many or not."""
_TOGETHER = (4, 2)
"""Slices that are computed as one image where they have few channels."""
Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Windows:
    """How the windows of a convolution of volumes lie on what it reads, along depth, height and width.

    Attributes:
        read: Sizes of what is read, with those of the batch and its channels before.
        written: The same of what is written.
        kernel: Sizes of a window.
        strides: From one window to the next.
        dilations: From one place of a window to the next.
        before: Places of zeros before what is read.
        behind: The same behind.
        n_groups: Of channels: one, or each by itself.
    """

    read: Sizes
    written: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    behind: Sizes
    n_groups: int

    @property
    def are_along_depth(self) -> bool:
        """Whether each has one place of a slice, and there is one for every place."""
        is_one = self.kernel[1:] == self.strides[1:] == (1, 1)
        return is_one and not any((*self.before[1:], *self.behind[1:]))

    @property
    def are_in_a_row(self) -> bool:
        """Whether their slices lie side by side, and none is left over."""
        depth, stride = self.kernel[0], self.strides[0]
        is_plain = (self.dilations[0], self.before[0], self.behind[0]) == (1, 0, 0)
        return is_plain and depth == stride and self.written[SPATIAL] * depth == self.read[SPATIAL]

    @property
    def n_together(self) -> int:
        """Slices that are written as one image, so that their channels fill a block (decision 0047)."""
        n_channels, depth = self.written[1], self.written[SPATIAL]
        is_plain = self.strides[0] == self.dilations[0] == self.n_groups == 1 and self.kernel[0] > 1
        fitting = (n for n in _TOGETHER if is_plain and n * n_channels <= _BLOCK and depth % n == 0)
        return next(fitting, 1)

    def of_rows(self) -> Mapping[str, Sequence[int] | int]:
        """Attributes of a Conv of images that have a row for each slice."""
        return {
            "strides": (self.strides[0], 1),
            "dilations": (self.dilations[0], 1),
            "pads": (self.before[0], 0, self.behind[0], 0),
            "group": self.n_groups,
        }

    def of_slices(self) -> Mapping[str, Sequence[int] | int]:
        """Attributes of a Conv of slices."""
        pads = (*self.before[1:], *self.behind[1:])
        return {"strides": self.strides[1:], "dilations": self.dilations[1:], "pads": pads, "group": self.n_groups}


@of_each_node(SLICE_HAS_INPUTS)
def slice_volumes(edit: Edit, node: Node) -> None:
    """A Conv of volumes becomes one of images whose channels are those of all slices of a window.

    One of each channel by itself becomes a sum of those of the slices: images of several channels each have no fast
    kernel. One whose windows have a single place of each slice reads images that have a row for each slice. The model
    stays as it is, and is given back where there is nothing to do.
    """
    windows = _windows(edit.graph, node)
    if windows is not None:
        parts = Parts(edit, node)
        (_write_rows if windows.are_along_depth else _write_slices)(parts, windows)
        edit.replaced[node.index] = parts.nodes


def _windows(graph: Graph, node: Node) -> _Windows | None:
    """None for what is no Conv of volumes of known size with all channels in one group, or each in its own."""
    if node.op_type != "Conv" or not is_float_constant(node.inputs[1], graph) or not has_constant_bias(node, graph):
        return None
    read, written = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if read is None or written is None or len(read) != _RANK or 0 in (*read, *written):
        return None
    (_, n_each, *kernel), n_groups = graph.shape(node.inputs[1]) or (0, 0), int(node.attributes.get("group", 1))
    if n_groups > 1 and n_each > 1:
        return None
    strides, dilations = (tuple(node.attributes.get(name, (1,) * len(kernel))) for name in ("strides", "dilations"))
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = pads_of(node, read[SPATIAL:], spans, strides)
    n_axes = len(kernel)
    return _Windows(read, written, tuple(kernel), strides, dilations, pads[:n_axes], pads[n_axes:], n_groups)


def _write_rows(parts: Parts, windows: _Windows) -> None:
    weight, (n_images, n_channels, depth, *places) = parts.edit.graph.constant(parts.node.inputs[1]), windows.read
    rows = _reshaped(parts, parts.node.inputs[0], (n_images, n_channels, depth, math.prod(places)), "rows")
    convolved = _convolved(parts, rows, weight.reshape(*weight.shape[: SPATIAL + 1], 1), windows.of_rows())
    _reshaped(parts, convolved, windows.written, "volumes", output=parts.node.outputs[0])


def _write_slices(parts: Parts, windows: _Windows) -> None:
    n_volumes, n_written, depth, *places = windows.written
    slices = parts.add("Transpose", [parts.node.inputs[0]], part="slices", perm=_SLICES_FIRST)
    convolved = (_joined if windows.n_groups == 1 else _summed)(parts, slices, windows)
    volumes = _reshaped(parts, convolved, (n_volumes, depth, n_written, *places), "volumes")
    parts.add("Transpose", [volumes], part="back", output=parts.node.outputs[0], perm=_SLICES_FIRST)


def _joined(parts: Parts, slices: TensorName, windows: _Windows) -> TensorName:
    """A Conv of images in which the slices of each window lie beside each other, among the channels.

    Where it writes few channels, those of several slices are written as one image, with zeros in the weights.
    """
    weight, n, joined = parts.edit.graph.constant(parts.node.inputs[1]), windows.n_together, slices
    n_written, n_read, depth, *kernel = weight.shape
    if not windows.are_in_a_row:
        beside = _of_windows(parts, slices, windows, n)
        joined = beside[0] if len(beside) == 1 else parts.add("Concat", beside, part="joined", axis=_CHANNELS)
    of_images = np.zeros((n, n_written, depth + n - 1, n_read, *kernel), np.float32)
    for number in range(n):
        of_images[number, :, number : number + depth] = weight.transpose(_SLICES_FIRST)
    n_channels = (depth + n - 1) * n_read
    images = _images(parts, joined, windows, n_channels, "images", n)
    return _convolved(parts, images, of_images.reshape(-1, n_channels, *kernel), windows.of_slices(), n_images=n)


def _summed(parts: Parts, slices: TensorName, windows: _Windows) -> TensorName:
    """A Conv of each slice of the windows, and their sum."""
    weight, attributes = parts.edit.graph.constant(parts.node.inputs[1]), windows.of_slices()
    found: TensorName | None = None
    for number, each in enumerate(_of_windows(parts, slices, windows)):
        images = _images(parts, each, windows, windows.read[1], f"images{number}")
        part = f"conv{number}" if number else ""
        convolved = _convolved(parts, images, weight[:, :, number], attributes, part=part)
        found = convolved if found is None else parts.add("Add", [found, convolved], part=f"sum{number}")
    assert found is not None
    return found


def _padded(parts: Parts, slices: TensorName, windows: _Windows) -> TensorName:
    """With slices of zeros around them."""
    n_volumes, n_channels, _, *places = windows.read
    joined = [slices]
    for called, n_zeros in (("before", windows.before[0]), ("behind", windows.behind[0])):
        if n_zeros:
            zeros = parts.constant(called, np.zeros((n_volumes, n_zeros, n_channels, *places), np.float32))
            joined = [zeros, *joined] if called == "before" else [*joined, zeros]
    return slices if len(joined) == 1 else parts.add("Concat", joined, part="padded", axis=_DEPTH)


def _of_windows(parts: Parts, slices: TensorName, windows: _Windows, n_together: int = 1) -> list[TensorName]:
    """The first slice of each window, the second one, and so on; of so many windows in a row as if they were one."""
    padded = _padded(parts, slices, windows)
    if windows.kernel[0] == windows.strides[0] == 1:
        return [padded]
    n_slices = windows.kernel[0] + n_together - 1
    return [_sliced(parts, padded, number, windows, n_together) for number in range(n_slices)]


def _images(
    parts: Parts, slices: TensorName, windows: _Windows, n_channels: int, part: str, n_together: int = 1
) -> TensorName:
    """Slices of all volumes behind each other."""
    n_images = windows.written[0] * windows.written[SPATIAL] // n_together
    return _reshaped(parts, slices, (n_images, n_channels, *windows.read[SPATIAL + 1 :]), part)


def _sliced(parts: Parts, source: TensorName, number: int, windows: _Windows, n_together: int) -> TensorName:
    """One slice of each window, or of so many in a row."""
    first, stride = number * windows.dilations[0], windows.strides[0] * n_together
    last = first + (windows.written[SPATIAL] // n_together - 1) * stride
    numbers = {"starts": first, "ends": last + 1, "axes": _DEPTH, "steps": stride}
    part = f"slice{number}"
    constants = [parts.constant(f"{part}_{name}", np.array([value], np.int64)) for name, value in numbers.items()]
    return parts.add("Slice", [source, *constants], part=part)


def _reshaped(
    parts: Parts, source: TensorName, shape: Sizes, part: str, output: TensorName | None = None
) -> TensorName:
    sizes = parts.constant(f"{part}_shape", np.array(shape, np.int64))
    return parts.add("Reshape", [source, sizes], part=part, output=output)


def _convolved(
    parts: Parts,
    source: TensorName,
    weight: npt.NDArray[np.float32],
    attributes: Mapping[str, Any],
    part: str = "",
    n_images: int = 1,
) -> TensorName:
    """By the node itself, which keeps its name, or one of its parts, which adds no bias; of several images at once."""
    bias = None if part else bias_of(parts.node)
    constants = [parts.constant(f"{part}weight", np.ascontiguousarray(weight))]
    if bias is not None and n_images > 1:
        bias = parts.constant("bias", np.tile(parts.edit.graph.constant(bias).ravel(), n_images))
    constants += [] if bias is None else [bias]
    return parts.add("Conv", [source, *constants], part=part, kernel_shape=weight.shape[SPATIAL:], **attributes)
