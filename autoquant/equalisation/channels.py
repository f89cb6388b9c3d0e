"""Which channels of a graph can be scaled, and what that asks of its constants."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.equalisation.places import narrowed, of_rank
from autoquant.equalisation.ties import FIXED, Labels, Ties
from autoquant.model.graph import Graph, Node

__all__ = ["Channels", "Rule", "ScaledConstant", "Tracing", "trace"]

_LARGEST = 2.0**100
"""Of a constant that is scaled: what comes out is finite."""


@dataclass(frozen=True, slots=True)
class ScaledConstant:
    """A constant of a node that makes up for scaled channels: multiplied by ``times``, divided by ``over``.

    Attributes:
        node: Index of its reader.
        slot: Which of the reader's inputs.
        times: Channels whose scales multiply it, broadcast against the constant.
        over: Channels whose scales divide it.
    """

    node: int
    slot: int
    times: Labels
    over: Labels


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels are numbered; number 0 stands for all that keep scale 1.

    Attributes:
        labels: Channels of the tensors that hold any but 0.
        constants: What has to change with the scales.
        n: How many there are, channel 0 among them.
    """

    labels: Mapping[TensorName, Labels]
    constants: tuple[ScaledConstant, ...]
    n: int


@dataclass(slots=True)
class Tracing:
    """Channels of the tensors behind the nodes that were traced so far."""

    graph: Graph
    ties: Ties = field(default_factory=Ties)
    labels: dict[TensorName, Labels] = field(default_factory=dict)
    constants: list[ScaledConstant] = field(default_factory=list)

    def of(self, tensor: TensorName) -> Labels:
        """Channels of a tensor; one that was not traced keeps its scale."""
        return self.labels.get(tensor, np.full((1,) * self.graph.rank(tensor), FIXED, np.intp))

    def put(self, tensor: TensorName, labels: Labels) -> None:
        """Say what channels the output of a node has; where they must not be scaled they are fixed."""
        free = tensor in self.graph.float_tensors and tensor not in self.graph.pinned
        if self.graph.sizes(tensor) is None or not free:
            self.ties.fix(labels)
        else:
            self.labels[tensor] = of_rank(labels, self.graph.rank(tensor))

    def is_scalable(self, tensor: TensorName) -> bool:
        """Whether it is a constant that can be scaled."""
        if not self.graph.is_constant(tensor):
            return False
        values = self.graph.constant(tensor)
        return values.dtype == np.float32 and bool((np.abs(values) < _LARGEST).all())

    def scale(self, node: Node, slot: int, *, times: Labels | None = None, over: Labels | None = None) -> None:
        """Note that a constant makes up for scaled channels."""
        fixed = np.full((), FIXED, np.intp)
        self.constants.append(
            ScaledConstant(node.index, slot, fixed if times is None else times, fixed if over is None else over)
        )


Rule = Callable[[Tracing, Node], bool]
"""Puts the channels of a node's outputs and ties those that it mixes; False where the node is not of that kind."""


def trace(graph: Graph, rules: Mapping[str, Rule]) -> Channels:
    """Follow channels from where they arise to where they end.

    Args:
        graph: The prepared model.
        rules: By operator type; what other operators read and write keeps its scale, and whatever meets a tensor of
            which not even the number of dimensions is known, or an activation that holds nothing.
    """
    tracing = Tracing(graph)
    for node in graph.nodes:
        rule = rules.get(node.op_type)
        is_known = all(graph.sizes(name) is not None for name in node.inputs if name)
        activations = [name for name in (*node.inputs, *node.outputs) if not graph.is_constant(name)]
        is_empty = any(0 in (graph.sizes(name) or ()) for name in activations)
        if rule is None or not is_known or is_empty or not rule(tracing, node):
            for name in node.inputs:
                tracing.ties.fix(tracing.of(name))
    return _numbered(tracing)


def _numbered(tracing: Tracing) -> Channels:
    number = tracing.ties.numbers()
    labels = {name: narrowed(number[found]) for name, found in tracing.labels.items()}
    constants = [
        ScaledConstant(found.node, found.slot, number[found.times], number[found.over]) for found in tracing.constants
    ]
    return Channels(
        labels={name: found for name, found in labels.items() if found.any()},
        constants=tuple(found for found in constants if found.times.any() or found.over.any()),
        n=int(number.max()) + 1,
    )
