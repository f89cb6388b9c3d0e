"""Regions: the parts of a graph that change precision as one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

__all__ = ["N_REGIONS", "Assignment", "NodeName", "Region", "RegionId", "TensorName"]

N_REGIONS = 100
"""At most so many, where nobody says otherwise: most models have fewer kernels (decision 0035)."""

RegionId = NewType("RegionId", str)
NodeName = NewType("NodeName", str)
TensorName = NewType("TensorName", str)

Assignment = Mapping[RegionId, str]
"""Name of a scheme for each region; a region that is not named is float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Nodes that change precision as one.

    Attributes:
        id: Stable over runs on the same model.
        nodes: Quantizable nodes in topological order, never empty.
        inputs: Activations that enter from outside.
        outputs: Activations that are read outside or are graph outputs.
        pattern: Digest of operator types, shapes and edges; equal patterns may share a scheme.
        op_types: Operator type of each node, in the order of ``nodes``.
        work: Estimated share of the arithmetic of all regions, 0 to 1; sizes that are not known count as 1.
        static: Those of ``nodes`` that a scheme with calibrated ranges changes.
        linear: Those of ``static`` that one with ``operators = "linear"`` quantizes.
        dynamic: Those of ``nodes`` that a scheme with ``ranges = "dynamic"`` quantizes.
    """

    id: RegionId
    nodes: tuple[NodeName, ...]
    inputs: tuple[TensorName, ...]
    outputs: tuple[TensorName, ...]
    pattern: str
    op_types: tuple[str, ...]
    work: float
    static: tuple[NodeName, ...] = ()
    linear: tuple[NodeName, ...] = ()
    dynamic: tuple[NodeName, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError(f"region '{self.id}' holds no node")
