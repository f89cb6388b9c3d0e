import numpy as np
import pytest

from autoquant.domain.region import RegionId
from autoquant.study.layout import Layout
from tests.unit.study.layouts import SCHEMES

REGIONS = tuple(RegionId(f"r{i}") for i in range(4))


@pytest.fixture
def layout() -> Layout:
    choices = dict.fromkeys(REGIONS, ("float", "a", "b")) | {REGIONS[3]: ("float", "b")}
    edges = [(REGIONS[i], REGIONS[i + 1]) for i in range(3)] + [(REGIONS[0], RegionId("not chosen"))]
    return Layout.of(choices, SCHEMES, edges, dict.fromkeys(REGIONS, 0.25))


def test_a_layout_is_the_names_as_arrays(layout: Layout) -> None:
    assert layout.schemes == ("float", "a", "b")
    assert layout.kinds.tolist() == [0, 1, 2]
    assert layout.allowed.tolist() == [[True] * 3] * 3 + [[True, False, True]]
    assert layout.edges.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_decoding_is_the_inverse_of_encoding(layout: Layout) -> None:
    params = dict(zip(map(str, REGIONS), ["a", "float", "b", "b"], strict=True))
    assert layout.encode(params).tolist() == [1, 0, 2, 2]
    assert layout.decode(layout.encode(params)) == params
    with pytest.raises(ValueError, match="not in tuple"):
        layout.encode({**params, "r0": "unknown"})


def test_a_layout_without_borders_is_one() -> None:
    alone = Layout.of({REGIONS[0]: ("float", "a")}, SCHEMES, [], {REGIONS[0]: 1.0})
    assert alone.edges.shape == (0, 2)
    assert np.array_equal(alone.work, [1.0])


def test_regions_have_a_pattern_of_their_own_where_none_is_named() -> None:
    choices, work = dict.fromkeys(REGIONS, ("float", "a")), dict.fromkeys(REGIONS, 0.25)
    patterns = Layout.of(choices, SCHEMES, [], work, {REGIONS[0]: "p", REGIONS[2]: "p"}).patterns
    assert patterns[0] == patterns[2]
    assert len(set(patterns.tolist())) == 3
    assert len(set(Layout.of(choices, SCHEMES, [], work).patterns.tolist())) == 4
