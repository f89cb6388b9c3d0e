"""What was asked for against what onnxruntime runs."""

from collections.abc import Sequence

from autoquant.domain.region import Assignment, NodeName, Region, RegionId
from autoquant.domain.scheme import FLOAT
from autoquant.model.optimized import OptimizedGraph

__all__ = ["REQUANTIZED", "effective_assignment"]

REQUANTIZED = "int8 by onnxruntime"
"""What a float region is called whose operators onnxruntime quantized unasked."""


def effective_assignment(
    assignment: Assignment,
    regions: Sequence[Region],
    optimized: OptimizedGraph,
    asked_integer: frozenset[NodeName],
    asked_float: frozenset[NodeName],
) -> dict[RegionId, str]:
    """The scheme that each region really runs.

    Args:
        assignment: What was asked.
        regions: The partition.
        optimized: The graph that onnxruntime runs.
        asked_integer: Nodes that were to run as integer kernels.
        asked_float: Linear nodes that were to run in float.

    Returns:
        For each region its scheme where at least one of its nodes runs as asked, ``float`` where none does, and
        ``REQUANTIZED`` for a float region that runs on integers. What was asked where it is unknown what runs.
    """
    if not optimized.is_known:
        return {region.id: assignment.get(region.id, FLOAT) for region in regions}
    found: dict[RegionId, str] = {}
    for region in regions:
        asked = assignment.get(region.id, FLOAT)
        nodes = frozenset(region.nodes)
        if nodes & asked_float & optimized.integer_nodes:
            found[region.id] = REQUANTIZED
        else:
            found[region.id] = asked if nodes & asked_integer & optimized.integer_nodes else FLOAT
    return found
