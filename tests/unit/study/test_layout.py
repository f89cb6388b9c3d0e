import itertools

import numpy as np
import pytest

from autoquant.domain.region import RegionId
from autoquant.domain.scheme import RangeKind
from autoquant.study.layout import ALL, DYNAMIC, LINEAR, Layout, distinct, pick
from tests.unit.study.layouts import SCHEMES, WITH_DYNAMIC, a_scheme

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


def test_a_dynamic_region_looks_like_float_to_its_neighbours() -> None:
    choices, edges = dict.fromkeys(REGIONS, ("float", *WITH_DYNAMIC)), list(itertools.pairwise(REGIONS))
    layout = Layout.of(choices, WITH_DYNAMIC, edges, dict.fromkeys(REGIONS, 0.25))
    assert (layout.kinds.tolist(), layout.n_kinds) == ([0, ALL, LINEAR, DYNAMIC], 3)
    codes = np.array([[0, 3, 0, 3], [1, 3, 0, 2], [2, 1, 3, 3]])
    assert layout.unlike(codes).tolist() == [[False] * 3, [True, False, True], [False, True, False]]


def test_formats_are_counted_from_the_first_static_and_from_the_first_dynamic_scheme() -> None:
    schemes = {
        "a": a_scheme("a"),
        "d": a_scheme("d", ranges=RangeKind.DYNAMIC, weight="s8:tensor:sym"),
        "e": a_scheme("e", ranges=RangeKind.DYNAMIC),
        "t": a_scheme("t", weight="s8:tensor:sym"),
        "b": a_scheme("b"),
    }
    layout = Layout.of({REGIONS[0]: ("float", *schemes)}, schemes, [], {REGIONS[0]: 1.0})
    assert layout.formats.tolist() == [0, 0, 0, 1, 2, 0]


def test_schemes_that_quantize_a_region_alike_have_one_number() -> None:
    twins = {REGIONS[1]: {"b": "a"}, REGIONS[2]: {"b": "a"}}
    choices = dict.fromkeys(REGIONS[:3], ("float", "a", "b")) | {REGIONS[3]: ("float", "b")}
    layout = Layout.of(choices, SCHEMES, [], dict.fromkeys(REGIONS, 0.25), twins=twins)
    assert layout.allowed.tolist() == [[True] * 3, [True, True, False], [True, True, False], [True, False, True]]
    codes = layout.encode(dict.fromkeys(REGIONS, "b"))
    assert codes.tolist() == [2, 1, 1, 2]
    assert list(layout.decode(codes).values()) == ["b", "a", "a", "b"]
    assert layout.uniform(ALL).tolist() == [1, 1, 1, 0]
    assert layout.uniform(LINEAR).tolist() == [2, 1, 1, 2]


def test_a_scheme_that_leaves_a_region_float_is_no_choice_of_it() -> None:
    schemes = {"a": a_scheme("a"), "b": a_scheme("b")}
    regions, choices = REGIONS[:3], dict.fromkeys(REGIONS[:3], ("float", "a", "b"))
    twins = {regions[1]: {"a": "float"}, regions[2]: {"a": "float", "b": "float"}}
    layout = Layout.of(choices, schemes, [], dict.fromkeys(regions, 0.3), twins=twins)
    assert layout.allowed.tolist() == [[True] * 3, [True, False, True], [True, False, False]]
    assert layout.encode(dict.fromkeys(regions, "a")).tolist() == [1, 0, 0]
    assert layout.uniform(ALL).tolist() == [1, 2, 0], "the first one that quantizes a region"


def test_of_a_table_is_picked_what_regions_have_under_their_schemes() -> None:
    table = np.arange(6.0).reshape(2, 3)
    assert pick(table, np.array([[0, 0], [2, 1]])).tolist() == [[0.0, 3.0], [2.0, 4.0]]
    assert pick(table, np.zeros((0, 2), dtype=np.int64)).shape == (0, 2)


def test_different_assignments_are_in_lexicographic_order() -> None:
    codes = np.random.default_rng(0).integers(0, 300, (200, 2)) // 50
    assert np.array_equal(distinct(codes), np.unique(codes, axis=0))
    assert distinct(np.array([[256, 0], [1, 2], [256, 0]])).tolist() == [[1, 2], [256, 0]]
    assert distinct(codes[:0]).shape == (0, 2)
