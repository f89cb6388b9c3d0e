"""Groups of convolutions joined to larger ones, with zeros between them, for kernels on integers.

onnxruntime multiplies matrices group by group, and slowly where these are narrow. Zeros add nothing to a sum of
integers, so that the outputs stay the same.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.domain.scheme import Scheme
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import weight_of
from autoquant.qdq.weights import QuantizedWeight

__all__ = ["JoinedGroups"]

_BEST_INPUTS = 36
"""Of a group: half as many take about as long as twice as many (decision 0044)."""


@dataclass(slots=True)
class JoinedGroups:
    """Joins groups of the Convs of one graph, and remembers their weights."""

    graph: Graph
    _known: dict[tuple[TensorName, str, int], QuantizedWeight] = field(default_factory=dict)

    @property
    def has_narrow(self) -> bool:
        """Whether there is a Conv whose groups could be joined."""
        return any(_n_joined(node, self.graph) > 1 for node in self.graph.nodes)

    def n_groups(self, node: Node, scheme: Scheme) -> int | None:
        """How many groups a node has where some are joined under a scheme; None where it stays as it is.

        Args:
            node: That runs on integers.
            scheme: Of 16 bits there is no integer kernel for Conv.
        """
        n_joined = _n_joined(node, self.graph)
        is_joined = n_joined > 1 and scheme.activation.dtype.bits == 8
        return int(node.attributes["group"]) // n_joined if is_joined else None

    def weight(self, name: TensorName, weight: QuantizedWeight, n_before: int, n_groups: int) -> QuantizedWeight:
        """With the integers that stand for zero between groups.

        Args:
            name: Of the constant.
            weight: Shape (M, C / ``n_before``, k, ...).
            n_before: Groups.
            n_groups: That are left.

        Returns:
            Shape (M, C / ``n_groups``, k, ...).
        """
        n_joined = n_before // n_groups
        key = (name, weight.label, n_joined)
        if key not in self._known:
            values = _spread(weight.values, weight.params.zero_point, n_groups, n_joined)
            self._known[key] = replace(weight, values=values, label=f"{weight.label}:joined-{n_joined}")
        return self._known[key]


def _n_joined(node: Node, graph: Graph) -> int:
    """How many groups make the best one; 1 where they hold one channel each, so that kernels of their own run.

    Odd numbers of inputs stay: with zeros between them kernels without VNNI would add other pairs of products in 16
    bits than those that weights are scaled for. A single one is beside zeros.
    """
    weight = weight_of(node, graph) if node.op_type == "Conv" else None
    if weight is None:
        return 1
    n_groups, shape = int(node.attributes.get("group", 1)), graph.constant(weight).shape
    if 0 in shape or n_groups == shape[0] or (shape[1] % 2 and shape[1] > 1):
        return 1
    divisors = (n for n in range(1, n_groups + 1) if n_groups % n == 0)
    return min(divisors, key=lambda n: _BEST_INPUTS / (n * shape[1]) + n * shape[1] / _BEST_INPUTS)


def _spread(
    values: npt.NDArray[np.generic], zero_point: npt.NDArray[np.generic], n_groups: int, n_joined: int
) -> npt.NDArray[np.generic]:
    n_outputs, n_inputs, *kernel = values.shape
    zeros = zero_point.reshape(-1, *[1] * (values.ndim - 1))
    found = np.broadcast_to(zeros, (n_outputs, n_joined * n_inputs, *kernel)).copy()
    own = values.reshape(n_groups, n_joined, -1, n_inputs, *kernel)
    places = found.reshape(n_groups, n_joined, -1, n_joined, n_inputs, *kernel)
    for each in range(n_joined):
        places[:, each, :, each] = own[:, each]
    return found
