"""Choices between a size and what stands for none, of which the size alone can come."""

from dataclasses import dataclass, field

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.rewrites.sources import with_sources

__all__ = ["drop_guards"]

_MOVING = frozenset({"Gather", "Identity", "Reshape", "Slice", "Squeeze", "Unsqueeze"})
"""Of which the numbers of the first input alone are written."""


def drop_guards(model: Model) -> Model:
    """``Where(size == -1, ones, size)`` is the size, as no size is negative.

    PyTorch's exporter writes that for each ``expand``, where -1 stands for the size that there is. Shapes are inferred
    through none of these nodes, so that lengths which are not known hide a batch that is.
    """
    graph = graph_of(model)
    counts = _Counts(graph)
    sources: dict[TensorName, TensorName] = {}
    for node in graph.nodes:
        chosen = counts.chosen(node) if node.op_type == "Where" else None
        if chosen is not None and node.outputs[0] not in graph.pinned:
            sources[node.outputs[0]] = chosen
    return with_sources(model, sources)


@dataclass(slots=True)
class _Counts:
    """Tensors of integers, none of which is negative.

    Attributes:
        graph: Of the model.
        found: By name, those that nodes write.
    """

    graph: Graph
    found: set[TensorName] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            read = node.inputs[:1] if node.op_type in _MOVING else node.inputs
            is_made = node.op_type in _MOVING or node.op_type == "Concat"
            if node.op_type in ("Shape", "Size") or (is_made and all(self._is_count(name) for name in read)):
                self.found.update(name for name in node.outputs if name)

    def chosen(self, where: Node) -> TensorName | None:
        """What a choice always gives, in the shape that it gives it in; None where that is not known."""
        condition, _, other = where.inputs
        shapes = {self.graph.shape(name) for name in (other, where.outputs[0])}
        is_same = len(shapes) == 1 and None not in shapes
        return other if is_same and self._is_never(self.graph.producer.get(condition)) else None

    def _is_never(self, equal: Node | None) -> bool:
        """Whether a count is compared with negative numbers."""
        if equal is None or equal.op_type != "Equal":
            return False
        return any(self._is_count(a) and self._is_negative(b) for a, b in (equal.inputs, equal.inputs[::-1]))

    def _is_count(self, tensor: TensorName) -> bool:
        is_known = self.graph.is_constant(tensor) and self.graph.dtype(tensor) in ("int32", "int64")
        return tensor in self.found or (is_known and bool((self.graph.constant(tensor) >= 0).all()))

    def _is_negative(self, tensor: TensorName) -> bool:
        return self.graph.is_constant(tensor) and bool((self.graph.constant(tensor) < 0).all())
