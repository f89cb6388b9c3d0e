"""What keeps the order of values, behind the operators that take the largest of them.

Its argument stays untouched, and is given back where there is nothing to do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import LINEAR, Kind, kind_of
from autoquant.model.windows import SPATIAL
from autoquant.rewrites.affine import applied
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.moves import axes_of, only_moves

__all__ = ["is_pool_of_values", "take_largest_first"]

_RISING = frozenset({"Atan", "Clip", "Erf", "Exp", "Log", "Relu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Tanh"})
_RISING_BY = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha",),
    "LeakyRelu": ("alpha",),
    "Selu": ("alpha", "gamma"),
}
"""Attributes that must not be negative; by default none of them is."""
_AFFINE = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
_BESIDE_CONSTANTS = ("Add", "Div", "Max", "Min", "Mul", "PRelu", "Sub")
_IN_ANY_ORDER = ("Add", "Max", "Min", "Mul")
_Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Axes:
    """Those along which the largest values are taken.

    Attributes:
        taken: Counted from the front.
        rank: Of what is read; 0 where it is not known.
        are_kept: Whether what is written has them too.
    """

    taken: frozenset[int]
    rank: int
    are_kept: bool

    def behind(self, values: _Values) -> _Values | None:
        """A constant that stands beside the largest values as it did beside all; None where it differs among those."""
        if values.ndim > self.rank:
            return None
        wide = (1,) * (self.rank - values.ndim) + values.shape
        if any(wide[axis] != 1 for axis in self.taken):
            return None
        return values if self.are_kept else values.reshape([n for i, n in enumerate(wide) if i not in self.taken])


@of_each_node()
def take_largest_first(edit: Edit, node: Node) -> None:
    """A MaxPool or ReduceMax comes before what keeps the order of values, as Elu does and the addition of a constant.

    The largest of such values is what becomes of the largest value, and there are fewer values to compute it of; the
    same holds of the smallest one. What a linear operator takes in stays before it: factors and summands, and a Relu or
    Clip that is first, which integer kernels absorb. There may be nodes between that only move elements.
    """
    graph, axes = edit.graph, _axes(edit.graph, node)
    chain = [] if axes is None else _before(graph, node, axes)
    chain = chain[_n_absorbed(graph, chain) :]
    later = [each for each in chain if not only_moves(each)]
    if axes is None or not later:
        return
    made, tensor = [], str(chain[0].inputs[_slot(graph, chain[0])])
    for each in (*(each for each in chain if only_moves(each)), node, *later):
        proto = graph.copy_of(each)
        proto.input[_slot(graph, each)] = tensor
        if each is node or each in later:
            proto.output[0] = edit.names.new(f"{each.outputs[0]}_of_largest")
            _put_beside(edit, each, proto, axes)
        made.append(proto)
        tensor = proto.output[0]
    made[-1].output[0] = node.outputs[0]
    edit.replaced.update(dict.fromkeys((each.index for each in chain), ()))
    edit.replaced[node.index] = made


def is_pool_of_values(node: Node) -> bool:
    """Whether it is a MaxPool without indices, of whose windows none holds padding alone, which is below any value."""
    return (
        node.op_type == "MaxPool"
        and not any(node.outputs[1:])
        and not node.attributes.get("ceil_mode", 0)
        and set(node.attributes.get("dilations", ())) <= {1}
    )


def _axes(graph: Graph, node: Node) -> _Axes | None:
    """None of what takes no largest values of floats, and of a MaxPool that writes as many as it reads."""
    rank = graph.rank(node.inputs[0]) if node.inputs else 0
    if not node.inputs or node.inputs[0] not in graph.float_tensors:
        return None
    is_shrinking = is_pool_of_values(node) and any(stride > 1 for stride in node.attributes.get("strides", ()))
    if is_shrinking or node.op_type == "GlobalMaxPool":
        return _Axes(frozenset(range(SPATIAL, rank)), rank, are_kept=True)
    if node.op_type not in ("ReduceMax", "ReduceMin") or (
        any(node.inputs[1:]) and not graph.is_constant(node.inputs[1])
    ):
        return None
    taken = axes_of(graph, node, rank) or range(rank)
    return _Axes(frozenset(taken), rank, are_kept=bool(node.attributes.get("keepdims", 1)))


def _before(graph: Graph, node: Node, axes: _Axes) -> list[Node]:
    """What only moves values or keeps their order, in a row before a node, in order."""
    chain: list[Node] = []
    source, moved = node.inputs[0], False
    while graph.only_reader(source) is not None and source in graph.producer:
        each = graph.producer[source]
        moved = moved or only_moves(each)
        if not only_moves(each) and not _keeps_order(graph, each, None if moved else axes):
            break
        chain.insert(0, each)
        source = each.inputs[_slot(graph, each)]
    return chain


def _n_absorbed(graph: Graph, chain: Sequence[Node]) -> int:
    """How many of the first ones stay."""
    producer = graph.producer.get(chain[0].inputs[_slot(graph, chain[0])]) if chain else None
    takes_in = _AFFINE if producer is not None and producer.op_type in LINEAR else ()
    n = 0
    while n < len(chain) and (only_moves(chain[n]) or chain[n].op_type in takes_in):
        n += 1
    return n + 1 if n < len(chain) and kind_of(chain[n]) is Kind.CLIPPING else n


def _keeps_order(graph: Graph, node: Node, axes: _Axes | None) -> bool:
    """Whether it makes no larger value the smaller one.

    Args:
        graph: It is in.
        node: Any one.
        axes: Along which it must be the same for all values; None where it must be so for every one.
    """
    if node.op_type in _RISING_BY:
        return all(node.attributes.get(name, 0.0) >= 0 for name in _RISING_BY[node.op_type])
    if node.op_type == "BatchNormalization":
        found = applied(graph, node, node.inputs[0], 0, 1)
        is_alike = axes is not None and min(axes.taken, default=0) >= SPATIAL
        return is_alike and found is not None and bool((found[0] > 0).all())
    return node.op_type in _RISING or _constant_behind(graph, node, axes) is not None


def _constant_behind(graph: Graph, node: Node, axes: _Axes | None) -> _Values | None:
    """What an operator that keeps the order of values reads beside the largest ones; None where there is no such."""
    if node.op_type not in _BESIDE_CONSTANTS or sum(map(graph.is_constant, node.inputs)) != 1 or len(node.inputs) != 2:
        return None
    slot, source = 1 - _slot(graph, node), node.inputs[_slot(graph, node)]
    values = graph.constant(node.inputs[slot])
    if (slot == 0 and node.op_type not in _IN_ANY_ORDER) or not _is_rising(node, values):
        return None
    if values.ndim > graph.rank(source):
        return None
    if values.size == 1:
        return values.reshape(())
    return None if axes is None else axes.behind(values)


def _is_rising(node: Node, values: _Values) -> bool:
    """Whether an operator keeps order beside these values: no factor or slope of a PRelu turns it around."""
    is_turned = {"Mul": values <= 0, "Div": values <= 0, "PRelu": values < 0}.get(node.op_type, np.zeros(1, np.bool_))
    return bool(np.isfinite(values).all() and not is_turned.any())


def _slot(graph: Graph, node: Node) -> int:
    """Which input of a node holds the values; the others are constants."""
    is_second = node.op_type in _BESIDE_CONSTANTS and graph.is_constant(node.inputs[0])
    return int(is_second)


def _put_beside(edit: Edit, node: Node, proto: onnx.NodeProto, axes: _Axes) -> None:
    """The constant in the shape that it has beside the largest values."""
    found = _constant_behind(edit.graph, node, axes)
    slot = 1 - _slot(edit.graph, node)
    if found is not None and found.shape != edit.graph.constant(node.inputs[slot]).shape:
        proto.input[slot] = edit.constant(f"{node.name}_beside_largest", found)
