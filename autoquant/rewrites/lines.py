"""Convolutions of lines as those of images of one row: onnxruntime's fast float kernels are for images.

What it costs and wins is in decision 0046.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.by_element import BROADCASTING, FUNCTIONS
from autoquant.model.copies import opset_of, without_weights
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import is_float_constant
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.edits import Edit

__all__ = ["lay_lines"]

_RANK = 3
"""Of a batch of lines with channels."""
_ROW = 2
"""The axis that is new."""
_BLOCK, _ALIGNED = 16, 4
"""Channels of a block, with AVX-512, and those that it takes from lines or images at a time."""
_AXES_ARE_INPUTS = 13
"""The opset from which on Squeeze and Unsqueeze take axes so."""
_UNARY = FUNCTIONS | {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization", "MaxPool"}
"""Of one tensor; what else they read are numbers, or one for each channel."""
_SLICED = 3
"""The input of a Slice that names axes."""
_ALONG = ("dilations", "kernel_shape", "strides")
"""Attributes with a number for each axis of places, which is 1 for the new one."""


def lay_lines(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convolutions of lines, and what makes lines of lines between them, get an axis of size 1 before the last one.

    Args:
        model: Stays as it is, and is given back where there is nothing to do.
    """
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == _RANK}
    has_lines = any(node.op_type == "Conv" and node.input[1] in weights for node in model.graph.node)
    if not has_lines or opset_of(model) < _AXES_ARE_INPUTS:
        return model
    graph = Graph(without_weights(model, infer_shapes))
    moved, edit = _moved(graph), Edit(graph)
    writing = _Writing(edit, moved)
    edit.replaced = {node.index: list(writing.nodes(node)) for node in graph.nodes if node.index in moved}
    return edit.model() if moved else model


def _moved(graph: Graph) -> frozenset[int]:
    """Indices of convolutions of lines, and of what reads or makes lines that they write or read."""
    found = {node.index for node in graph.nodes if _is_blocked(graph, node)}
    size = 0
    while size != len(found):
        size = len(found)
        for node in graph.nodes:
            if node.index not in found and _may_move(graph, node) and _is_near(graph, node, found):
                found.add(node.index)
    return frozenset(found)


def _is_blocked(graph: Graph, node: Node) -> bool:
    """Whether it is a convolution of lines that onnxruntime computes by blocks of channels once it is one of images.

    References:
        onnxruntime, core/optimizer/nchwc_transformer.cc
    """
    if not _is_convolution(graph, node):
        return False
    n_written, n_read = (graph.shape(node.inputs[1]) or (0, 0))[:2]
    n_groups = int(node.attributes.get("group", 1))
    if n_groups == 1:
        return n_read >= _BLOCK and n_read % _ALIGNED == 0 and n_written >= _BLOCK // 2
    is_by_channel = n_read == 1 and n_written == n_groups
    return n_written % _BLOCK == 0 and (is_by_channel or n_read % _BLOCK == n_written // n_groups % _BLOCK == 0)


def _is_convolution(graph: Graph, node: Node) -> bool:
    return node.op_type == "Conv" and _are_lines(graph, node.inputs[0]) and is_float_constant(node.inputs[1], graph)


def _is_first(graph: Graph, node: Node) -> bool:
    """Whether it is a convolution of few channels, which writes blocks without reading any."""
    if not _is_convolution(graph, node) or node.attributes.get("group", 1) > 1:
        return False
    return (graph.shape(node.inputs[1]) or (0, _BLOCK))[1] < _BLOCK


def _are_lines(graph: Graph, tensor: TensorName) -> bool:
    return graph.rank(tensor) == _RANK and tensor in graph.float_tensors and not graph.is_constant(tensor)


def _may_move(graph: Graph, node: Node) -> bool:
    if not all(_are_lines(graph, name) for name in node.outputs):
        return False
    if node.op_type in _UNARY | {"Split"}:
        return _are_lines(graph, node.inputs[0])
    if _is_first(graph, node):
        return True
    if node.op_type == "Slice":
        axes = node.inputs[_SLICED : _SLICED + 1]
        return _are_lines(graph, node.inputs[0]) and any(map(graph.is_constant, axes))
    if node.op_type == "Concat":
        return all(_are_lines(graph, name) for name in node.inputs)
    return node.op_type in BROADCASTING and all(
        _are_lines(graph, name) or (graph.is_constant(name) and graph.rank(name) <= _RANK) for name in node.inputs
    )


def _is_near(graph: Graph, node: Node, found: set[int]) -> bool:
    """Whether something that moves is before it, or behind it where it is a first convolution or reads one tensor."""
    makers = [graph.producer[name] for name in node.inputs if name in graph.producer]
    readers = [reader for name in node.outputs for reader in graph.consumers.get(name, ())]
    if node.op_type == "Conv":
        return any(reader.index in found for reader in readers)
    near = [*makers, *readers] if node.op_type in _UNARY else makers
    return any(each.index in found for each in near)


@dataclass(slots=True)
class _Writing:
    """Writes the nodes that move, in their order.

    Attributes:
        edit: Of a graph with shapes.
        moved: Indices of the nodes.
    """

    edit: Edit
    moved: frozenset[int]
    _rows: dict[TensorName, TensorName] = field(default_factory=dict)
    _row_axis: TensorName | None = None

    def nodes(self, node: Node) -> Iterator[onnx.NodeProto]:
        """What takes the place of one."""
        yield from map(self._unsqueezed, dict.fromkeys(name for name in node.inputs if self._is_new(name)))
        proto = onnx.NodeProto()
        proto.CopyFrom(self.edit.graph.model.graph.node[node.index])
        proto.input[:] = [self._read(node, slot) for slot in range(len(node.inputs))]
        _widen_attributes(proto)
        for slot, lines in enumerate(node.outputs):
            proto.output[slot] = self._rows[lines] = self.edit.names.new(f"{lines}_rows")
        yield proto
        for lines in node.outputs:
            readers = self.edit.graph.consumers.get(lines, ())
            if lines in self.edit.graph.pinned or any(reader.index not in self.moved for reader in readers):
                yield helper.make_node("Squeeze", [self._rows[lines], self._axes()], [lines], name=f"{lines}_lines")

    def _is_new(self, name: TensorName) -> bool:
        return name not in self._rows and _are_lines(self.edit.graph, name)

    def _read(self, node: Node, slot: int) -> str:
        """Instead of an input; a constant may have an axis for lines and one before, or name axes."""
        name = node.inputs[slot]
        if name in self._rows:
            return self._rows[name]
        is_operand = node.op_type in BROADCASTING or (node.op_type == "Conv" and slot == 1)
        if is_operand and self.edit.graph.rank(name) > 1:
            self._rows[name] = self.edit.constant(f"{name}_rows", np.expand_dims(self.edit.graph.constant(name), -2))
            return self._rows[name]
        if node.op_type == "Slice" and slot == _SLICED:
            return self.edit.constant(f"{node.name}_axes", _behind_row(self.edit.graph.constant(name)))
        return name

    def _unsqueezed(self, lines: TensorName) -> onnx.NodeProto:
        self._rows[lines] = self.edit.names.new(f"{lines}_rows")
        return helper.make_node("Unsqueeze", [lines, self._axes()], [self._rows[lines]], name=self._rows[lines])

    def _axes(self) -> TensorName:
        """A constant that names the new axis."""
        if self._row_axis is None:
            self._row_axis = self.edit.constant("row_axis", np.array([_ROW]))
        return self._row_axis


def _behind_row(axes: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Of lines, as they are of rows; of the same type."""
    found = axes.astype(np.int64) % _RANK
    return np.asarray(np.where(found < _ROW, found, found + 1)).astype(axes.dtype)


def _widen_attributes(proto: onnx.NodeProto) -> None:
    for attribute in proto.attribute:
        values: Sequence[int] = list(attribute.ints)
        if attribute.name == "pads":
            attribute.ints[:] = [0, values[0], 0, values[1]]
        elif attribute.name in _ALONG:
            attribute.ints[:] = [1, *values]
        elif attribute.name == "axis":
            attribute.i = int(_behind_row(np.array(attribute.i)))
