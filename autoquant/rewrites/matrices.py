"""Vectors in rows, which stay a matrix from product to product."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.sources import with_sources
from autoquant.rewrites.unread import drop_unread

__all__ = ["keep_matrices"]

_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_ELEMENTWISE = frozenset(
    {
        *("Abs", "Add", "Clip", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log"),
        *("Max", "Min", "Mish", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Selu", "Sigmoid", "Softplus", "Sqrt"),
        *("Sub", "Sum", "Tanh"),
    }
)
_REDUCING = frozenset({"ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"})
_LEAST_RANK = 3
Shape = tuple[int, ...]


def keep_matrices(model: Model) -> Model:
    """What is computed of each number or each vector alone between products is computed of the rows of a matrix.

    A Gemm reads and writes matrices, and layers around it three dimensions or more, so that a Reshape is before and
    behind it. Each takes as long as a small operator. Where that saves some, groups of operators that do not mind are
    written for matrices, and other shapes are said where others are wanted; of several in a row the last one is said.
    Sizes have to be known.
    """
    graph = Graph(model)
    rows = _Rows(graph)
    for group in _groups(graph):
        if rows.gain(group) > 0:
            rows.kept.update(dict.fromkeys(node.index for node in group))
    return rows.written()


def _groups(graph: Graph) -> list[list[Node]]:
    """Operators of the same rows that read each other's results, or the same."""
    found: dict[TensorName, list[Node]] = {}
    for node in (node for node in graph.nodes if _is_by_rows(graph, node)):
        joined = [node]
        for group in {id(found[name]): found[name] for name in node.inputs if name in found}.values():
            joined += group
        names = (name for each in joined for name in (*each.inputs, each.outputs[0]))
        found.update(dict.fromkeys((name for name in names if name and not graph.is_constant(name)), joined))
    return list({id(group): group for group in found.values()}.values())


def _is_by_rows(graph: Graph, node: Node) -> bool:
    """Whether an operator computes each number, or each vector along the last axis, from those at its place alone."""
    shape = graph.shape(node.outputs[0]) if node.outputs else None
    if shape is None or len(shape) < _LEAST_RANK or 0 in shape:
        return False
    constants = [name for name in node.inputs if graph.is_constant(name)]
    others = [name for name in node.inputs if name and name not in constants]
    for name in (*others, node.outputs[0]):
        own = graph.shape(name)
        if own is None or own[:-1] != shape[:-1] or name not in graph.float_tensors:
            return False
    if node.op_type == "LayerNormalization":
        is_last = node.attributes.get("axis", -1) in (-1, len(shape) - 1)
        return is_last and len(node.outputs) == 1 and others == [*node.inputs[:1]]
    if node.op_type in _REDUCING:
        is_last = axes_of(graph, node, len(shape)) == (len(shape) - 1,)
        return is_last and node.attributes.get("keepdims", 1) == 1 and others == [*node.inputs[:1]]
    is_broadcast = all(_by_rows(graph, name, shape) is not None for name in constants)
    return node.op_type in _ELEMENTWISE and bool(others) and is_broadcast


def _by_rows(graph: Graph, name: TensorName, shape: Shape) -> npt.NDArray[np.generic] | None:
    """A constant as it is broadcast to a matrix; None where it is one of some rows."""
    values = graph.constant(name)
    if values.ndim > len(shape):
        return None
    if math.prod(values.shape[:-1]) == 1:
        return values.reshape(values.shape[-1:])
    return values.reshape(-1, values.shape[-1]) if values.shape[:-1] == shape[:-1] else None


@dataclass(slots=True)
class _Rows:
    """Writes operators for matrices.

    Attributes:
        graph: With shapes.
        kept: Indices of these operators.
    """

    graph: Graph
    kept: dict[int, None] = field(default_factory=dict)
    _edit: Edit = field(init=False)
    _matrices: dict[tuple[TensorName, Shape], TensorName] = field(default_factory=dict)
    _sources: dict[TensorName, TensorName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._edit = Edit(self.graph)

    def gain(self, group: list[Node]) -> int:
        """How many Reshapes fewer there are if a group is written so and nothing else is."""
        inside = {node.index for node in group}
        made = {node.outputs[0] for node in group}
        read = dict.fromkeys(name for node in group for name in node.inputs if name and name not in made)
        gain = 0
        for name in (name for name in read if not self.graph.is_constant(name)):
            is_alone = name not in self.graph.pinned and all(
                reader.index in inside for reader in self.graph.consumers[name]
            )
            root = self._root(name)
            is_matrix = self._matrix(name) == (self._matrix(root) if self._is_kept(root) else self.graph.shape(root))
            gain += int(is_matrix) + int(is_alone and root != name) - 1
        for name in made:
            readers = [reader for reader in self.graph.consumers.get(name, ()) if reader.index not in inside]
            views = [reader for reader in readers if self._is_view(reader)]
            written = {view.outputs[0] for view in views} - self.graph.pinned
            gain += sum(self.graph.shape(view) == self._matrix(name) for view in written)
            gain -= len(views) < len(readers) or name in self.graph.pinned
        return gain

    def written(self) -> Model:
        """The model."""
        for node in self.graph.nodes:
            if node.index in self.kept:
                self._write(node)
            elif self._is_view(node) and (
                self._root(node.inputs[0]) != node.inputs[0] or self._is_kept(node.inputs[0])
            ):
                self._write_view(node)
        return drop_unread(with_sources(self._edit.model(), self._sources)) if self._edit.replaced else self.graph.model

    def _write(self, node: Node) -> None:
        """The operator of matrices, and of what else reads its result as it was."""
        graph, target = self.graph, node.outputs[0]
        shape, before = graph.shape(target) or (), list[onnx.NodeProto]()
        proto = graph.copy_of(node)
        for position, name in enumerate(node.inputs):
            if name and not graph.is_constant(name):
                proto.input[position] = self._as_matrix(name, self._matrix(name), before)
            elif node.op_type in _REDUCING:
                proto.input[position] = self._edit.constant(f"{name}_of_rows", np.array([-1], np.int64))
            elif name and graph.constant(name).ndim > 1:
                values = _by_rows(graph, name, shape)
                assert values is not None
                proto.input[position] = self._edit.constant(f"{name}_by_rows", values)
        for attribute in proto.attribute:
            if attribute.name == "axis":
                attribute.i = -1
            elif attribute.name == "axes":
                attribute.ints[:] = [-1]
        proto.output[0] = self._name(target)
        self._edit.replaced[node.index] = [*before, proto, *self._read_otherwise(node)]

    def _read_otherwise(self, node: Node) -> Iterator[onnx.NodeProto]:
        """The Reshape to what it was, where something reads that."""
        name = node.outputs[0]
        readers = self.graph.consumers.get(name, ())
        others = [reader for reader in readers if reader.index not in self.kept and not self._is_view(reader)]
        if others or name in self.graph.pinned:
            yield self._reshape(self._name(name), name, self.graph.shape(name) or ())

    def _write_view(self, node: Node) -> None:
        """A Reshape of the matrix, unless it is that, or of what was given other shapes before."""
        target = node.outputs[0]
        root, shape = self._root(target), self.graph.shape(target) or ()
        is_kept = self._is_kept(root)
        if is_kept and shape == self._matrix(root) and target not in self.graph.pinned:
            self._sources[target] = self._name(root)
        source = self._name(root) if is_kept else root
        self._edit.replaced[node.index] = [self._reshape(source, target, shape, str(node.name))]

    def _as_matrix(self, name: TensorName, shape: Shape, before: list[onnx.NodeProto]) -> TensorName:
        """The name of a tensor as a matrix; the Reshape that writes it is added to what comes before its reader."""
        root = self._root(name)
        if self._is_kept(root) and self._matrix(root) == shape:
            return self._name(root)
        if self.graph.shape(root) == shape:
            return root
        if (root, shape) not in self._matrices:
            source = self._name(root) if self._is_kept(root) else root
            found = self._matrices[root, shape] = self._edit.names.new(f"{name}_rows")
            before.append(self._reshape(source, found, shape))
        return self._matrices[root, shape]

    def _reshape(self, source: str, target: str, shape: Shape, name: str = "") -> onnx.NodeProto:
        sizes = self._edit.constant(f"{target}_sizes", np.array(shape, np.int64))
        return helper.make_node("Reshape", [source, sizes], [target], name=name or f"{target}_shape")

    def _name(self, tensor: TensorName) -> TensorName:
        """Of what is a matrix now."""
        key = tensor, ()
        if key not in self._matrices:
            self._matrices[key] = self._edit.names.new(f"{tensor}_rows")
        return self._matrices[key]

    def _matrix(self, tensor: TensorName) -> Shape:
        *rows, n_columns = self.graph.shape(tensor) or (1,)
        return math.prod(rows), n_columns

    def _root(self, tensor: TensorName) -> TensorName:
        """What a tensor is another shape of."""
        producer = self.graph.producer.get(tensor)
        while producer is not None and self._is_view(producer):
            tensor = producer.inputs[0]
            producer = self.graph.producer.get(tensor)
        return tensor

    def _is_view(self, node: Node) -> bool:
        """Whether it gives what is no constant another shape that is known."""
        shape = self.graph.shape(node.outputs[0]) if node.op_type in _VIEWS else None
        is_float = node.op_type in _VIEWS and node.inputs[0] in self.graph.float_tensors
        return is_float and shape is not None and 0 not in shape and not self.graph.is_constant(node.inputs[0])

    def _is_kept(self, tensor: TensorName) -> bool:
        producer = self.graph.producer.get(tensor)
        return producer is not None and producer.index in self.kept
