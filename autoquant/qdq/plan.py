"""What is decided about every node and tensor under an assignment."""

from dataclasses import dataclass, field

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, RangeMethod, Scheme, TensorFormat
from autoquant.model.graph import Node
from autoquant.model.ops import Kind, kind_of

__all__ = ["Plan", "QuantKey"]


@dataclass(frozen=True, slots=True)
class QuantKey:
    """What fixes the scale and zero point of an activation.

    Attributes:
        root: Tensor whose range counts; others share it through operators that only move values.
        format: Stored type and symmetry.
        ranges: How the range is chosen.
        clipped: What a HardSigmoid reads whose integers are those of that, clipped; None for integers of its own.
    """

    root: TensorName
    format: TensorFormat
    ranges: RangeMethod
    clipped: TensorName | None = None


@dataclass(slots=True)
class Plan:
    """Decisions about one assignment.

    Attributes:
        schemes: Scheme of each node that is in a quantized region, by index.
        integer: Nodes that shall run on integers, by index.
        dynamic: Nodes that shall quantize the floats that they read and write floats, by index.
        absorbed: Relu and Clip that the range of their producer makes redundant: index to index of the producer.
        produced: Tensors that are quantized right behind their producer.
        entries: Tensors that are quantized for some readers only: from float, or converted from another type.
    """

    schemes: dict[int, Scheme]
    integer: set[int] = field(default_factory=set)
    dynamic: set[int] = field(default_factory=set)
    absorbed: dict[int, int] = field(default_factory=dict)
    produced: dict[TensorName, QuantKey] = field(default_factory=dict)
    entries: dict[tuple[TensorName, DType], QuantKey] = field(default_factory=dict)

    def key_for(self, node: Node, tensor: TensorName) -> QuantKey | None:
        """The key that a node reads an activation with, None where it reads floats."""
        own = self.produced.get(tensor)
        if node.index not in self.integer or kind_of(node) is Kind.SAME_RANGE:
            return own
        dtype = self.schemes[node.index].activation.dtype
        return own if own and own.format.dtype is dtype else self.entries[tensor, dtype]
