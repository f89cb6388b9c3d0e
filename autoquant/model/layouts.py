"""Where the channels of each tensor are once some have zeros behind them, up to a multiple of a number."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, weight_of

__all__ = ["AXIS", "SIZES", "Channels", "Follower", "Layout"]

AXIS = 1
"""Of channels."""
_FUNCTIONS = frozenset(
    {
        *("Abs", "Clip", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Neg", "Relu"),
        *("Selu", "Sigmoid", "Softplus", "Softsign", "Tanh", "com.microsoft:QuickGelu"),
        *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
    }
)
"""Operators that make of each channel one channel, finite for zeros."""
_BINARY = ("Add", "Mul", "PRelu", "Sub")
_MOVING = ("Concat", "Slice", "Split")
_AXES = 2
"""The input of a Slice that names axes, counted from its starts."""
_SCALES, SIZES = 2, 3
"""The inputs of a Resize that name factors, or the sizes of its output."""
_SPLIT_HAS_INPUTS = 13
"""The opset from which on its sizes are no attribute."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Channels with others, of zeros, among and behind them.

    Attributes:
        places: Of the channels, ascending.
        size: How many there are with the others.
    """

    places: tuple[int, ...]
    size: int

    @property
    def is_filled(self) -> bool:
        """Whether there are others."""
        return len(self.places) < self.size

    @classmethod
    def of(cls, n_channels: int, multiple: int = 1) -> "Layout":
        """Channels with as many behind them as a multiple needs."""
        return cls(tuple(range(n_channels)), math.ceil(n_channels / multiple) * multiple)

    @classmethod
    def joined(cls, parts: Iterable["Layout"]) -> "Layout":
        """One behind the other."""
        places: list[int] = []
        size = 0
        for part in parts:
            places += [size + place for place in part.places]
            size += part.size
        return cls(tuple(places), size)

    def part(self, start: int, stop: int) -> "Layout":
        """Of the channels from ``start`` to before ``stop``, with those that follow them."""
        low, high = self.edge(start), self.edge(stop)
        return Layout(tuple(place - low for place in self.places[start:stop]), high - low)

    def edge(self, channel: int) -> int:
        """Where a part begins that begins with a channel, or ends before it."""
        if not channel:
            return 0
        return self.size if channel == len(self.places) else self.places[channel]


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
    """What the channels of one graph's tensors have to do with each other.

    Attributes:
        graph: With shapes.
        followers: Constants by channel, those that a Concat joins apart.
        depthwise: Convs that have a group for each channel.
        moving: What joins tensors, or takes some of their channels.
        resized: What names the sizes of its output, those of the channels among them.
    """

    graph: Graph
    followers: list[Follower] = field(default_factory=list)
    depthwise: list[Node] = field(default_factory=list)
    moving: list[Node] = field(default_factory=list)
    resized: list[Node] = field(default_factory=list)
    _parent: dict[TensorName, TensorName] = field(default_factory=dict)
    _fixed: set[TensorName] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._fixed |= {*self.graph.inputs, *self.graph.pinned}
        for node in self.graph.nodes:
            if not self._is_read(node):
                self._fixed |= {name for name in (*node.inputs, *node.outputs) if name}
        self._fixed |= set(filter(self.graph.is_constant, self._parent))
        self._fixed = {self._root(name) for name in self._fixed}

    def layouts(self, multiple: int, *, is_tight: bool = False) -> Mapping[TensorName, Layout]:
        """Of all tensors that have other channels than before, if as many as may be are filled up.

        Args:
            multiple: Of channels.
            is_tight: Whether what is joined shall need no more multiples than before.
        """
        moved = {self._root(name) for node in self.moving for name in node.outputs}
        sizes = {self._root(name): size for name in list(self._parent) if (size := self.size(name)) is not None}
        wanted = {
            root
            for root, size in sizes.items()
            if root not in self._fixed | moved and size % multiple and size >= multiple / 4
        }
        while wanted:
            known = self._propagated(wanted, multiple)
            wrong = {
                source
                for root, layout in self._derived(known, multiple)
                if known[root] != layout or not self._may_be(root, layout, multiple, is_tight=is_tight)
                for source in self._sources(root, wanted)
            }
            if not wrong:
                roots = {name: self._root(name) for name in list(self._parent)}
                return {name: known[root] for name, root in roots.items() if root in known and known[root].is_filled}
            wanted -= wrong
        return {}

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

    def parts(self, node: Node, known: Mapping[TensorName, Layout], multiple: int) -> list[Layout]:
        """Of what a Concat joins; its constants are filled up where anything else is."""
        own = [None if self.graph.is_constant(name) else self._layout(name, known) for name in node.inputs]
        is_filled = any(layout is not None and layout.is_filled for layout in own)
        return [
            layout or Layout.of(self.size(name) or 0, multiple if is_filled else 1)
            for name, layout in zip(node.inputs, own, strict=True)
        ]

    # -- reading nodes

    def _is_read(self, node: Node) -> bool:
        """Whether it is known what a node does to channels, which is noted then."""
        if node.op_type == "Conv":
            return self._is_conv(node)
        if node.op_type in _FUNCTIONS or node.op_type == "Resize":
            return self._is_function(node)
        if node.op_type in _BINARY:
            return self._is_binary(node)
        if node.op_type in _MOVING and self._is_moving(node):
            self.moving.append(node)
            for name in (*node.outputs, *(name for name in node.inputs if not self.graph.is_constant(name))):
                self._root(name)
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
            scales = [self.graph.constant(name) for name in node.inputs[_SCALES : _SCALES + 1] if name]
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
                self._fixed |= set() if shape[AXIS] == size else {name}
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

    # -- solving

    def _propagated(self, wanted: set[TensorName], multiple: int) -> dict[TensorName, Layout]:
        """Layouts by root; where two that are derived differ, one of them."""
        known = {root: Layout.of(self._n_channels(root), multiple) for root in wanted}
        for _ in self.moving:
            before = dict(known)
            known.update(self._derived(known, multiple))
            if known == before:
                break
        return known

    def _derived(self, known: Mapping[TensorName, Layout], multiple: int) -> Iterator[tuple[TensorName, Layout]]:
        """Of what is joined or taken out, by root."""
        for node in self.moving:
            if node.op_type == "Concat":
                yield self._root(node.outputs[0]), Layout.joined(self.parts(node, known, multiple))
                continue
            layout = self._layout(node.inputs[0], known)
            for name, (start, stop) in zip(node.outputs, self.bounds(node), strict=True):
                yield self._root(name), layout.part(start, stop)

    def _may_be(self, root: TensorName, layout: Layout, multiple: int, *, is_tight: bool) -> bool:
        if layout.is_filled and root in self._fixed:
            return False
        return not is_tight or layout.size <= Layout.of(len(layout.places), multiple).size

    def _sources(self, root: TensorName, wanted: set[TensorName]) -> set[TensorName]:
        """What is filled up that a layout is derived from."""
        found: set[TensorName] = set()
        seen, left = set[TensorName](), [root]
        while left:
            root = left.pop()
            if root in seen:
                continue
            seen.add(root)
            found |= {root} & wanted
            for node in self.moving:
                if any(self._root(name) == root for name in node.outputs):
                    left += [self._root(name) for name in node.inputs if not self.graph.is_constant(name)]
        return found

    def _layout(self, tensor: TensorName, known: Mapping[TensorName, Layout]) -> Layout:
        root = self._root(tensor)
        return known.get(root) or Layout.of(self._n_channels(tensor))

    def _n_channels(self, tensor: TensorName) -> int:
        size = self.size(tensor)
        assert size is not None, tensor
        return size

    def _noted(self, tensor: TensorName) -> TensorName:
        """The same tensor, which is one of those that have channels from here on."""
        self._root(tensor)
        return tensor

    def _tie(self, one: TensorName, other: TensorName) -> None:
        self._parent[self._root(one)] = self._root(other)

    def _root(self, tensor: TensorName) -> TensorName:
        self._parent.setdefault(tensor, tensor)
        while self._parent[tensor] != tensor:
            self._parent[tensor] = self._parent[self._parent[tensor]]
            tensor = self._parent[tensor]
        return tensor
