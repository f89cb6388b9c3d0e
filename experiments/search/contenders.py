"""Samplers that are compared."""

from autoquant.domain.sampler import SamplerName
from autoquant.study.samplers import SamplerChoice
from experiments.search.greedy import GreedySampler

__all__ = ["CONTENDERS", "contender"]

GREEDY = "greedy"
CONTENDERS = (*map(str, SamplerName), GREEDY)


def contender(name: str, seed: int) -> SamplerChoice:
    """What ``autoquant.search`` takes as its sampler."""
    return GreedySampler(seed) if name == GREEDY else SamplerName(name)
