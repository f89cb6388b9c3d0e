"""An earlier run's regions and schemes in those of another search."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autoquant.domain.region import NodeName, Region, RegionId
from autoquant.domain.scheme import Scheme

__all__ = ["KnownRegion", "match_regions", "nearest_scheme"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRegion:
    """What an earlier run tells of a region.

    Attributes:
        id: There.
        nodes: In topological order.
        pattern: Digest of operator types, shapes and edges.
    """

    id: RegionId
    nodes: tuple[NodeName, ...]
    pattern: str


def match_regions(earlier: Sequence[KnownRegion], now: Sequence[Region]) -> dict[RegionId, RegionId]:
    """Find each region of now in an earlier run.

    It is the one of the same nodes; else, of those that are nobody's, the next one of the same pattern.

    Args:
        earlier: In topological order.
        now: The same.

    Returns:
        Its id there, for each region that was found.
    """
    id_of = {region.nodes: region.id for region in earlier}
    found = {region.id: id_of[region.nodes] for region in now if region.nodes in id_of}
    taken = set(found.values())
    waiting: defaultdict[str, deque[RegionId]] = defaultdict(deque)
    for known in earlier:
        if known.id not in taken:
            waiting[known.pattern].append(known.id)
    for region in now:
        if region.id not in found and waiting[region.pattern]:
            found[region.id] = waiting[region.pattern].popleft()
    return found


def nearest_scheme(wanted: Scheme, choices: Iterable[Scheme], *, is_linear_alone: bool = False) -> Scheme | None:
    """The one that quantizes the same operators, with ranges from calibration or not, and is most alike.

    Types count first, then granularity, block sizes, symmetry, powers of two, saturation, ranges, bias correction,
    rounding, and the name last.

    Args:
        wanted: What another space has.
        choices: What a region may take.
        is_linear_alone: Whether ``operators`` changes nothing in that region.

    Returns:
        None where no choice quantizes the same operators; the first one of equals.
    """
    alike = [
        scheme
        for scheme in choices
        if scheme.is_dynamic is wanted.is_dynamic and (is_linear_alone or scheme.operators is wanted.operators)
    ]
    return min(alike, key=lambda scheme: _distance(wanted, scheme), default=None)


def _distance(wanted: Scheme, other: Scheme) -> tuple[bool, ...]:
    pairs = [(wanted.activation, other.activation), (wanted.weight, other.weight)]
    return (
        *(a.dtype is not b.dtype for a, b in pairs),
        *(a.granularity is not b.granularity for a, b in pairs),
        *(a.block != b.block for a, b in pairs),
        *(a.symmetric is not b.symmetric for a, b in pairs),
        *(a.power_of_two is not b.power_of_two for a, b in pairs),
        *(a.unsaturated is not b.unsaturated for a, b in pairs),
        wanted.ranges.kind is not other.ranges.kind,
        wanted.ranges != other.ranges,
        wanted.bias is not other.bias,
        wanted.rounding is not other.rounding,
        wanted.name != other.name,
    )
