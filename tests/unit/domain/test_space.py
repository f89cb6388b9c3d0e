from dataclasses import replace

import pytest

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import RegionId
from autoquant.domain.scheme import BiasCorrection, RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.domain.space import SearchSpace, SpaceDefinition


def a_scheme(
    name: str, activation: str = "u8:tensor:asym", weight: str = "s8:channel:sym", ranges: str = "min-max"
) -> Scheme:
    formats = (TensorFormat.parse(text) for text in (activation, weight))
    return Scheme(name=name, activation=next(formats), weight=next(formats), ranges=RangeMethod.parse(ranges))


STATIC, DYNAMIC = a_scheme("static"), a_scheme("dynamic", ranges="dynamic")
WIDE, BLOCKS = a_scheme("wide", "u16:tensor:asym"), a_scheme("blocks", "s8:block-32:sym", "s8:block-32:sym", "dynamic")


def a_space(*schemes: Scheme, open_biases: frozenset[str] = frozenset()) -> SpaceDefinition:
    return SpaceDefinition(
        name="own",
        schemes=schemes,
        op_types=frozenset({"Conv"}),
        rules=(),
        groups=(),
        accuracy=Accuracy.FAST,
        digest="d1",
        open_biases=open_biases,
    )


def test_biases_are_left_alone_only_where_the_file_leaves_that_open() -> None:
    asked, open_ = (replace(a_scheme(name), bias=BiasCorrection.MEAN) for name in ("asked", "open"))
    space = a_space(asked, open_, open_biases=frozenset({"open"}))
    found = space.uncorrected()
    assert [scheme.bias for scheme in found.schemes] == [BiasCorrection.MEAN, BiasCorrection.NONE]
    assert replace(found, schemes=space.schemes) == space


@pytest.mark.parametrize(
    ("activation", "weight", "ranges", "expected"),
    [
        ("u8:tensor:asym", "s8:channel:sym", "min-max", "s8:channel:sym:unsaturated"),
        ("u8:tensor:asym", "s8:tensor:asym", "min-max", "s8:tensor:sym:unsaturated"),
        ("u8:tensor:asym", "s8:channel:sym", "dynamic", "s8:channel:sym:unsaturated"),
        ("u8:tensor:asym", "u8:tensor:asym", "min-max", "u8:tensor:asym"),
        ("u16:tensor:asym", "s8:channel:sym", "min-max", "s8:channel:sym"),
        ("s8:block-32:sym", "s8:block-32:sym", "dynamic", "s8:block-32:sym"),
    ],
)
def test_s8_weights_of_8_bit_activations_are_those_that_can_be_unsaturated(
    activation: str, weight: str, ranges: str, expected: str
) -> None:
    space = a_space(a_scheme("a", activation, weight, ranges))
    (found,) = space.unsaturated().schemes
    assert str(found.weight) == expected
    assert (space.unsaturated().digest == space.digest) is (expected == weight)
    assert space.unsaturated().unsaturated() == space.unsaturated()


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [(Rounding.ADAQUANT, Rounding.GPTQ), (Rounding.ADAROUND, Rounding.ADAROUND), (Rounding.NEAREST, Rounding.NEAREST)],
)
def test_no_scales_are_learned_where_they_are_bounded(rounding: Rounding, expected: Rounding) -> None:
    space = a_space(replace(STATIC, rounding=rounding), replace(WIDE, rounding=rounding))
    assert [scheme.rounding for scheme in space.unsaturated().schemes] == [expected, rounding]


@pytest.mark.parametrize(
    ("opset", "expected"),
    [
        (9, []),
        (10, ["tensor"]),
        (11, ["tensor", "dynamic"]),
        (12, ["tensor", "dynamic"]),
        (13, ["tensor", "static", "dynamic"]),
        (20, ["tensor", "static", "dynamic"]),
        (21, ["tensor", "static", "dynamic", "wide"]),
    ],
)
def test_an_opset_has_the_schemes_that_it_can_express_in_their_order(opset: int, expected: list[str]) -> None:
    space = a_space(a_scheme("tensor", weight="s8:tensor:sym"), STATIC, DYNAMIC, WIDE)
    assert [scheme.name for scheme in space.at_opset(opset).schemes] == expected


@pytest.mark.parametrize(
    ("schemes", "has_dynamic", "has_static"),
    [
        ((STATIC, WIDE), False, True),
        ((DYNAMIC, BLOCKS), True, False),
        ((DYNAMIC, STATIC), True, True),
        ((), False, False),
    ],
)
def test_a_space_knows_when_its_ranges_are_taken(
    schemes: tuple[Scheme, ...], has_dynamic: bool, has_static: bool
) -> None:
    space = a_space(*schemes)
    assert (space.has_dynamic, space.has_static) == (has_dynamic, has_static)


def test_a_recipe_quantizes_what_may_take_its_scheme() -> None:
    p, q, r = map(RegionId, "pqr")
    space = SearchSpace(choices={p: ("float", "a"), q: ("float",), r: ("float", "b", "a")}, schemes={})
    assert space.uniform("a") == {p: "a", r: "a"}
    assert space.uniform("b") == {r: "b"}
    assert space.uniform("c") == {}
