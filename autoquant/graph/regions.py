"""The partition of a graph into regions that change precision as one.

An operator with a kernel of its own and what that kernel absorbs form a unit; units that touch are merged, the smallest
first and preferably inside one block, until few enough are left. A block ends where a single tensor carries everything.
"""

import hashlib
import heapq
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from autoquant.domain.region import N_REGIONS, NodeName, Region, RegionId, TensorName
from autoquant.errors import SpaceError
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import MOVING_KINDS, VIEWS, Kind, can_be_dynamic, is_linear, is_quantizable, kind_of

__all__ = ["borders", "ends", "find_regions", "linear_alone"]

_MEASURING = frozenset({"Shape", "Size"})
"""Operators of which no value of what they read comes through."""
_ACROSS_BLOCKS = 4.0
_ACROSS_SCOPES = 1.5
_MULTIPLICATIONS_PER_VALUE = 16.0
"""What moving one float costs, in multiplications."""


@dataclass(slots=True)
class _Unit:
    nodes: list[int]
    work: float
    block: int
    scope: tuple[str, ...]
    group: str | None


def find_regions(
    graph: Graph,
    quantizable: Iterable[NodeName],
    *,
    n_regions: int = N_REGIONS,
    groups: Mapping[str, str] | None = None,
) -> tuple[Region, ...]:
    """Partition the quantizable nodes.

    Args:
        graph: The prepared model.
        quantizable: Nodes that some scheme of the space could quantize.
        n_regions: At most so many regions, groups not counted.
        groups: Regular expressions by region name; matching nodes form that region.

    Returns:
        Regions in topological order; ids are stable. Every quantizable node is in exactly one, but for those that only
        move or clip floats on their way to what no scheme changes.

    Raises:
        SpaceError: A group matches no quantizable node, or two match the same one.
    """
    chosen = set(quantizable)
    nodes = [node for node in graph.nodes if node.name in chosen]
    if not nodes:
        return ()
    named = _named(nodes, groups or {})
    static = _static(graph, nodes)
    changed = static | {node.index for node in nodes if can_be_dynamic(node, graph)}
    units = {
        first: unit
        for first, unit in _units(graph, nodes, named).items()
        if unit.group is not None or not changed.isdisjoint(unit.nodes)
    }
    _merge(graph, units, n_regions)
    total = sum(unit.work for unit in units.values()) or 1.0
    ordered = sorted(units.values(), key=lambda unit: min(unit.nodes))
    return tuple(_region(graph, unit, i, total, static) for i, unit in enumerate(ordered))


def ends(graph: Graph, regions: Sequence[Region]) -> frozenset[RegionId]:
    """Regions with products that none comes before, or none behind: the first and the last ones of a network."""
    home = {name: region.id for region in regions for name in region.linear}
    forwards = [(node.name, node.inputs, node.outputs) for node in graph.nodes]
    backwards = [(name, outputs, inputs) for name, inputs, outputs in reversed(forwards)]
    found: set[RegionId] = set()
    for steps in (forwards, backwards):
        passed: set[TensorName] = set()
        for name, read, written in steps:
            is_beyond = not passed.isdisjoint(filter(None, read))
            if name in home and not is_beyond:
                found.add(home[name])
            if name in home or is_beyond:
                passed.update(written)
    return frozenset(found)


def linear_alone(graph: Graph, regions: Sequence[Region]) -> frozenset[RegionId]:
    """Regions in which ``operators = "linear"`` changes nothing: no other operator makes integers of its own."""
    by_name = {node.name: node for node in graph.nodes}

    def is_alone(region: Region) -> bool:
        others = [by_name[name] for name in region.static if name not in region.linear]
        return all(kind_of(node) in MOVING_KINDS for node in others)

    return frozenset(region.id for region in regions if is_alone(region))


def _static(graph: Graph, nodes: Sequence[Node]) -> set[int]:
    """Indices of nodes that integers can reach: kernels that make some, and what moves or clips them behind these."""
    found = set[int]()
    for node in nodes:
        if is_quantizable(node, graph):
            producer = graph.producer.get(node.inputs[0])
            if kind_of(node) not in MOVING_KINDS or (producer is not None and producer.index in found):
                found.add(node.index)
    return found


def _named(nodes: Sequence[Node], groups: Mapping[str, str]) -> dict[int, str]:
    named: dict[int, str] = {}
    for group, expression in groups.items():
        matching = [node.index for node in nodes if re.search(expression, node.name)]
        if not matching:
            raise SpaceError(
                f"group '{group}': no quantizable node matches '{expression}'; see 'autoquant regions MODEL --json'"
            )
        taken = next((index for index in matching if index in named), None)
        if taken is not None:
            name = next(node.name for node in nodes if node.index == taken)
            raise SpaceError(f"groups '{named[taken]}' and '{group}' both match node '{name}'; make them distinct")
        named.update(dict.fromkeys(matching, group))
    return named


def _units(graph: Graph, nodes: Sequence[Node], named: Mapping[int, str]) -> dict[int, _Unit]:
    """Each node joins the unit of its producer where that kernel absorbs it; the key of a unit is its first node."""
    blocks = _blocks(graph)
    home: dict[int, int] = {}
    units: dict[int, _Unit] = {}
    inside = {node.index for node in nodes}
    for node in nodes:
        first = None if node.index in named else _absorbing(graph, node, home, inside)
        if first is not None and units[first].group is not None:
            first = None
        if node.index in named:
            first = next((i for i, unit in units.items() if unit.group == named[node.index]), None)
        if first is None:
            first = node.index
            units[first] = _Unit([], 0.0, blocks[node.index], _scope(node.name), named.get(node.index))
        home[node.index] = first
        units[first].nodes.append(node.index)
        units[first].work += _work(graph, node)
    return _with_movers(graph, units, home)


def _with_movers(graph: Graph, units: dict[int, _Unit], home: dict[int, int]) -> dict[int, _Unit]:
    """Units that only move or clip values join the first unit that reads them: by themselves they decide nothing.

    No quantizable node is before them, or it is in a group; integers that come from there pass through them to what
    takes integers too.
    """
    for first in sorted(units, reverse=True):
        unit = units[first]
        if unit.group is None and all(kind_of(graph.nodes[i]) in MOVING_KINDS for i in unit.nodes):
            read = [name for i in unit.nodes for name in graph.nodes[i].outputs]
            readers = sorted(reader.index for name in read for reader in graph.consumers.get(name, ()))
            others = [home[i] for i in readers if i in home and home[i] != first and units[home[i]].group is None]
            if others:
                units[others[0]].nodes += unit.nodes
                units[others[0]].work += unit.work
                home.update(dict.fromkeys(unit.nodes, others[0]))
                del units[first]
    return {min(unit.nodes): unit for unit in units.values()}


def _absorbing(graph: Graph, node: Node, home: Mapping[int, int], inside: set[int]) -> int | None:
    """The unit that a node belongs to by nature: its latest producer's, unless it is linear or recurrent.

    A Conv that scales channels as part of a PRelu (decision 0038) is no more than a product.
    """
    if kind_of(node) in (Kind.LINEAR, Kind.RECURRENT) and not _is_part_of_prelu(graph, node):
        return None
    producers = [graph.producer[name].index for name in node.inputs if name in graph.producer]
    joinable = [index for index in producers if index in inside and index in home]
    if not joinable:
        return None
    return home[max(joinable)]


def _is_part_of_prelu(graph: Graph, node: Node) -> bool:
    """Whether it is a Conv of each channel in ``a x + (1 - a) max(x, 0)``, both products of which are such ones."""
    reader = _behind_relu(graph, node)
    if not _scales_channels(graph, node) or reader is None or reader.op_type != "Add":
        return False
    makers = [graph.producer.get(name) for name in reader.inputs]
    makers = [graph.producer.get(each.inputs[0]) if each and each.op_type == "Relu" else each for each in makers]
    return len(makers) > 1 and all(each is not None and _scales_channels(graph, each) for each in makers)


def _behind_relu(graph: Graph, node: Node) -> Node | None:
    """The only reader of a node, or of the Relu behind it."""
    reader = graph.only_reader(node.outputs[0])
    return graph.only_reader(reader.outputs[0]) if reader is not None and reader.op_type == "Relu" else reader


def _scales_channels(graph: Graph, node: Node) -> bool:
    shape = graph.shape(node.inputs[1]) or () if node.op_type == "Conv" else ()
    return bool(shape) and math.prod(shape) == shape[0] == node.attributes.get("group", 1)


def _blocks(graph: Graph) -> list[int]:
    """Number of the block of each node: a new one begins behind a node whose output is all that is still needed."""
    last_use = {name: max(n.index for n in readers) for name, readers in graph.consumers.items()}
    last_use.update(dict.fromkeys(graph.outputs, len(graph.nodes)))
    blocks, block, live = [], 0, set[TensorName]()
    for node in graph.nodes:
        blocks.append(block)
        live |= {name for name in node.outputs if last_use.get(name, -1) > node.index}
        live = {name for name in live if last_use[name] > node.index}
        block += len(live - set(graph.outputs)) <= 1
    return blocks


def _scope(name: str) -> tuple[str, ...]:
    return tuple(re.split(r"[/.]", name.strip("/"))[:-1])


def _work(graph: Graph, node: Node) -> float:
    if kind_of(node) is Kind.RECURRENT:
        steps = (graph.sizes(node.inputs[0]) or ())[:-1]
        return _size(steps) * sum(_size(graph.sizes(name)) for name in node.inputs[1:3])
    out = _size(graph.sizes(node.outputs[0]))
    moved = _MULTIPLICATIONS_PER_VALUE * out
    if kind_of(node) is not Kind.LINEAR:
        return 0.0 if node.op_type in VIEWS else moved
    weight = graph.shape(node.inputs[1]) or (1,)
    if node.op_type in ("Conv", "ConvTranspose"):
        return out * math.prod(weight[1:]) + moved
    return out * weight[-1 if node.attributes.get("transB", 0) else max(len(weight) - 2, 0)] + moved


def _size(sizes: Sequence[int | None] | None) -> float:
    """Elements, as if there were one along dimensions that are not known."""
    return float(math.prod(1 if size is None else size for size in sizes or ()))


def _merge(graph: Graph, units: dict[int, _Unit], n_regions: int) -> None:
    """Merge touching units, the pair with the least work first, until few enough are left."""
    neighbours = _neighbours(graph, units)
    n_left = sum(unit.group is None for unit in units.values())
    n_joined = dict.fromkeys(units, 0)
    waiting: list[tuple[float, tuple[int, int], tuple[int, int]]] = []

    def push(a: int, others: Iterable[int]) -> None:
        for b in others:
            if not (units[a].group or units[b].group):
                pair = min(a, b), max(a, b)
                heapq.heappush(
                    waiting, (_cost(*(units[i] for i in pair)), pair, (n_joined[pair[0]], n_joined[pair[1]]))
                )

    for first in units:
        push(first, (other for other in neighbours[first] if first < other))
    while n_left > n_regions:
        while waiting and any(i not in units or n_joined[i] != n for i, n in zip(*waiting[0][1:], strict=True)):
            heapq.heappop(waiting)
        a, b = waiting[0][1] if waiting else _apart(units)
        _join(units, neighbours, a, b)
        n_left -= 1
        n_joined[a] += 1
        push(a, neighbours[a])


def _apart(units: Mapping[int, _Unit]) -> tuple[int, int]:
    """The next pair where none touch."""
    free = sorted(i for i, unit in units.items() if unit.group is None)
    return min(pairwise(free), key=lambda pair: (_cost(units[pair[0]], units[pair[1]]), pair))


def _join(units: dict[int, _Unit], neighbours: dict[int, set[int]], a: int, b: int) -> None:
    gone = units.pop(b)
    units[a].nodes.extend(gone.nodes)
    units[a].work += gone.work
    for other in neighbours.pop(b):
        neighbours[other].discard(b)
        if other != a:
            neighbours[other].add(a)
            neighbours[a].add(other)


def _cost(a: _Unit, b: _Unit) -> float:
    across = _ACROSS_BLOCKS if a.block != b.block else 1.0
    shared = sum(1 for x, y in zip(a.scope, b.scope, strict=False) if x == y)
    apart = max(len(a.scope), len(b.scope)) - shared
    return (a.work + b.work) * across * _ACROSS_SCOPES ** min(apart, 3)


def _neighbours(graph: Graph, units: Mapping[int, _Unit]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {first: set() for first in units}
    for a, b in _touching(graph, {index: first for first, unit in units.items() for index in unit.nodes}):
        found[a].add(b)
        found[b].add(a)
    return found


def borders(graph: Graph, regions: Sequence[Region]) -> dict[tuple[RegionId, RegionId], int]:
    """Pairs of regions that touch, the writing one first, and the elements of the tensors that pass between them.

    Tensors of unknown shape count for nothing.
    """
    position = {name: i for i, region in enumerate(regions) for name in region.nodes}
    home = {node.index: position[node.name] for node in graph.nodes if node.name in position}
    return {
        (regions[a].id, regions[b].id): sum(math.prod(graph.shape(name) or (0,)) for name in tensors)
        for (a, b), tensors in _touching(graph, home).items()
    }


def _touching(graph: Graph, home: Mapping[int, int]) -> dict[tuple[int, int], set[TensorName]]:
    """Pairs of homes of which one reads what the other writes, with only homeless nodes between them; and what."""
    origins: dict[TensorName, frozenset[tuple[int, TensorName]]] = {}
    pairs: dict[tuple[int, int], set[TensorName]] = {}
    for node in graph.nodes:
        reached = frozenset[tuple[int, TensorName]]().union(*(origins.get(name, frozenset()) for name in node.inputs))
        own = home.get(node.index)
        for other, tensor in sorted(reached):
            if own is not None and other != own:
                pairs.setdefault((other, own), set()).add(tensor)
        passed = frozenset[tuple[int, TensorName]]() if node.op_type in _MEASURING else reached
        for name in filter(None, node.outputs):
            origins[name] = passed if own is None else frozenset({(own, name)})
    return pairs


def _region(graph: Graph, unit: _Unit, position: int, total: float, static: set[int]) -> Region:
    indices = sorted(unit.nodes)
    nodes = [graph.nodes[i] for i in indices]
    inside = set(indices)
    produced = [name for node in nodes for name in node.outputs if name]
    entering = dict.fromkeys(
        name for node in nodes for name in node.inputs if name in graph.float_tensors and name not in produced
    )
    leaving = [
        name
        for name in produced
        if name in graph.pinned or any(n.index not in inside for n in graph.consumers.get(name, ()))
    ]
    return Region(
        id=RegionId(unit.group or f"{position:02d}-{_label(graph, nodes)}"),
        nodes=tuple(node.name for node in nodes),
        inputs=tuple(entering),
        outputs=tuple(leaving),
        pattern=_pattern(graph, nodes),
        op_types=tuple(node.op_type for node in nodes),
        work=unit.work / total,
        static=tuple(node.name for node in nodes if node.index in static),
        linear=tuple(node.name for node in nodes if node.index in static and is_linear(node, graph)),
        dynamic=tuple(node.name for node in nodes if can_be_dynamic(node, graph)),
    )


def _label(graph: Graph, nodes: Sequence[Node]) -> str:
    heaviest = max(nodes, key=lambda node: _work(graph, node))
    return re.sub(r"[^\w.-]+", "_", heaviest.name).strip("_")[-32:]


def _pattern(graph: Graph, nodes: Sequence[Node]) -> str:
    position = {name: (i, k) for i, node in enumerate(nodes) for k, name in enumerate(node.outputs) if name}
    lines = [
        f"{node.op_type} {[position.get(n, graph.shape(n)) for n in node.inputs]} {graph.shape(node.outputs[0])}"
        for node in nodes
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
