"""Float16 that the CPU provider computes in float32, between Casts of its own."""

from collections.abc import Iterator

from autoquant.domain.region import NodeName
from autoquant.inspection.kernels import Runs, runs_as
from autoquant.inspection.scopes import Scope
from autoquant.model.graph import Node

__all__ = ["n_added_casts", "nodes_in_float32"]

_FLOAT, _FLOAT16 = 1, 10
"""What Cast calls them."""


def n_added_casts(scope: Scope) -> int:
    """Casts between float16 and float32 that the file lacks, around what has no float16 kernel."""
    return sum(_is_added(kernel, scope) for kernel in scope.optimized.nodes)


def nodes_in_float32(scope: Scope) -> Iterator[NodeName]:
    """Nodes of the file that give float16 while their kernels neither read nor give any."""
    for node in scope.given.nodes:
        kernel = scope.matching.kernel.get(node.index)
        is_half = any(scope.given.dtype(tensor) == "float16" for tensor in node.outputs)
        if (
            kernel is None
            or not is_half
            or node.op_type == "Cast"
            or runs_as(kernel, scope.optimized) is not Runs.FLOAT
        ):
            continue
        if all(scope.optimized.dtype(tensor) != "float16" for tensor in (*kernel.inputs, *kernel.outputs)):
            yield scope.place(node.name)


def _is_added(kernel: Node, scope: Scope) -> bool:
    leader = scope.matching.leader.get(kernel.index)
    if kernel.op_type != "Cast" or (leader is not None and leader.op_type == "Cast"):
        return False
    source, target = scope.optimized.dtype(kernel.inputs[0]), kernel.attributes["to"]
    return target == _FLOAT16 or (target == _FLOAT and source == "float16")
