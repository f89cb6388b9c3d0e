"""Rows of which a model reads few, computed alone."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import SLICE_HAS_INPUTS
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.directions import RECURRENT, is_read_at_an_end, run_to_step
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.lattices import lattice_of
from autoquant.rewrites.moves import FAR, axes_of
from autoquant.rewrites.row_wise import axes_read, that_pay

__all__ = ["compute_read_rows"]

_PAYING = ("Conv", "Gemm", "LayerNormalization", "MatMul", *RECURRENT)
"""What takes longer than to pick rows."""
_FEWEST_SAVED = 8
"""Rows: to pick some costs as much as to compute a few more."""
_PICKING = ("Gather", "GatherElements", "Slice")
_ENDS = frozenset({0, -1})
"""The places that an axis of any size has."""
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some places of an axis, in an order."""

    axis: int
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """A node that computes some rows alone.

    Attributes:
        rows: Of what it writes.
        read: Of each input, None where all are read.
    """

    rows: _Rows
    read: tuple[_Rows | None, ...]


def compute_read_rows(model: Model) -> Model:
    """Rows that are read are computed alone, as the last layer of a classifier that reads the first token of it.

    There keys and values are of all tokens, and queries, what comes out of attention and the layers behind it of the
    token that is read. Convs read the places that those that are read follow from, and of a layer that runs both ways
    one runs the step that is read alone. The argument stays as it is, and is given back where there is nothing to do.
    """
    if opset_of(model) < SLICE_HAS_INPUTS:
        return model
    graph = graph_of(model)
    narrowed = that_pay(graph, _narrowed(graph), _PAYING)
    if not narrowed:
        return model
    written = _Written(Edit(graph), narrowed)
    for node in graph.nodes:
        written.write(node)
    return written.edit.model()


def _narrowed(graph: Graph) -> dict[int, _Narrowed]:
    """Nodes, by index, of which all that is read are few rows, and which compute one row from one."""
    found, read = dict[int, _Narrowed](), dict[TensorName, set[_Rows | None]]()
    for node in reversed(graph.nodes):
        name = node.outputs[0]
        rows = None if name in graph.pinned else _together(graph, name, read.get(name, set()))
        needed = None if rows is None else _needed(graph, node, rows)
        if rows is not None and needed is not None:
            found[node.index] = _Narrowed(rows, needed)
        for source, each in zip(node.inputs, _read_by(graph, node, found.get(node.index)), strict=True):
            read.setdefault(source, set()).add(each)
    return found


def _together(graph: Graph, tensor: TensorName, wanted: Collection[_Rows | None]) -> _Rows | None:
    """The rows that all readers of a tensor read; None where one reads all, or other axes, and of many.

    Where a Concat says how long an axis is that is open before it, what is broadcast there may have its ends alone.
    """
    each = [rows for rows in wanted if rows is not None]
    axes = {rows.axis for rows in each}
    if len(each) < len(wanted) or len(axes) != 1:
        return None
    (axis,), size = axes, (graph.sizes(tensor) or ())[next(iter(axes))]
    places = np.unique([place for rows in each for place in rows.places]) if len(each) > 1 else np.array(each[0].places)
    is_at_ends = size is None and set(places) <= _ENDS
    return _Rows(axis, tuple(map(int, places))) if is_at_ends or _are_few(places, size) else None


def _needed(graph: Graph, node: Node, rows: _Rows) -> tuple[_Rows | None, ...] | None:
    """What a node reads for rows that it writes; None where others count, too, and where that is not known."""
    axes = axes_read(graph, node, rows.axis)
    if axes is not None:
        return tuple(None if axis is None else _Rows(axis, rows.places) for axis in axes)
    lattice = lattice_of(graph, node, rows.axis, rows.places)
    if lattice is not None:
        is_whole = len(lattice.places) == (graph.sizes(node.inputs[0]) or ())[rows.axis]
        return (None if is_whole else _Rows(rows.axis, lattice.places), *(None for _ in node.inputs[1:]))
    if is_read_at_an_end(graph, node, rows.axis, rows.places):
        return (None,) * len(node.inputs)
    regrouped = _regrouped(graph, node, rows) if node.op_type in ("Flatten", "Reshape") else None
    return None if regrouped is None else (regrouped, *(None for _ in node.inputs[1:]))


def _regrouped(graph: Graph, node: Node, rows: _Rows) -> _Rows | None:
    """The same rows of each matrix of a batch, where the rows of all come one behind the other on one side."""
    read, written = graph.shape(node.inputs[0]) or (), graph.shape(node.outputs[0]) or ()
    behind = math.prod(written[rows.axis + 1 :])
    axis = next((i for i in range(len(read)) if math.prod(read[i + 1 :]) == behind), None)
    if axis is None or not written or not behind:
        return None
    ours, theirs = written[rows.axis], read[axis]
    if theirs % ours == 0:
        return _Rows(axis, tuple(k * ours + place for k in range(theirs // ours) for place in rows.places))
    n_each = ours // theirs
    inner = rows.places[: len(rows.places) // n_each]
    is_each = rows.places == tuple(k * theirs + place for k in range(n_each) for place in inner)
    return _Rows(axis, inner) if ours % theirs == 0 and is_each else None


def _read_by(graph: Graph, node: Node, narrowed: _Narrowed | None) -> Iterator[_Rows | None]:
    """For each input the rows that are read, None for all."""
    for i, rows in enumerate([None for _ in node.inputs] if narrowed is None else narrowed.read):
        yield rows if i or rows is not None else _picked(graph, node)


def _picked(graph: Graph, node: Node) -> _Rows | None:
    """What a node of constant places picks of the only axis that it cuts, sorted by a GatherElements; None of most."""
    sizes = graph.sizes(node.inputs[0]) if node.op_type in _PICKING else None
    if not sizes or not all(map(graph.is_constant, node.inputs[1:])):
        return None
    is_slice = node.op_type == "Slice"
    axes = axes_of(graph, node, len(sizes)) if is_slice else (node.attributes.get("axis", 0) % len(sizes),)
    if axes is None or len(axes) != 1:
        return None
    size = sizes[axes[0]]
    places = _sliced(graph, node, size) if is_slice else graph.constant(node.inputs[1])
    if node.op_type == "GatherElements":
        places = np.unique(places % size if size else places[:0])
    if places.ndim > 1 or not _are_few(places, size):
        return None
    return _Rows(axes[0], tuple(int(place) if size is None else int(place) % size for place in places.ravel()))


def _sliced(graph: Graph, node: Node, size: int | None) -> _Places:
    """The places of a Slice of one axis; of one of open size the first and the last place alone are known."""
    ends = [int(graph.constant(name).item()) for name in (*node.inputs[1:3], *node.inputs[4:])]
    if size is not None:
        return np.arange(size)[slice(*ends)]
    is_first, is_last = ends[:2] == [0, 1], ends[0] == -1 and ends[1] >= FAR
    is_in_order = ends[2:] in ([], [1])
    return np.array([0] if is_first and is_in_order else [-1] if is_last and is_in_order else [], np.int64)


def _are_few(places: _Places, size: int | None) -> bool:
    """Whether it pays to compute these alone."""
    if size is None:
        return places.size == 1 and int(places.item()) in _ENDS
    return 0 < places.size <= min(size // 2, size - _FEWEST_SAVED)


@dataclass(slots=True)
class _Written:
    """Nodes of which some compute fewer rows.

    Attributes:
        edit: Of the model.
        narrowed: Nodes, by index.
        held: Which rows those tensors hold that hold rows alone.
        names: Of tensors with rows alone, by the tensor and which they are.
    """

    edit: Edit
    narrowed: Mapping[int, _Narrowed]
    held: dict[TensorName, _Rows] = field(default_factory=dict)
    names: dict[tuple[TensorName, _Rows], str] = field(default_factory=dict)

    def write(self, node: Node) -> None:
        """Nodes in order."""
        graph, each = self.edit.graph, self.narrowed.get(node.index)
        made = [] if each is None else [*self._narrow(node, each)]
        rows = _picked(graph, node) if each is None or each.read[0] is None else None
        if rows is not None and node.inputs[0] in self.held:
            made = [self._take(node, rows, made[-1] if made else graph.copy_of(node), each)]
        if made:
            self.edit.replaced[node.index] = made

    def _narrow(self, node: Node, each: _Narrowed) -> Iterator[onnx.NodeProto]:
        proto = self.edit.graph.copy_of(node)
        if node.op_type in RECURRENT:
            *others, proto = run_to_step(self.edit, node, each.rows.places[0])
            yield from others
        for i, (name, rows) in enumerate(zip(node.inputs, each.read, strict=True)):
            if rows is not None:
                if (name, rows) not in self.names:
                    yield from self._pick(name, rows)
                proto.input[i] = self.names[name, rows]
        lattice = lattice_of(self.edit.graph, node, each.rows.axis, each.rows.places)
        if lattice is not None:
            lattice.set(proto, self.edit.graph.rank(node.inputs[0]) - SPATIAL)
        if node.op_type == "Reshape":
            sizes = [-1 if size is None else size for size in self.edit.graph.sizes(node.outputs[0]) or ()]
            sizes[each.rows.axis] = len(each.rows.places)
            proto.input[1] = self.edit.constant(f"{node.name}_sizes_of_rows", np.array(sizes, np.int64))
        proto.output[0] = self.edit.names.new(f"{node.outputs[0]}_rows")
        self.held[node.outputs[0]], self.names[node.outputs[0], each.rows] = each.rows, proto.output[0]
        yield proto

    def _pick(self, name: TensorName, rows: _Rows) -> Iterator[onnx.NodeProto]:
        """Rows of a tensor that is there as a whole, or with others."""
        graph, (source, places) = self.edit.graph, self._places(name, rows)
        if graph.is_constant(name):
            picked = self.edit.constant(f"{name}_rows", graph.constant(name).take(places, rows.axis))
        else:
            picked = self.edit.names.new(f"{name}_rows")
            index = self.edit.constant(f"{name}_places", places)
            yield helper.make_node("Gather", [source, index], [picked], name=picked, axis=rows.axis)
        self.names[name, rows] = picked

    def _places(self, name: TensorName, rows: _Rows) -> tuple[str, _Places]:
        """What holds rows, and where in it they are."""
        held = self.held.get(name)
        if held is None:
            return name, np.array(rows.places, np.int64)
        return self.names[name, held], np.array([held.places.index(place) for place in rows.places], np.int64)

    def _take(self, node: Node, rows: _Rows, proto: onnx.NodeProto, each: _Narrowed | None) -> onnx.NodeProto:
        """What picks rows, of a tensor that holds few now."""
        graph, (source, places) = self.edit.graph, self._places(node.inputs[0], rows)
        called = f"{node.name}_places_of_rows"
        if node.op_type == "GatherElements":
            index = graph.constant(node.inputs[1]) % (graph.sizes(node.inputs[0]) or ())[rows.axis]
            if each is not None:
                index = index.take(each.rows.places, each.rows.axis)
            proto.input[1] = self.edit.constant(called, places[np.searchsorted(rows.places, index)])
        else:
            index = self.edit.constant(called, places.reshape(-1 if graph.rank(node.inputs[1]) else ()))
            proto = helper.make_node("Gather", ["", index], list(node.outputs), name=node.name, axis=rows.axis)
        proto.input[0] = source
        return proto
