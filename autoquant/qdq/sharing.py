"""Tensors that a Concat joins, quantized on the scale of what it writes."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, kind_of
from autoquant.qdq.params import QuantParams
from autoquant.qdq.plan import Plan, QuantKey

__all__ = ["Sharing"]

_COARSEST = 1.15
"""Steps of the Concat for one of its input's own, where others read that too."""
_OF_THEIR_OWN = frozenset({"GlobalAveragePool", "HardSigmoid", "Softmax"})
"""Operators whose kernels do not write on every scale, or which are written for one of their own."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Lets the producers of what a Concat joins write on its scale: QLinearConcat copies integers then.

    What nobody else reads is rounded once instead of twice. What others read too becomes hardly coarser.

    Attributes:
        graph: Of the plans.
        params: Scale and zero point of a key.
        is_redundant: Whether clipping to the integers of a key does what a Relu or Clip does.
    """

    graph: Graph
    params: Callable[[QuantKey], QuantParams]
    is_redundant: Callable[[Node, QuantKey], bool]

    def share(self, plan: Plan) -> None:
        """Change the scales of a plan that knows what runs on integers."""
        given, tensors = dict(plan.produced), defaultdict[QuantKey, list[TensorName]](list)
        for tensor, key in given.items():
            tensors[key].append(tensor)
        for node in reversed(self.graph.nodes):
            if node.op_type != "Concat" or node.index not in plan.integer or node.outputs[0] not in plan.produced:
                continue
            key = plan.produced[node.outputs[0]]
            for own in dict.fromkeys(plan.produced[name] for name in node.inputs if name in plan.produced):
                own_keys = {tensor: given[tensor] for tensor in tensors[own]}
                if own != key and own.format == key.format and self._may_take(plan, key, own_keys, node):
                    plan.produced.update(dict.fromkeys(tensors[own], key))
                    tensors[key] += tensors.pop(own)

    def _may_take(self, plan: Plan, key: QuantKey, given: Mapping[TensorName, QuantKey], concat: Node) -> bool:
        """Whether tensors, of the keys that they had before anything was shared, can have that of the Concat."""
        makers = [self.graph.producer[tensor].index for tensor in given]
        firsts = {plan.absorbed.get(index, index) for index in makers}
        clips = [self.graph.nodes[clip] for clip, first in plan.absorbed.items() if first in firsts]
        if any(self.graph.nodes[first].op_type in _OF_THEIR_OWN for first in firsts):
            return False
        if not self.graph.pinned.isdisjoint(given) or not all(self.is_redundant(clip, key) for clip in clips):
            return False
        others = [
            reader
            for tensor in given
            for reader in self.graph.consumers.get(tensor, ())
            if reader is not concat and not _passes_on(plan, reader)
        ]
        are_free = all(reader.op_type not in _OF_THEIR_OWN for reader in others)
        return not others or (are_free and all(self._is_hardly_coarser(key, own) for own in {*given.values()}))

    def _is_hardly_coarser(self, key: QuantKey, own: QuantKey) -> bool:
        """Whether a key covers what another one does, but for a step, in steps that are nearly as fine."""
        (low, high), (own_low, own_high) = self._covered(key), self._covered(own)
        step, own_step = float(self.params(key).scale), float(self.params(own).scale)
        return step <= _COARSEST * own_step and low <= own_low + step and high >= own_high - step

    def _covered(self, key: QuantKey) -> tuple[float, float]:
        """The lowest and the highest number that integers of a key stand for."""
        found = self.params(key)
        low, high = (int(integer) - int(found.zero_point) for integer in (found.dtype.lowest, found.dtype.highest))
        return low * float(found.scale), high * float(found.scale)


def _passes_on(plan: Plan, reader: Node) -> bool:
    """Whether it writes integers that it reads; means of numbers that are clipped are others."""
    return reader.index in plan.integer and kind_of(reader) is Kind.SAME_RANGE and reader.op_type != "AveragePool"
