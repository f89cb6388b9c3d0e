from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import FLOAT, Operators, RangeMethod, Scheme, TensorFormat
from autoquant.domain.space import SpaceDefinition, SpaceRule
from autoquant.space.resolve import emptied, resolve, unmatched

NAMES = ("all-a", "all-b", "linear")
OP_TYPES = ("Conv", "Add", "Softmax", "MaxPool")


def scheme(name: str) -> Scheme:
    return Scheme(
        name=name,
        activation=TensorFormat.parse("u8:tensor:asym"),
        weight=TensorFormat.parse("s8:channel:sym"),
        ranges=RangeMethod.parse("mse"),
        operators=Operators.LINEAR if name == "linear" else Operators.ALL,
    )


def definition(*rules: SpaceRule, op_types: Sequence[str] = OP_TYPES) -> SpaceDefinition:
    schemes = tuple(scheme(name) for name in NAMES)
    return SpaceDefinition(
        name="test",
        schemes=schemes,
        op_types=frozenset(op_types),
        rules=rules,
        groups=(),
        accuracy=Accuracy.NONE,
        digest="0",
    )


def rule(*schemes: str, op_types: Sequence[str] = (), nodes: str | None = None) -> SpaceRule:
    return SpaceRule(op_types=frozenset(op_types), nodes=nodes, schemes=schemes)


def region(**nodes: str) -> Region:
    return Region(
        id=RegionId("r"),
        nodes=tuple(NodeName(name) for name in nodes),
        inputs=(TensorName("x"),),
        outputs=(TensorName("y"),),
        pattern="p",
        op_types=tuple(nodes.values()),
        work=1.0,
        static=tuple(NodeName(name) for name, op_type in nodes.items() if op_type != "LSTM"),
        linear=tuple(NodeName(name) for name, op_type in nodes.items() if op_type in ("Conv", "MatMul")),
    )


def choices(space: SpaceDefinition, **nodes: str) -> tuple[str, ...]:
    return resolve(space, [region(**nodes)]).choices[RegionId("r")]


def test_without_rules_a_region_may_take_float_and_every_scheme_in_the_order_of_the_file() -> None:
    assert choices(definition(), conv="Conv", add="Add") == (FLOAT, *NAMES)


def test_a_space_knows_its_schemes_by_name_and_float_is_none_of_them() -> None:
    assert resolve(definition(), []).schemes == {name: scheme(name) for name in NAMES}


def test_a_rule_by_op_type_narrows_only_the_regions_that_hold_such_an_operator() -> None:
    space = definition(rule("all-a", op_types=["Softmax"]))
    assert choices(space, conv="Conv", softmax="Softmax") == (FLOAT, "all-a")
    assert choices(space, conv="Conv") == (FLOAT, *NAMES)


def test_a_rule_by_name_is_searched_in_the_names_of_the_nodes() -> None:
    space = definition(rule(FLOAT, nodes="/head"))
    assert choices(space, **{"/body/conv": "Conv", "/body/head/conv": "Conv"}) == (FLOAT,)
    assert choices(space, **{"/body/conv": "Conv"}) == (FLOAT, *NAMES)


def test_a_rule_takes_products_with_a_constant_matrix_for_each_other() -> None:
    lowered = replace(region(g="Gemm"), linear=(NodeName("g"),))
    for one in (lowered, region(m="MatMul")):
        for op_type in ("Gemm", "MatMul"):
            space = definition(rule(FLOAT, op_types=[op_type]), op_types=["Gemm", "MatMul"])
            assert resolve(space, [one]).choices[one.id] == (FLOAT,)
            assert unmatched(space, [one]) == []
    scores = replace(region(m="MatMul"), linear=())
    assert unmatched(definition(rule(FLOAT, op_types=["Gemm"])), [scores, region(c="Conv")]) != []


def test_rules_that_match_no_node_of_a_region_are_found() -> None:
    rules = rule("a", nodes="head"), rule("a", nodes="haed"), rule("a", op_types=["Conv"]), rule("a", op_types=["Add"])
    never_met = rule("a", op_types=["Conv"], nodes="tail")
    regions = [region(head="Conv", tail="Softmax")]
    assert unmatched(definition(*rules, never_met), regions) == [rules[1], rules[3], never_met]


def test_regions_that_rules_leave_float_without_saying_so_are_found() -> None:
    absent, said = rule("u16", nodes="^a"), rule("u16", FLOAT, nodes="^b")
    unlike = rule("all-a", op_types=["Conv"]), rule("all-b", op_types=["Add"])
    regions = [replace(region(**{name: "Softmax"}), id=RegionId(name)) for name in "abc"]
    assert emptied(definition(absent, said), regions) == ["a"]
    assert emptied(definition(*unlike), [region(conv="Conv", add="Add")]) == ["r"]
    assert emptied(definition(*unlike), [region(conv="Conv"), *regions]) == []


def test_a_rule_for_schemes_that_change_nothing_in_a_region_says_so_itself() -> None:
    assert emptied(definition(rule("linear", op_types=["Softmax"])), [region(s="Softmax")]) == []


def test_a_rule_with_op_types_and_nodes_matches_only_where_both_do() -> None:
    space = definition(rule(FLOAT, op_types=["Conv"], nodes="^b"))
    assert choices(space, a="Conv", b="Add") == (FLOAT, *NAMES)
    assert choices(space, a="Add", b="Conv") == (FLOAT,)


def test_the_last_rule_that_matches_a_node_decides_for_it() -> None:
    space = definition(rule(FLOAT, op_types=["Conv"]), rule("all-b", nodes="^tail"))
    assert choices(space, tail="Conv") == (FLOAT, "all-b")


def test_a_region_may_take_only_what_all_its_nodes_may() -> None:
    space = definition(rule("all-a", "all-b", op_types=["Conv"]), rule("all-b", "linear", op_types=["Add"]))
    assert choices(space, conv="Conv", add="Add") == (FLOAT, "all-b")


def test_a_region_without_an_operator_of_the_provider_stays_float() -> None:
    assert choices(definition(op_types=["Conv"]), softmax="Softmax") == (FLOAT,)


def test_a_linear_scheme_is_no_choice_for_a_region_without_linear_operators() -> None:
    assert choices(definition(), add="Add", pool="MaxPool") == (FLOAT, "all-a", "all-b")


rules = st.builds(
    lambda schemes, op_types: rule(*schemes, op_types=op_types),
    st.lists(st.sampled_from((FLOAT, *NAMES)), min_size=1, unique=True),
    st.lists(st.sampled_from(OP_TYPES), min_size=1, unique=True),
)


@given(st.lists(rules, max_size=4), st.lists(st.sampled_from(OP_TYPES), min_size=1, max_size=4))
def test_float_comes_first_and_once_and_the_order_of_the_file_is_kept(
    given_rules: list[SpaceRule], op_types: list[str]
) -> None:
    names = choices(definition(*given_rules), **{f"n{index}": op_type for index, op_type in enumerate(op_types)})
    assert names[0] == FLOAT
    assert list(names[1:]) == [name for name in NAMES if name in names]


def with_dynamic(*op_types: str) -> SpaceDefinition:
    space = definition(op_types=op_types)
    dynamic = replace(space.schemes[0], name="dynamic", ranges=RangeMethod.parse("dynamic"))
    return replace(space, schemes=(*space.schemes, dynamic))


def dynamic_choices(space: SpaceDefinition, dynamic: Sequence[str], **nodes: str) -> tuple[str, ...]:
    one = replace(region(**nodes), dynamic=tuple(NodeName(name) for name in dynamic))
    return resolve(space, [one]).choices[RegionId("r")]


def test_blocks_are_no_choice_for_an_lstm_alone() -> None:
    space = with_dynamic("LSTM", "MatMul")
    blocks = TensorFormat.parse("s8:block-32:sym")
    space = replace(space, schemes=(replace(space.schemes[-1], name="blocks", activation=blocks, weight=blocks),))
    assert dynamic_choices(space, ["l"], l="LSTM") == (FLOAT,)
    assert dynamic_choices(space, ["l", "m"], l="LSTM", m="MatMul") == (FLOAT, "blocks")


def test_a_dynamic_scheme_is_a_choice_where_it_quantizes_a_node() -> None:
    space = with_dynamic("Conv", "MatMul", "Softmax")
    assert dynamic_choices(space, [], scores="MatMul", s="Softmax") == (FLOAT, *NAMES)
    assert dynamic_choices(space, ["m"], m="MatMul", s="Softmax") == (FLOAT, *NAMES, "dynamic")
    assert dynamic_choices(with_dynamic("Softmax"), ["m"], m="MatMul", s="Softmax") == (FLOAT, "all-a", "all-b")


def test_a_static_scheme_is_a_choice_where_it_changes_a_node() -> None:
    space, whole = with_dynamic("Gemm", "Add"), replace(region(g="Gemm", a="Add"), dynamic=(NodeName("g"),))
    linear = replace(whole, linear=(NodeName("g"),))
    behind = replace(whole, static=(NodeName("a"),), linear=())
    neither = replace(behind, static=())
    found = [resolve(space, [one]).choices[one.id] for one in (linear, behind, neither)]
    assert found == [(FLOAT, *NAMES, "dynamic"), (FLOAT, "all-a", "all-b", "dynamic"), (FLOAT, "dynamic")]
