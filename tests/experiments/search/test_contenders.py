from autoquant.domain.sampler import SamplerName
from experiments.search.contenders import ABLATED, CONTENDERS, contender, part_of
from experiments.search.greedy import GreedySampler
from experiments.search.parts import Part


def test_each_part_has_a_search_by_structure_without_it() -> None:
    assert [part_of(name) for name in ABLATED] == list(Part)
    assert all(contender(name, 0) is SamplerName.STRUCTURE for name in ABLATED)


def test_contenders_lack_nothing() -> None:
    assert {part_of(name) for name in CONTENDERS} == {None}
    assert isinstance(contender("greedy", 0), GreedySampler)
    assert contender("nsga2", 0) is SamplerName.NSGA2
