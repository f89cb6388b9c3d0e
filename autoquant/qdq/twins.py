"""Schemes that quantize a region alike, or leave it float: as one of them is known, so is the other."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import FLOAT, Scheme
from autoquant.domain.space import SearchSpace
from autoquant.model.graph import Node
from autoquant.model.ops import MOVING_KINDS, Kind, activations, kind_of
from autoquant.qdq.plan import QuantKey
from autoquant.qdq.planner import Planner, is_clipped

__all__ = ["Twins", "find_twins"]

Twins = Mapping[RegionId, Mapping[str, str]]
"""By region, schemes that write the same of it as another one of its choices, with the name of that: maybe float."""


def find_twins(planner: Planner, regions: Sequence[Region], space: SearchSpace, *, has_ranges: bool) -> Twins:
    """Schemes that differ in nothing that a region has, or leave it float, in whatever assignment of the others.

    Only linear operators may be there where a scheme quantizes these alone, no weights where it is in their format that
    two differ, and two ways to choose ranges may choose the same. The last is looked at where all activations have one
    type: what is converted to another one takes its range from where the values come from, which others decide.

    Args:
        planner: Says what is quantized.
        regions: The partition.
        space: Which schemes each may take.
        has_ranges: Whether the planner can choose them.
    """
    dtypes = {scheme.activation.dtype for scheme in space.schemes.values() if not scheme.is_dynamic}
    told = _numbers(planner) if has_ranges and len(dtypes) == 1 else _way
    home = {node: region.id for region in regions for node in region.nodes}
    written = _Written(planner, home, told)
    found: dict[RegionId, dict[str, str]] = {}
    for region in regions:
        inside = set(region.nodes)
        nodes = [node for node in planner.graph.nodes if node.name in inside]
        firsts: dict[Hashable, str] = {None: FLOAT}
        for name in space.choices[region.id]:
            if name != FLOAT:
                first = firsts.setdefault(written.under(space.schemes[name], nodes), name)
                if first != name:
                    found.setdefault(region.id, {})[name] = first
    return found


def _numbers(planner: Planner) -> Callable[[QuantKey], Hashable]:
    """Two keys are written alike where scale and zero point are the same."""

    def told(key: QuantKey) -> Hashable:
        params = planner.params(key)
        return float(params.scale), int(params.zero_point)

    return told


def _way(key: QuantKey) -> Hashable:
    """They are where ranges are chosen in the same way."""
    return key.ranges


@dataclass(frozen=True, slots=True)
class _Written:
    """What schemes write of a region."""

    planner: Planner
    home: Mapping[NodeName, RegionId]
    told: Callable[[QuantKey], Hashable]

    def under(self, scheme: Scheme, nodes: Sequence[Node]) -> Hashable:
        """Equal for schemes that write the same of these nodes; None where one writes them as floats."""
        taken = [node for node in nodes if self.planner.takes(node, scheme)]
        if not taken:
            return None
        has_constants = any(self.planner.graph.is_constant(name) for node in taken for name in node.inputs)
        of_constants = (scheme.weight, scheme.bias, scheme.rounding) if has_constants else ()
        keys = () if scheme.is_dynamic else self._keys(scheme, taken)
        return (
            tuple(node.index for node in taken),
            (scheme.is_dynamic, scheme.activation, of_constants),
            tuple(map(self.told, keys)),
        )

    def _keys(self, scheme: Scheme, nodes: Sequence[Node]) -> Iterator[QuantKey]:
        graph = self.planner.graph
        tensors = dict.fromkeys(name for node in nodes for name in self._own(node))
        for name in tensors:
            if not graph.is_constant(name) and not is_clipped(name, graph, self.home):
                yield QuantKey(name, scheme.activation, scheme.ranges)

    def _own(self, node: Node) -> Iterator[TensorName]:
        """Activations whose ranges a node chooses: what moves values has those of others."""
        kind = kind_of(node)
        if kind is not Kind.SAME_RANGE:
            yield node.outputs[0]
        if kind not in MOVING_KINDS:
            for name in activations(node, self.planner.graph):
                yield from self._behind(name)

    def _behind(self, tensor: TensorName) -> Iterator[TensorName]:
        """A tensor and those whose values it has through what moves them."""
        graph = self.planner.graph
        yield tensor
        producer = graph.producer.get(tensor)
        while producer is not None and kind_of(producer) is Kind.SAME_RANGE and self.planner.can_be_integer(producer):
            yield producer.inputs[0]
            producer = graph.producer.get(producer.inputs[0])
