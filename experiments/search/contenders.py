"""Samplers that are compared."""

from autoquant.domain.sampler import SamplerName
from autoquant.study.samplers import SamplerChoice
from experiments.search.greedy import GreedySampler
from experiments.search.parts import Part

__all__ = ["ABLATED", "CONTENDERS", "contender", "part_of"]

GREEDY = "greedy"
CONTENDERS = (*map(str, SamplerName), GREEDY)
_WITHOUT = "without-"
ABLATED = tuple(f"{_WITHOUT}{part}" for part in Part)
"""Searches by structure that lack a part."""


def contender(name: str, seed: int) -> SamplerChoice:
    """What ``autoquant.search`` takes as its sampler."""
    if name in ABLATED:
        return SamplerName.STRUCTURE
    return GreedySampler(seed) if name == GREEDY else SamplerName(name)


def part_of(name: str) -> Part | None:
    """What a contender lacks."""
    return Part(name.removeprefix(_WITHOUT)) if name in ABLATED else None
