"""What no step of a Loop or Scan changes."""

from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import onnx
from onnx import helper

from autoquant.model.graph import Node, draws
from autoquant.model.ops import LINEAR
from autoquant.model.subgraphs import bodies_of, nodes_in_bodies, read_by
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["N_COUNTED", "constant_states", "hoist_invariants"]

_T = TypeVar("_T")
_OPSET = 9
"""Before it a Scan has other inputs."""
N_COUNTED = 2
"""Inputs of a Loop, and of its body, before the states: trips and the condition."""


@of_each_node(_OPSET)
def hoist_invariants(edit: Edit, node: Node) -> None:
    """Products that every step of a Loop or Scan computes of the same values are computed once, before it.

    With them comes what they read and what is computed of them alone, as of the keys of a decoder's attention. States
    that each step passes on as they are do not change either. Bodies inside bodies stay as they are.
    """
    if node.op_type in ("Loop", "Scan"):
        proto = edit.graph.copy_of(node)
        before = list(_Hoisting(edit, proto).hoisted())
        if before:
            edit.replaced[node.index] = [*before, proto]


@dataclass(slots=True)
class _Hoisting:
    """Of the nodes of one body, which it is taken out of.

    Attributes:
        edit: Of the model.
        proto: A copy of the Loop or Scan.
    """

    edit: Edit
    proto: onnx.NodeProto
    _outside: dict[str, str] = field(default_factory=dict)
    """What tensors of the body are called outside."""

    def hoisted(self) -> Iterator[onnx.NodeProto]:
        """The nodes that come before the Loop or Scan, in their order."""
        (body,) = bodies_of(self.proto)
        self._outside.update(constant_states(self.proto, body))
        unchanging = _unchanging(body, {value.name for value in body.input} - self._outside.keys())
        wanted = _with_products(body, unchanging)
        if not wanted:
            return
        read = {name for i in wanted for name in body.node[i].input}
        for tensor in body.initializer:
            if tensor.name in read:
                self._outside[tensor.name] = self._new(tensor.name)
                moved = onnx.TensorProto()
                moved.CopyFrom(tensor)
                moved.name = self._outside[tensor.name]
                self.edit.constants.append(moved)
        for i in sorted(wanted):
            yield self._moved(body.node[i])
        self._take_out(body, wanted)

    def _new(self, name: str) -> str:
        return self.edit.names.new(f"{self.proto.name}_{name}")

    def _moved(self, inner: onnx.NodeProto) -> onnx.NodeProto:
        self._outside.update({name: self._new(name) for name in inner.output if name})
        moved = onnx.NodeProto()
        moved.CopyFrom(inner)
        moved.name = next(self._outside[name] for name in inner.output if name)
        for names in (moved.input, moved.output):
            names[:] = [self._outside.get(name, name) for name in names]
        return moved

    def _take_out(self, body: onnx.GraphProto, wanted: set[int]) -> None:
        """The rest of the body reads from outside what it no longer computes."""
        gone = {name for i in wanted for name in body.node[i].output if name}
        for i in sorted(wanted, reverse=True):
            del body.node[i]
        for node in (node for outer in body.node for node in (outer, *nodes_in_bodies(outer))):
            node.input[:] = [self._outside[name] if name in gone else name for name in node.input]
        written = [value.name for value in body.output]
        body.node.extend(
            helper.make_node("Identity", [self._outside[name]], [name], name=f"{name}_kept")
            for name in written
            if name in gone
        )
        read = {*written, *(name for node in body.node for name in read_by(node))}
        _keep(body.initializer, lambda tensor: tensor.name in read)
        _keep(body.value_info, lambda value: value.name not in gone)


def _keep(fields: MutableSequence[_T], is_kept: Callable[[_T], bool]) -> None:
    for i in reversed(range(len(fields))):  # each that is kept anew would be copied
        if not is_kept(fields[i]):
            del fields[i]


def constant_states(proto: onnx.NodeProto, body: onnx.GraphProto) -> Mapping[str, str]:
    """States that each step passes on as they are: what they are called in the body, and outside."""
    n_before, n_after = (N_COUNTED, 1) if proto.op_type == "Loop" else (0, 0)
    n_scanned = sum(a.i for a in proto.attribute if a.name == "num_scan_inputs")
    source = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    found: dict[str, str] = {}
    for i in range(len(proto.input) - n_before - n_scanned):
        name = body.output[n_after + i].name
        while name in source:
            name = source[name]
        if name == body.input[n_before + i].name:
            found[name] = proto.input[n_before + i]
    return found


def _unchanging(body: onnx.GraphProto, changing: set[str]) -> list[int]:
    """Nodes that compute the same at every step; ``changing`` is what does not stay as it is."""
    found: list[int] = []
    for i, node in enumerate(body.node):
        if changing.isdisjoint(node.input) and not any(True for _ in bodies_of(node)) and not draws(node):
            found.append(i)
        else:
            changing |= set(node.output)
    return found


def _with_products(body: onnx.GraphProto, unchanging: Sequence[int]) -> set[int]:
    """Those of them that are products, are computed of products, or that such are computed of."""
    wanted, written = set[int](), set[str]()
    for i in unchanging:
        node = body.node[i]
        if node.op_type in LINEAR or not written.isdisjoint(node.input):
            wanted.add(i)
            written |= set(node.output)
    read = {name for i in wanted for name in body.node[i].input}
    for i in reversed(unchanging):
        if not read.isdisjoint(body.node[i].output):
            wanted.add(i)
            read |= set(body.node[i].input)
    return wanted
