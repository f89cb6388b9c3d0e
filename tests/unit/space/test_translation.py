from dataclasses import replace

from autoquant.domain.region import NodeName, RegionId
from autoquant.domain.scheme import BiasCorrection, Operators, RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.space.translation import KnownRegion, match_regions, nearest_scheme
from tests.records import a_region


def known(id: str, *, pattern: str = "0" * 8, nodes: tuple[str, ...] | None = None) -> KnownRegion:  # noqa: A002
    own = a_region(id).nodes if nodes is None else tuple(map(NodeName, nodes))
    return KnownRegion(id=RegionId(id), nodes=own, pattern=pattern)


def scheme(
    name: str,
    activation: str = "u8:tensor:asym",
    ranges: str = "min-max",
    operators: Operators = Operators.ALL,
    rounding: Rounding = Rounding.NEAREST,
) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse(activation),
        weight=TensorFormat.parse("s8:channel:sym"),
        ranges=RangeMethod.parse(ranges),
        operators=operators,
        rounding=rounding,
    )


def test_a_region_is_the_one_of_the_same_nodes_whatever_its_id() -> None:
    """Ids count positions: after a region that was cut otherwise all others have new ones."""
    now = [a_region("00-conv"), a_region("01-conv"), a_region("02-conv")]
    earlier = [known("00-block", nodes=("other",)), known("01-conv", nodes=now[0].nodes)]
    earlier += [known("02-conv", nodes=now[1].nodes), known("03-conv", nodes=now[2].nodes)]
    assert match_regions(earlier, now) == {"00-conv": "01-conv", "01-conv": "02-conv", "02-conv": "03-conv"}


def test_a_region_is_the_one_of_the_same_id_and_nodes() -> None:
    assert match_regions([known("r1"), known("r0")], [a_region("r0"), a_region("r1")]) == {"r0": "r0", "r1": "r1"}


def test_other_regions_are_found_by_their_pattern_in_order() -> None:
    earlier = [known("a"), known("b", pattern="another"), known("c")]
    assert match_regions(earlier, [a_region("r0"), a_region("r1"), a_region("r2")]) == {"r0": "a", "r1": "c"}


def test_a_region_that_is_somebodys_by_name_is_nobody_elses() -> None:
    found = match_regions([known("r1"), known("b")], [a_region("r0"), a_region("r1")])
    assert found == {"r1": "r1", "r0": "b"}


def test_the_same_id_with_other_nodes_is_another_region() -> None:
    assert match_regions([known("r0", nodes=("other",), pattern="another")], [a_region("r0")]) == {}


def test_the_nearest_scheme_has_the_same_types_first_and_ranges_last() -> None:
    wanted = scheme("old", ranges="percentile-99.9")
    choices = [
        scheme("s8", "s8:tensor:asym", "percentile-99.9"),
        scheme("mse", ranges="mse"),
        scheme("p99.99", ranges="percentile-99.99"),
    ]
    assert nearest_scheme(wanted, choices) == choices[2]
    assert nearest_scheme(wanted, choices[:2]) == choices[1]


def test_powers_of_two_count_before_ranges() -> None:
    choices = [scheme("even"), scheme("power", "u8:tensor:asym:pow2", "mse")]
    assert nearest_scheme(scheme("old", "u8:tensor:asym:pow2"), choices) == choices[1]
    assert nearest_scheme(scheme("old", ranges="mse"), choices) == choices[0]


def test_of_schemes_with_equal_numbers_the_nearest_corrects_biases_alike() -> None:
    plain = scheme("plain")
    corrected = replace(plain, name="corrected", bias=BiasCorrection.MEAN)
    assert nearest_scheme(replace(plain, name="old"), [corrected, plain]) == plain
    assert nearest_scheme(replace(corrected, name="old"), [plain, corrected]) == corrected


def test_of_schemes_that_are_alike_the_nearest_rounds_alike() -> None:
    choices = [scheme("plain"), scheme("rounded", rounding=Rounding.GPTQ), scheme("mse", ranges="mse")]
    assert nearest_scheme(scheme("old", rounding=Rounding.GPTQ), choices) == choices[1]
    assert nearest_scheme(scheme("old", rounding=Rounding.GPTQ, ranges="mse"), choices) == choices[2]


def test_a_scheme_of_other_operators_is_never_near() -> None:
    assert nearest_scheme(scheme("old"), [scheme("linear", operators=Operators.LINEAR)]) is None


def test_where_linear_operators_are_alone_other_operators_make_no_difference() -> None:
    linear = scheme("linear", operators=Operators.LINEAR)
    assert nearest_scheme(scheme("old"), [linear], is_linear_alone=True) is linear
    assert nearest_scheme(scheme("old", ranges="dynamic"), [linear], is_linear_alone=True) is None


def test_of_schemes_with_blocks_the_nearest_has_blocks_of_the_same_size() -> None:
    choices = [scheme(f"d{n}", f"s8:block-{n}:sym", "dynamic") for n in (128, 32)]
    choices = [replace(one, weight=one.activation) for one in choices]
    assert nearest_scheme(replace(choices[1], name="old"), choices) == choices[1]
    per_tensor = scheme("dynamic", ranges="dynamic")
    assert nearest_scheme(scheme("old", ranges="dynamic"), [*choices, per_tensor]) == per_tensor


def test_of_equals_the_one_of_the_same_name_is_nearest() -> None:
    choices = [scheme("all"), scheme("linear", operators=Operators.LINEAR)]
    wanted = scheme("linear", ranges="mse", operators=Operators.LINEAR)
    assert nearest_scheme(wanted, choices, is_linear_alone=True) == choices[1]


def test_a_scheme_whose_ranges_are_found_at_run_time_is_near_its_like_alone() -> None:
    dynamic, static = scheme("dynamic", ranges="dynamic"), scheme("static")
    assert nearest_scheme(scheme("old", ranges="dynamic"), [static]) is None
    assert nearest_scheme(scheme("old", ranges="dynamic"), [static, dynamic]) is dynamic
    assert nearest_scheme(scheme("old", ranges="mse"), [dynamic, static]) is static
