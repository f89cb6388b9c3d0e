"""HardSigmoids that can have the integers of what they read, clipped: decision 0040."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import DType, TensorFormat
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import MOVING_KINDS, hard_sigmoid_factors, kind_of
from autoquant.model.opsets import CLIP_TAKES_INTEGERS

__all__ = ["ClippingHardSigmoid", "clipping_hard_sigmoids"]

_WIDEST = 1.25
"""Steps of what it reads may be coarser by this factor than they had to be."""
_PARTICULAR = frozenset({"GlobalAveragePool", "Softmax"})
"""Operators whose kernels do not work with every scale."""


@dataclass(frozen=True, slots=True)
class ClippingHardSigmoid:
    """A HardSigmoid ``Clip(a * (x + b), 0, 1)`` where no other values of ``x`` below ``-b`` are needed than ``-b``.

    Attributes:
        beta: ``a * b``, the output where ``x`` is 0.
        summand: ``b``.
        is_alone: Whether nothing else reads ``x``.
    """

    beta: float
    summand: float
    is_alone: bool

    def range_read(self, found: CalibrationRange, tensor_format: TensorFormat) -> CalibrationRange | None:
        """Of ``x``, such that the integer 0 stands for ``-b``, and some integer for where the output becomes 1.

        Args:
            found: What ``x`` covers otherwise.
            tensor_format: Of its integers.

        Returns:
            None where there is no such range whose steps are nearly as fine.
        """
        if tensor_format.dtype is not DType.U8 or tensor_format.symmetric or tensor_format.power_of_two:
            return None
        low, high = max(min(found.low, 0.0), -self.summand), max(found.high, 0.0)
        if self.is_alone:
            high = max(min(high, self.summand * (1 / self.beta - 1)), 0.0)
        n_steps = DType.U8.highest
        n_below = math.floor(n_steps * self.summand / (self.summand + high))
        width = self.summand * n_steps / max(n_below, 1)
        if not n_below or width > _WIDEST * (high - low) or not self._has_integer_of_one(n_below):
            return None
        return CalibrationRange(-self.summand, width - self.summand)

    def highest(self, zero_point: int) -> int:
        """The integer at which the output is 1, or the last one."""
        return min(round(zero_point / self.beta), DType.U8.highest)

    def _has_integer_of_one(self, zero_point: int) -> bool:
        highest = zero_point / self.beta
        return highest >= DType.U8.highest or math.isclose(highest, round(highest), abs_tol=1e-3)


def clipping_hard_sigmoids(graph: Graph, nodes: Iterable[Node]) -> Mapping[TensorName, ClippingHardSigmoid]:
    """By what they read, those among some nodes.

    In a hard swish ``x * HardSigmoid(x)`` values below ``-b`` make no difference either.
    """
    if opset_of(graph.model) < CLIP_TAKES_INTEGERS:
        return {}
    found = {node.inputs[0]: _clipping(node, graph) for node in nodes if node.op_type == "HardSigmoid"}
    return {tensor: each for tensor, each in found.items() if each is not None}


def _clipping(node: Node, graph: Graph) -> ClippingHardSigmoid | None:
    tensor, target, factors = node.inputs[0], node.outputs[0], hard_sigmoid_factors(node)
    others = [reader for reader in graph.consumers[tensor] if reader is not node]
    producer = graph.producer.get(tensor)
    if factors is None or tensor in graph.pinned or (producer is not None and _ties_ranges(producer)):
        return None
    if any(reader.op_type != "Mul" or {*reader.inputs} != {tensor, target} for reader in others):
        return None
    if any(_ties_ranges(reader) for reader in graph.consumers.get(target, ())):
        return None
    alpha, summand = factors
    return ClippingHardSigmoid(alpha * summand, summand, is_alone=not others)


def _ties_ranges(node: Node) -> bool:
    """Whether a node does not read and write any two ranges that there may be."""
    return kind_of(node) in MOVING_KINDS or node.op_type in _PARTICULAR
