"""Vectors in rows, which stay a matrix from product to product."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.by_element import BROADCASTING, FUNCTIONS
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import VIEWS
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.moves import REDUCING, axes_of
from autoquant.rewrites.sources import with_sources
from autoquant.rewrites.unread import drop_unread

__all__ = ["keep_matrices"]

_LEAST_RANK = 3
Shape = tuple[int, ...]


def keep_matrices(model: Model) -> Model:
    """What is computed of each number or each vector alone between products is computed of the rows of a matrix.

    A Gemm reads and writes matrices, and layers around it three dimensions or more, so that there are Reshapes before
    and behind it. Each takes as long as a small operator. Where that saves some, groups of operators to which it is all
    the same how rows are arranged are written for matrices, and Reshapes are where something needs another shape. Of
    several shapes in a row that are known the last one alone is kept, in any model.
    """
    graph = graph_of(model)
    rows = _Rows(graph)
    for group in _groups(graph):
        if rows.gain(group) > 0:
            rows.kept.update(node.index for node in group)
    return rows.written()


def _groups(graph: Graph) -> Iterable[list[Node]]:
    """Operators of the same rows that read each other's results, or the same."""
    nodes = [node for node in graph.nodes if _is_by_rows(graph, node)]
    firsts: dict[TensorName, TensorName] = {}

    def first(tensor: TensorName) -> TensorName:
        while firsts.setdefault(tensor, tensor) != tensor:
            firsts[tensor] = tensor = firsts[firsts[tensor]]
        return tensor

    for node in nodes:
        for name in node.inputs:
            if name and not graph.is_constant(name):
                firsts[first(name)] = first(node.outputs[0])
    groups = defaultdict[TensorName, list[Node]](list)
    for node in nodes:
        groups[first(node.outputs[0])].append(node)
    return groups.values()


def _is_by_rows(graph: Graph, node: Node) -> bool:
    """Whether an operator computes each number, or each vector along the last axis, from those at its place alone."""
    shape = graph.shape(node.outputs[0]) if node.outputs else None
    if shape is None or len(shape) < _LEAST_RANK:
        return False
    constants = [name for name in node.inputs if graph.is_constant(name)]
    others = [name for name in node.inputs if name and name not in constants]
    for name in (*others, node.outputs[0]):
        own = graph.shape(name)
        if own is None or 0 in own or own[:-1] != shape[:-1] or name not in graph.float_tensors:
            return False
    is_first_alone = others == [*node.inputs[:1]]
    if node.op_type in REDUCING:
        is_last = axes_of(graph, node, len(shape)) == (len(shape) - 1,)
        return is_last and node.attributes.get("keepdims", 1) == 1 and is_first_alone
    if not others or any(_by_rows(graph, name, shape) is None for name in constants):
        return False
    if node.op_type in ("LayerNormalization", "RMSNormalization"):
        is_last = node.attributes.get("axis", -1) in (-1, len(shape) - 1)
        return is_last and len(node.outputs) == 1 and is_first_alone
    return node.op_type in FUNCTIONS | BROADCASTING


def _by_rows(graph: Graph, name: TensorName, shape: Shape) -> npt.NDArray[np.generic] | None:
    """A constant as it is broadcast to a matrix; None where it differs between some rows and repeats over others."""
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
        kept: Indices of operators that are written so.
    """

    graph: Graph
    kept: set[int] = field(default_factory=set)
    _edit: Edit = field(init=False)
    _roots: dict[TensorName, TensorName] = field(default_factory=dict)
    _twins: Counter[tuple[TensorName, Shape | None]] = field(default_factory=Counter)
    _names: dict[tuple[TensorName, Shape], TensorName] = field(default_factory=dict)
    _sources: dict[TensorName, TensorName] = field(default_factory=dict)
    _node_names: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self._edit, self._node_names = Edit(self.graph), {str(node.name) for node in self.graph.nodes}
        for node in filter(self._is_view, self.graph.nodes):
            root = self._roots[node.outputs[0]] = self._root(node.inputs[0])
            self._twins[root, self.graph.shape(node.outputs[0])] += 1

    def gain(self, group: list[Node]) -> int:
        """How many Reshapes fewer onnxruntime runs if a group is written so, beside those that are kept already.

        It merges Reshapes that write the same.
        """
        inside, made = {node.index for node in group}, dict.fromkeys(node.outputs[0] for node in group)
        read = dict.fromkeys(name for node in group for name in node.inputs if name and name not in made)
        sources = defaultdict[tuple[TensorName, Shape], list[TensorName]](list)
        for name in (name for name in read if not self.graph.is_constant(name)):
            sources[self._root(name), self._matrix(name)].append(name)
        gain = sum(self._gain_before(root, shape, names, inside) for (root, shape), names in sources.items())
        return gain + sum(self._gain_behind(name, inside) for name in made)

    def _gain_before(self, root: TensorName, shape: Shape, names: list[TensorName], inside: set[int]) -> int:
        """Where a group reads a tensor in shapes of which each is the same matrix."""
        readers = (reader for name in names for reader in self.graph.consumers[name])
        is_gone = root not in names and self.graph.pinned.isdisjoint(names)
        is_gone = is_gone and all(reader.index in inside or self._is_view(reader) for reader in readers)
        is_matrix = shape == (self._matrix(root) if self._is_kept(root) else self.graph.shape(root))
        return is_gone - int(not is_matrix and not self._twins[root, shape])

    def _gain_behind(self, name: TensorName, inside: set[int]) -> int:
        """Where a tensor of a group is read by others."""
        readers = [reader for reader in self.graph.consumers.get(name, ()) if reader.index not in inside]
        views = [reader for reader in readers if self._is_view(reader)]
        matrices = [v for v in views if self.graph.shape(v.outputs[0]) == self._matrix(name)]
        is_gone = any(view.outputs[0] not in self.graph.pinned for view in matrices)
        return is_gone - int(len(views) < len(readers) or name in self.graph.pinned)

    def written(self) -> Model:
        """The model."""
        for node in self.graph.nodes:
            if node.index in self.kept:
                self._write(node)
            elif self._is_view(node) and (self._is_kept(node.inputs[0]) or node.inputs[0] in self._roots):
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
            elif node.op_type in REDUCING:
                proto.input[position] = self._edit.constant(f"{name}_of_rows", np.array([-1], np.int64))
            elif name and graph.constant(name).ndim > 1:
                proto.input[position] = self._constant(name, shape)
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
        source = self._name(root) if is_kept else root
        if shape == (self._matrix(root) if is_kept else self.graph.shape(root)) and target not in self.graph.pinned:
            self._sources[target] = source
        self._edit.replaced[node.index] = [self._reshape(source, target, shape, str(node.name))]

    def _as_matrix(self, name: TensorName, shape: Shape, before: list[onnx.NodeProto]) -> TensorName:
        """The name of a tensor as a matrix; the Reshape that writes it is added to what comes before its reader."""
        root = self._root(name)
        if self._is_kept(root) and self._matrix(root) == shape:
            return self._name(root)
        if self.graph.shape(root) == shape:
            return root
        if (root, shape) not in self._names:
            source = self._name(root) if self._is_kept(root) else root
            found = self._names[root, shape] = self._edit.names.new(f"{name}_rows")
            before.append(self._reshape(source, found, shape))
        return self._names[root, shape]

    def _constant(self, name: TensorName, shape: Shape) -> TensorName:
        """The name of a constant as it is broadcast to a matrix of so many rows."""
        values = _by_rows(self.graph, name, shape)
        assert values is not None
        if (name, values.shape) not in self._names:
            self._names[name, values.shape] = self._edit.constant(f"{name}_by_rows", values)
        return self._names[name, values.shape]

    def _reshape(self, source: str, target: str, shape: Shape, name: str = "") -> onnx.NodeProto:
        sizes = self._edit.constant(f"{target}_sizes", np.array(shape, np.int64))
        if not name:
            name = f"{target}_shape"
            while name in self._node_names:
                name += "_"
        return helper.make_node("Reshape", [source, sizes], [target], name=name)

    def _name(self, tensor: TensorName) -> TensorName:
        """Of what is a matrix now."""
        if (tensor, ()) not in self._names:
            self._names[tensor, ()] = self._edit.names.new(f"{tensor}_rows")
        return self._names[tensor, ()]

    def _matrix(self, tensor: TensorName) -> Shape:
        *rows, n_columns = self.graph.shape(tensor) or (1,)
        return math.prod(rows), n_columns

    def _root(self, tensor: TensorName) -> TensorName:
        """What a tensor is another shape of."""
        return self._roots.get(tensor, tensor)

    def _is_view(self, node: Node) -> bool:
        """Whether it gives what is no constant another shape that is known."""
        shape = self.graph.shape(node.outputs[0]) if node.op_type in VIEWS else None
        is_float = node.op_type in VIEWS and node.inputs[0] in self.graph.float_tensors
        return is_float and shape is not None and 0 not in shape and not self.graph.is_constant(node.inputs[0])

    def _is_kept(self, tensor: TensorName) -> bool:
        producer = self.graph.producer.get(tensor)
        return producer is not None and producer.index in self.kept
