"""From an assignment to a candidate."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import Assignment, NodeName, Region, TensorName
from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.domain.scheme import FLOAT, Rounding, Scheme
from autoquant.errors import UsageError
from autoquant.model.around import Around
from autoquant.model.excerpts import Excerpt
from autoquant.model.graph import Graph
from autoquant.qdq.assemble import Assembler
from autoquant.qdq.attentions import attention_excerpts
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.gelus import gelu_excerpts
from autoquant.qdq.plan import Plan
from autoquant.qdq.planner import Planner
from autoquant.qdq.ports import Means, Ranges, Rounder
from autoquant.qdq.residuals import residual_excerpts
from autoquant.qdq.swishes import swish_excerpts

__all__ = ["Builder"]

Floats = npt.NDArray[np.float64]


class Builder:
    """Builds candidates of one model; weights, parameters and serialized pieces are shared by all of them.

    Args:
        graph: The prepared float model.
        regions: Its partition.
        schemes: Every scheme that an assignment may name, by name; ``float`` needs no entry.
        op_types: Operators that have an integer kernel on the target.
        ranges: Gives calibration ranges.
        means: Gives means of channels; without them the schemes' bias correction changes nothing.
        rounder: Rounds the weights of schemes that don't round to the nearest integer.
        unbounded: Activations that no range covers: what reads or writes them stays float under static schemes.

    Attributes:
        around: What files have around candidates; None where these are the whole of them.
    """

    def __init__(
        self,
        graph: Graph,
        regions: Sequence[Region],
        schemes: Mapping[str, Scheme],
        op_types: frozenset[str],
        ranges: Ranges,
        means: Means = lambda *_: None,
        rounder: Rounder | None = None,
        unbounded: Collection[TensorName] = frozenset(),
    ) -> None:
        self._has_rounder = rounder is not None
        self._regions = {region.id: region for region in regions}
        self._schemes = dict(schemes)
        self.around: Around | None = None
        self.planner = Planner(graph, op_types, ranges, unbounded)
        self._assembler = Assembler(graph, self.planner, means, rounder, unbounded)

    @property
    def possible(self) -> Rewrites:
        """Rewrites that change something in this model."""
        has = {
            Rewrite.PLAIN_SUMS: bool(self._assembler.residual_adds),
            Rewrite.JOINED_GROUPS: self._assembler.groups.has_narrow,
            Rewrite.TILED_CONVS: bool(self._assembler.tiled.indices),
            Rewrite.KEPT_BLOCKS: self._assembler.blocks.has_parted,
            Rewrite.TANH_GELUS: bool(self._assembler.gelus),
            Rewrite.FUSED_ATTENTIONS: bool(self._assembler.attentions),
        }
        is_behind_integers = any(not scheme.is_dynamic for scheme in self._schemes.values())
        fused = {swish.rewrite for swish in self._assembler.swishes.values()} if is_behind_integers else set()
        return frozenset(fused.union(rewrite for rewrite, is_possible in has.items() if is_possible))

    def excerpts(self, rewrite: Rewrite) -> tuple[Excerpt, Excerpt] | None:
        """Nodes by which a rewrite can be judged alone, as they are and rewritten; None where it takes candidates."""
        own = self._assembler
        if rewrite is Rewrite.PLAIN_SUMS and own.residual_adds:
            return residual_excerpts(own.graph, own.residual_adds)
        if rewrite is Rewrite.TANH_GELUS and own.gelus:
            return gelu_excerpts(own.graph, own.gelus)
        if rewrite is Rewrite.FUSED_ATTENTIONS:
            return attention_excerpts(own.graph, own.attentions)
        return swish_excerpts(own.graph, own.swishes, rewrite)

    @property
    def rewrites(self) -> Rewrites:
        """How candidates are written."""
        return self._assembler.rewrites

    def write(self, rewrites: Rewrites) -> None:
        """Write candidates so from now on."""
        self._assembler.rewrites = rewrites

    def plan(self, assignment: Assignment) -> Plan:
        """What an assignment decides for every node.

        Raises:
            KeyError: The assignment names an unknown region or scheme.
        """
        scheme_of: dict[NodeName, Scheme] = {}
        for region, name in assignment.items():
            nodes = self._regions[region].nodes
            if name != FLOAT:
                scheme_of.update(dict.fromkeys(nodes, self._schemes[name]))
        return self.planner.plan(scheme_of)

    def expected_shifts(self, assignment: Assignment) -> Mapping[NodeName, Floats]:
        """What ``bias = "mean"`` would take off the outputs of the operators that it can correct.

        Raises:
            KeyError: The assignment names an unknown region or scheme.
        """
        return self._assembler.expected_shifts(self.plan(assignment))

    def build(self, assignment: Assignment, shifts: Mapping[NodeName, Floats] | None = None) -> Candidate:
        """The candidate of an assignment; nothing is written to disk.

        Args:
            assignment: What is asked for.
            shifts: Taken off the outputs of linear operators by their biases, shape (C,), whatever the schemes say.

        Raises:
            KeyError: The assignment names an unknown region or scheme.
            UsageError: One of its schemes doesn't round to the nearest integer, and there is no rounder.
        """
        plan = self.plan(assignment)
        taken = (self._schemes[name] for name in assignment.values() if name != FLOAT and not self._has_rounder)
        for scheme in taken:
            if scheme.rounding is not Rounding.NEAREST:
                raise UsageError(
                    f"scheme '{scheme.name}' rounds weights by '{scheme.rounding}', for which there is no rounder here:"
                    f" give one to builder_of in Python, or write rounding = '{Rounding.NEAREST}'"
                )
        return replace(self._assembler.assemble(plan, shifts), around=self.around)
