"""What the channels of a graph's tensors have to do with each other."""

from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from autoquant.domain.region import TensorName
from autoquant.model.by_element import FUNCTIONS
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import SCALES, SIZES, bias_of, weight_of

__all__ = ["AXIS", "Channels", "Follower"]

AXIS = 1
"""Of channels."""
_OF_ONE = (FUNCTIONS - {"Log", "Reciprocal"}) | {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"}
"""Operators that make of each channel one channel, finite for zeros."""
_BINARY = ("Add", "Mul", "PRelu", "Sub")
_MOVING = ("Concat", "Slice", "Split")
_AXES = 2
"""The input of a Slice that names axes, counted from its starts."""
_SPLIT_HAS_INPUTS = 13
"""The opset from which on its sizes are no attribute."""


@dataclass(frozen=True, slots=True)
class Follower:
    """A constant that has an element for each channel of a tensor.

    Attributes:
        tensor: Whose layout it follows.
        node: What reads it, by index.
        slot: As which of its inputs.
        axis: Of the channels.
    """

    tensor: TensorName
    node: int
    slot: int
    axis: int


@dataclass(slots=True)
class Channels:
    """Tensors whose channels have to be the same, and what follows them.

    Attributes:
        graph: With shapes.
        followers: Constants by channel, those that a Concat joins apart.
        depthwise: Convs that have a group for each channel.
        moving: What joins tensors, or takes some of their channels.
        resized: What names the sizes of its output, those of the channels among them.
        fixed: Roots of tensors whose channels stay as they are.
    """

    graph: Graph
    followers: list[Follower] = field(default_factory=list)
    depthwise: list[Node] = field(default_factory=list)
    moving: list[Node] = field(default_factory=list)
    resized: list[Node] = field(default_factory=list)
    fixed: set[TensorName] = field(default_factory=set)
    _parent: dict[TensorName, TensorName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fixed |= {*self.graph.inputs, *self.graph.pinned}
        for node in self.graph.nodes:
            if not self._is_read(node):
                self.fixed |= {name for name in (*node.inputs, *node.outputs) if name}
        self.fixed |= set(filter(self.graph.is_constant, self._parent))
        self.fixed = {self.root(name) for name in self.fixed}

    @property
    def tensors(self) -> tuple[TensorName, ...]:
        """Those of which it is known what makes and reads their channels."""
        return tuple(self._parent)

    def root(self, tensor: TensorName) -> TensorName:
        """One tensor for all that have the same channels."""
        self._parent.setdefault(tensor, tensor)
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor

    def size(self, tensor: TensorName) -> int | None:
        """How many channels there are; None where that is not known, or where there are no places."""
        sizes = self.graph.sizes(tensor) or ()
        return sizes[AXIS] or None if len(sizes) > AXIS + 1 else None

    def bounds(self, node: Node) -> list[tuple[int, int]]:
        """First channel, and that behind the last one, of each output of a Slice or Split."""
        if node.op_type == "Split":
            return list(pairwise(accumulate((self.size(name) or 0 for name in node.outputs), initial=0)))
        size = self.size(node.inputs[0]) or 0
        start, stop, _ = slice(*(int(self.graph.constant(name).item()) for name in node.inputs[1:3])).indices(size)
        return [(start, stop)]

    def _is_read(self, node: Node) -> bool:
        """Whether it is known what a node does to channels, which is noted then."""
        if node.op_type == "Conv":
            return self._is_conv(node)
        if node.op_type in _OF_ONE or node.op_type == "Resize":
            return self._is_function(node)
        if node.op_type in _BINARY:
            return self._is_binary(node)
        if node.op_type in _MOVING and self._is_moving(node):
            self.moving.append(node)
            for name in (*node.outputs, *(name for name in node.inputs if not self.graph.is_constant(name))):
                self.root(name)
            return True
        return False

    def _is_conv(self, node: Node) -> bool:
        weight, bias = weight_of(node, self.graph), bias_of(node)
        if weight is None or (bias is not None and not self.graph.is_constant(bias)):
            return False
        source, target = node.inputs[0], node.outputs[0]
        shape, n_groups = self.graph.shape(weight) or (), node.attributes.get("group", 1)
        if n_groups > 1 and n_groups == shape[0] == self.size(source):
            self._tie(source, target)
            self.depthwise.append(node)
        elif n_groups == 1:
            self.followers.append(Follower(self._noted(source), node.index, 1, 1))
        else:
            return False
        self.followers += [Follower(self._noted(target), node.index, slot, 0) for slot in (1, 2)[: 2 if bias else 1]]
        return True

    def _is_function(self, node: Node) -> bool:
        others = [name for name in node.inputs[1:] if name]
        if sum(map(bool, node.outputs)) != 1 or not all(map(self.graph.is_constant, others)):
            return False
        if node.op_type == "Resize":
            rank = self.graph.rank(node.outputs[0])
            scales = [self.graph.constant(name) for name in node.inputs[SCALES : SCALES + 1] if name]
            is_scaled = any(each.size and each[AXIS] != 1 for each in scales)
            if is_scaled or self.size(node.inputs[0]) != self.size(node.outputs[0]) or "axes" in node.attributes:
                return False
            if any(self.graph.shape(name) == (rank,) for name in node.inputs[SIZES : SIZES + 1]):
                self.resized.append(node)
        self._tie(node.inputs[0], node.outputs[0])
        return True

    def _is_binary(self, node: Node) -> bool:
        target = node.outputs[0]
        rank, size = self.graph.rank(target), self.size(target)
        found: list[Follower] = []
        tied: list[TensorName] = []
        for slot, name in enumerate(node.inputs):
            shape = (1,) * (rank - self.graph.rank(name)) + (self.graph.sizes(name) or ())
            if size is None or len(shape) != rank or shape[AXIS] not in (1, size):
                return False
            if not self.graph.is_constant(name):
                if self.graph.rank(name) != rank:
                    return False
                tied += [name] if shape[AXIS] == size else []
                self.fixed |= set() if shape[AXIS] == size else {name}
            elif shape[AXIS] == size > 1:
                found.append(Follower(target, node.index, slot, AXIS - rank + self.graph.rank(name)))
        for name in tied:
            self._tie(name, target)
        self.followers += found
        return bool(tied)

    def _is_moving(self, node: Node) -> bool:
        graph, floats = self.graph, (node.inputs if node.op_type == "Concat" else node.inputs[:1])
        if any(self.size(name) is None for name in (*floats, *node.outputs)):
            return False
        rank = graph.rank(node.outputs[0])
        if node.op_type != "Slice":
            is_new = node.op_type == "Concat" or opset_of(graph.model) >= _SPLIT_HAS_INPUTS
            return is_new and node.attributes.get("axis", 0) % rank == AXIS
        named = node.inputs[1:]
        if len(named) <= _AXES or not all(named) or not all(map(graph.is_constant, named)):
            return False
        axes, *steps = (graph.constant(name).ravel().tolist() for name in named[_AXES:])
        return [axis % rank for axis in axes] == [AXIS] and all(each == [1] for each in steps)

    def _noted(self, tensor: TensorName) -> TensorName:
        """The same tensor, which is one of those that have channels from here on."""
        self.root(tensor)
        return tensor

    def _tie(self, one: TensorName, other: TensorName) -> None:
        self._parent[self.root(one)] = self.root(other)
