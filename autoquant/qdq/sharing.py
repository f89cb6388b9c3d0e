"""Tensors that a Concat joins, quantized on the scale of what it writes."""

from collections import defaultdict
from collections.abc import Callable, Sequence
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
        tensors: dict[QuantKey, list[TensorName]] = defaultdict(list)
        for tensor, key in plan.produced.items():
            tensors[key].append(tensor)
        for node in reversed(self.graph.nodes):
            if node.op_type != "Concat" or node.index not in plan.integer or node.outputs[0] not in plan.produced:
                continue
            key = plan.produced[node.outputs[0]]
            for own in dict.fromkeys(plan.produced[name] for name in node.inputs if name in plan.produced):
                if own != key and own.format == key.format and self._may_take(plan, own, key, tensors[own], node):
                    plan.produced.update(dict.fromkeys(tensors[own], key))
                    tensors[key] += tensors.pop(own)

    def _may_take(self, plan: Plan, own: QuantKey, key: QuantKey, tensors: Sequence[TensorName], concat: Node) -> bool:
        """Whether all tensors of a key can have that of the Concat."""
        last = self.graph.producer[own.root]
        first = plan.absorbed.get(last.index, last.index)
        clips = [self.graph.nodes[clip] for clip, absorbing in plan.absorbed.items() if absorbing == first]
        if self.graph.nodes[first].op_type in _OF_THEIR_OWN or not all(self.is_redundant(c, key) for c in clips):
            return False
        others = [
            reader
            for tensor in tensors
            for reader in self.graph.consumers.get(tensor, ())
            if reader is not concat and not (kind_of(reader) is Kind.SAME_RANGE and reader.index in plan.integer)
        ]
        if not others and self.graph.pinned.isdisjoint(tensors):
            return True
        ratio = float(self.params(key).scale / self.params(own).scale)
        return 1 <= ratio <= _COARSEST and all(reader.op_type not in _OF_THEIR_OWN for reader in others)
