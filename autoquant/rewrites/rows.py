"""What networks compute of integers one by one, as of the tokens of a text before they meet."""

import heapq
import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.by_element import BROADCASTING, FUNCTIONS
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.opsets import CLIP_TAKES_INTEGERS, SOFTMAX_OF_ONE_AXIS
from autoquant.rewrites.edits import Edit
from autoquant.rewrites.unread import drop_unread

__all__ = ["RowFunction", "row_functions", "with_tables"]

_MATRIX = 2
_MOVING = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_UNARY = FUNCTIONS | {"Cast", "Not"}
_ALONG_LAST = frozenset({"LayerNormalization", "LogSoftmax", "Softmax"})
_FREE = _MOVING | {"Cast", "Equal", "Gather", "OneHot"}
"""Nodes of which a Gather takes as long as they do."""
_CHEAP = BROADCASTING | {"Abs", "Clip", "Neg", "Relu"}
"""Nodes that take less than a further Gather does."""
_INTEGERS = ("int32", "int64")
_MOST_VALUES, _MOST_RUNS = 1 << 18, 4096
_MOST_BYTES = 1 << 20
"""Of the tables of one function, unless the constants that they replace take more."""
Table = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFunction:
    """Tensors of which each row depends on one integer alone.

    Attributes:
        root: Integers.
        written: Tensors of floats that others read, by the number of their axes that tell rows apart, so many as there
            are integers.
        values: Integers that are told apart.
        has_others: Whether others may come, which all give the same.
        model: From ``root`` to ``written``.
    """

    root: TensorName
    written: Mapping[TensorName, int]
    values: range
    has_others: bool
    model: Model

    def tables(self, run: Callable[[npt.NDArray[np.generic]], Sequence[Table]]) -> list[Table]:
        """What there is to look up, of each that is ``written`` a table with a row for each value, others behind it.

        Args:
            run: The model, given integers of the shape of ``root``.
        """
        root = self.model.graph.input[0].type.tensor_type
        shape = [dim.dim_value for dim in root.shape.dim]
        wanted = np.arange(self.values.start, self.values.stop + self.has_others)
        n_rows = math.prod(shape)
        found: list[list[Table]] = [[] for _ in self.written]
        for start in range(0, len(wanted), n_rows):
            part = np.resize(wanted[start : start + n_rows], n_rows)
            outputs = run(part.reshape(shape).astype(helper.tensor_dtype_to_np_dtype(root.elem_type)))
            for rows, output, lead in zip(found, outputs, self.written.values(), strict=True):
                rows.append(output.reshape(n_rows, *output.shape[lead:])[: len(wanted) - start])
        return [np.concatenate(rows) for rows in found]


def row_functions(model: Model) -> list[RowFunction]:
    """Of integers that a Gather takes rows of a constant by, or of which Equal or OneHot makes rows.

    Rows are followed through Gemm, activations, arithmetic with constants and what else keeps them apart. Only what
    computes more than a Gather does counts, and tables that are not much larger than the constants they are made of.
    """
    graph = graph_of(model)
    roots = dict.fromkeys(
        (name, node.op_type == "Gather") for node in graph.nodes if (name := _looked_up_by(graph, node)) is not None
    )
    found: list[RowFunction] = []
    written: set[TensorName] = set()
    for root, is_gathered in roots:
        function = _row_function(graph, root, is_gathered=is_gathered)
        if function is not None and written.isdisjoint(function.written):  # else of integers that are others' copy
            found.append(function)
            written.update(function.written)
    return found


def with_tables(model: Model, found: Sequence[tuple[RowFunction, Sequence[Table]]]) -> Model:
    """The model with Gathers of tables in place of what computes them; the argument stays as it is."""
    edit = Edit(graph_of(model))
    for function, tables in found:
        _look_up(edit, function, tables)
    return drop_unread(edit.model()) if found else model


def _looked_up_by(graph: Graph, node: Node) -> TensorName | None:
    """The integers, where it is such a node."""
    read = [name for name in node.inputs if name]
    free = [name for name in read if not graph.is_constant(name)]
    if len(free) != 1 or graph.dtype(free[0]) not in _INTEGERS or not graph.shape(free[0]):
        return None
    if node.op_type == "Gather":
        is_table = free[0] == node.inputs[1] and node.attributes.get("axis", 0) == 0
        return free[0] if is_table and graph.rank(node.inputs[0]) == _MATRIX else None
    is_last = node.op_type == "OneHot" and node.attributes.get("axis", -1) in (-1, graph.rank(free[0]))
    return free[0] if node.op_type == "Equal" or (is_last and free[0] == node.inputs[0]) else None


def _row_function(graph: Graph, root: TensorName, *, is_gathered: bool) -> RowFunction | None:
    """Through products of matrices where tables are small enough then, or else up to them."""
    for is_through in (True, False):
        rows = _Rows(graph, root, math.prod(graph.shape(root) or ()), is_gathered, is_through)
        inside = rows.taken()
        values, has_others = _values(graph, inside), not is_gathered
        if not 0 < values.stop - values.start <= min(_MOST_VALUES, _MOST_RUNS * rows.n) or (
            has_others and not _may_have_others(graph, root, values)
        ):
            return None
        written = _written(graph, inside, rows.leads)
        kept = {node.index for name in written for node in _needed(inside, name)}
        nodes = [node for node in inside if node.index in kept]
        n_bytes = sum(_table_bytes(graph, name, lead, len(values)) for name, lead in written.items())
        if 0 < n_bytes <= max(_MOST_BYTES, _constant_bytes(graph, nodes)):
            model = _sub_model(graph, root, nodes, written)
            return RowFunction(root=root, written=written, values=values, has_others=has_others, model=model)
    return None


def _may_have_others(graph: Graph, root: TensorName, values: range) -> bool:
    """Whether Clip takes integers, and there is one behind the values."""
    most = np.iinfo(graph.dtype(root) or "int32").max
    return values.stop <= most and opset_of(graph.model) >= CLIP_TAKES_INTEGERS


def _written(graph: Graph, inside: Sequence[Node], leads: Mapping[TensorName, int]) -> dict[TensorName, int]:
    """Tensors that others read, which more is computed of than a Gather takes, by the number of their first axes."""
    places = {node.index for node in inside}
    needed = {
        name: _needed(inside, name)
        for node in inside
        if (name := node.outputs[0]) in graph.float_tensors
        and (name in graph.pinned or any(reader.index not in places for reader in graph.consumers.get(name, ())))
    }
    free = [nodes for nodes in needed.values() if all(node.op_type in _FREE for node in nodes)]
    staying = {node.index for nodes in free for node in nodes if node.op_type not in _MOVING}
    return {name: leads[name] for name, nodes in needed.items() if _is_worth_it(nodes, staying)}


def _is_worth_it(nodes: Sequence[Node], staying: Container[int]) -> bool:
    """Whether a Gather takes less than the nodes that go, of those that a tensor is computed by."""
    gone = [node.op_type for node in nodes if node.index not in staying]
    return not (_FREE if len(gone) == len(nodes) else _FREE | _CHEAP).issuperset(gone)


@dataclass(slots=True)
class _Rows:
    """Tensors of which each row depends on one of the integers.

    Attributes:
        graph: They are in.
        root: The integers.
        n: How many there are.
        is_gathered: Whether a Gather takes rows by them, which refuses others, or Equal or OneHot makes rows of them.
        is_through: Whether rows are followed through products of matrices.
        leads: By tensor, how many axes tell rows apart.
    """

    graph: Graph
    root: TensorName
    n: int
    is_gathered: bool
    is_through: bool
    leads: dict[TensorName, int] = field(init=False)

    def __post_init__(self) -> None:
        lead = self._lead(self.root)
        self.leads = {} if lead is None else {self.root: lead}

    def taken(self) -> list[Node]:
        """Nodes that write such rows, in their order."""
        found: list[Node] = []
        waiting = [(node.index, node) for node in self.graph.consumers.get(self.root, ()) if self.leads]
        known = {index for index, _ in waiting}
        heapq.heapify(waiting)
        while waiting:
            _, node = heapq.heappop(waiting)
            if self._takes(node):
                found.append(node)
                for reader in self.graph.consumers.get(node.outputs[0], ()):
                    if reader.index not in known:
                        known.add(reader.index)
                        heapq.heappush(waiting, (reader.index, reader))
        return found

    def _takes(self, node: Node) -> bool:
        """Whether the output of a node has such rows, which is remembered."""
        read = [name for name in node.inputs if name in self.leads]
        others = [name for name in node.inputs if name and name not in self.leads]
        if not read or any(node.outputs[1:]) or not all(map(self.graph.is_constant, others)):
            return False
        lead = self._lead(node.outputs[0])
        if lead is None or not self._keeps_rows(node, read, lead):
            return False
        self.leads[node.outputs[0]] = lead
        return True

    def _lead(self, tensor: TensorName) -> int | None:
        """The fewest first axes whose sizes make as many rows; None where rows begin inside of an axis."""
        shape = self.graph.shape(tensor)
        if shape is None or 0 in shape:
            return None
        return next((k for k in range(len(shape) + 1) if math.prod(shape[:k]) == self.n), None)

    def _keeps_rows(self, node: Node, read: Sequence[TensorName], lead: int) -> bool:
        graph, first = self.graph, node.inputs[0]
        is_plain, written = read == [first], graph.dtype(node.outputs[0])
        if written not in ("float32", "bool"):
            return is_plain and written in _INTEGERS and self._is_copy(node)
        if _looked_up_by(graph, node) is not None:
            is_own = (node.op_type == "Gather") == self.is_gathered
            return is_own and (node.op_type != "Equal" or self._is_alike(node, lead))
        if any(graph.dtype(name) in _INTEGERS for name in read):  # of which more may be told apart so
            return False
        if node.op_type in _MOVING or node.op_type in _UNARY:
            return is_plain
        if node.op_type in BROADCASTING:
            return self._is_alike(node, lead)
        rank = graph.rank(first)
        if node.op_type in _ALONG_LAST:
            usual = -1 if opset_of(graph.model) >= SOFTMAX_OF_ONE_AXIS else 1
            is_last = lead < rank and node.attributes.get("axis", usual) in (-1, rank - 1)
            return is_plain and is_last and self._are_shared(node.inputs[1:])
        return is_plain and self.is_through and self._is_product(node)

    def _is_copy(self, node: Node) -> bool:
        """Whether integers are those that were read, in another shape or, where others are refused, of another type."""
        if self.graph.dtype(node.inputs[0]) not in _INTEGERS:
            return False
        return node.op_type in _MOVING or (node.op_type == "Cast" and self.is_gathered)

    def _is_product(self, node: Node) -> bool:
        """Of each row with a constant matrix, and a bias that all rows share."""
        graph, first = self.graph, node.inputs[0]
        if node.op_type not in ("Gemm", "MatMul") or self.leads[first] >= graph.rank(first):
            return False
        is_matrix = graph.rank(node.inputs[1]) == _MATRIX and not node.attributes.get("transA", 0)
        return is_matrix and self._are_shared(node.inputs[2:])

    def _are_shared(self, constants: Sequence[TensorName]) -> bool:
        """Whether all rows read the same of them, which differ along the last axis alone."""
        return all(math.prod((self.graph.shape(name) or (0,))[:-1]) == 1 for name in constants if name)

    def _is_alike(self, node: Node, lead: int) -> bool:
        """Whether what is read has the rows of what is written, and constants are the same for all of them."""
        written = self.graph.shape(node.outputs[0]) or ()
        for name in node.inputs:
            shape = self.graph.shape(name) or ()
            if name in self.leads:
                if len(shape) != len(written) or shape[:lead] != written[:lead]:
                    return False
            elif math.prod(shape[: max(0, len(shape) - len(written) + lead)]) != 1:
                return False
        return True


def _values(graph: Graph, inside: Sequence[Node]) -> range:
    """Integers that are told apart; none where nothing tells."""
    bounds = list[tuple[int, int]]()
    for node in inside:
        if node.op_type == "Equal":
            constants = [graph.constant(name) for name in node.inputs if graph.is_constant(name)]
            bounds += [(int(values.min()), int(values.max())) for values in constants if values.size]
        elif node.op_type == "OneHot":
            depth = int(graph.constant(node.inputs[1]).reshape(()))
            bounds.append((-depth, depth - 1))
    gathered = {graph.constants[node.inputs[0]].dims[0] for node in inside if node.op_type == "Gather"}
    if gathered:  # of unlike tables negative integers take unlike rows
        return range(gathered.pop() if len(gathered) == 1 else 0)
    return range(min(low for low, _ in bounds), max(high for _, high in bounds) + 1) if bounds else range(0)


def _needed(inside: Sequence[Node], tensor: TensorName) -> list[Node]:
    """Of the nodes, those that a tensor is computed by."""
    wanted, found = {tensor}, list[Node]()
    for node in reversed(inside):
        if wanted.intersection(node.outputs):
            found.append(node)
            wanted.update(node.inputs)
    return found


def _table_bytes(graph: Graph, tensor: TensorName, lead: int, n_values: int) -> int:
    return 4 * (1 + n_values) * math.prod((graph.shape(tensor) or ())[lead:])


def _constant_bytes(graph: Graph, nodes: Sequence[Node]) -> int:
    """Of constants that these nodes alone read."""
    places = {node.index for node in nodes}
    names = {name for node in nodes for name in node.inputs if name and graph.is_constant(name)}
    own = [name for name in names if all(reader.index in places for reader in graph.consumers[name])]
    return sum(4 * math.prod(graph.shape(name) or ()) for name in own if name not in graph.pinned)


def _sub_model(graph: Graph, root: TensorName, nodes: Sequence[Node], written: Mapping[TensorName, int]) -> Model:
    protos = [graph.model.graph.node[node.index] for node in nodes]
    names = dict.fromkeys(name for node in nodes for name in node.inputs if name and graph.is_constant(name))
    integers = onnx.TensorProto.INT32 if graph.dtype(root) == "int32" else onnx.TensorProto.INT64
    ends = (
        [helper.make_tensor_value_info(root, integers, graph.shape(root))],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, graph.shape(name)) for name in written],
    )
    made = helper.make_graph(protos, "rows", *ends, [graph.constants[name] for name in names])
    given = graph.model
    return helper.make_model(made, opset_imports=list(given.opset_import), ir_version=given.ir_version)


def _look_up(edit: Edit, function: RowFunction, tables: Sequence[Table]) -> None:
    """Gathers in place of what writes the tensors."""
    before, rows = [], function.root
    if function.has_others:
        before = list(_numbered(edit, function))
        rows = TensorName(before[-1].output[0])
    root = edit.graph.shape(function.root) or ()
    for (tensor, lead), table in zip(function.written.items(), tables, strict=True):
        node, shape = edit.graph.producer[tensor], edit.graph.shape(tensor) or ()
        gathered = tensor if (*root, *shape[lead:]) == shape else edit.names.new(f"{tensor}_rows")
        name = edit.constant(f"{tensor}_table", table)
        nodes = [*before, helper.make_node("Gather", [name, rows], [gathered], name=f"{node.name}_Gather", axis=0)]
        if gathered != tensor:
            wanted = edit.constant(f"{tensor}_shape", np.array(shape, np.int64))
            nodes.append(helper.make_node("Reshape", [gathered, wanted], [tensor], name=f"{node.name}_Reshape"))
        edit.replaced[node.index], before = nodes, []


def _numbered(edit: Edit, function: RowFunction) -> Iterator[onnx.NodeProto]:
    """Of the rows of a table; -1 is the last one, as is that of any other value."""
    root, dtype = function.root, np.dtype(edit.graph.dtype(function.root))
    if function.values.start:
        first = edit.constant(f"{root}_first", np.array(function.values.start, dtype))
        moved = edit.names.new(f"{root}_moved")
        yield helper.make_node("Sub", [root, first], [moved], name=moved)
        root = moved
    ends = [edit.constant(f"{root}_{end}", np.array(end, dtype)) for end in (-1, len(function.values))]
    numbers = edit.names.new(f"{root}_numbers")
    yield helper.make_node("Clip", [root, *ends], [numbers], name=numbers)
