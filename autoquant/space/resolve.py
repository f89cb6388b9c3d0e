"""Rules and regions to a search space."""

import re
from collections.abc import Iterator, Sequence

from autoquant.domain.region import Region, RegionId
from autoquant.domain.scheme import FLOAT, Operators, Scheme
from autoquant.domain.space import SearchSpace, SpaceDefinition, SpaceRule

__all__ = ["emptied", "resolve", "unmatched"]

_PRODUCTS = frozenset({"Gemm", "MatMul"})
"""With a constant matrix preprocessing makes one of the other."""


def resolve(definition: SpaceDefinition, regions: Sequence[Region]) -> SearchSpace:
    """Decide which schemes each region may take.

    For each node the last rule that matches it decides; a region may take what all its nodes may. A scheme that would
    change none of a region's operators is left out: it is float under another name.
    """
    return SearchSpace(
        choices={region.id: (FLOAT, *_allowed(definition, region)) for region in regions},
        schemes={scheme.name: scheme for scheme in definition.schemes},
    )


def unmatched(definition: SpaceDefinition, regions: Sequence[Region]) -> list[SpaceRule]:
    """Rules that match no node of a region."""
    nodes = [node for region in regions for node in _nodes(region)]
    return [rule for rule in definition.rules if not any(_matches(rule, *node) for node in nodes)]


def emptied(definition: SpaceDefinition, regions: Sequence[Region]) -> list[RegionId]:
    """Regions to which rules leave no scheme of the space, though none of these rules says float."""
    known = {scheme.name for scheme in definition.schemes}
    deciding = {region.id: _deciding(definition, region) for region in regions}
    return [
        region
        for region, rules in deciding.items()
        if not known.intersection(*(rule.schemes for rule in rules)) and all(FLOAT not in r.schemes for r in rules)
    ]


def _allowed(definition: SpaceDefinition, region: Region) -> list[str]:
    names = [scheme.name for scheme in definition.schemes if _has_effect(scheme, definition, region)]
    rules = _deciding(definition, region)
    return [name for name in names if all(name in rule.schemes for rule in rules)]


def _deciding(definition: SpaceDefinition, region: Region) -> list[SpaceRule]:
    """For each node of a region that a rule matches, the last one."""
    found = []
    for node, op_types in _nodes(region):
        rule = next((rule for rule in reversed(definition.rules) if _matches(rule, node, op_types)), None)
        if rule is not None:
            found.append(rule)
    return found


def _has_effect(scheme: Scheme, definition: SpaceDefinition, region: Region) -> bool:
    changed = region.static if scheme.operators is Operators.ALL else region.linear
    known = definition.op_types - {"LSTM"} if scheme.is_blockwise else definition.op_types
    kinds = dict(zip(region.nodes, region.op_types, strict=True))
    return any(kinds[node] in known for node in (region.dynamic if scheme.is_dynamic else changed))


def _nodes(region: Region) -> Iterator[tuple[str, frozenset[str]]]:
    """Each node with the operators that it may be in the user's file."""
    multiplying = {*region.linear, *region.dynamic}
    for node, op_type in zip(region.nodes, region.op_types, strict=True):
        is_product = op_type in _PRODUCTS and node in multiplying
        yield node, _PRODUCTS if is_product else frozenset({op_type})


def _matches(rule: SpaceRule, node: str, op_types: frozenset[str]) -> bool:
    if rule.op_types and rule.op_types.isdisjoint(op_types):
        return False
    return rule.nodes is None or re.search(rule.nodes, node) is not None
