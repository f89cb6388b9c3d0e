from pathlib import Path

import pytest

from autoquant.domain.accuracy import Accuracy
from autoquant.domain.scheme import DType, Operators, RangeMethod, Rounding, Scheme, TensorFormat
from autoquant.domain.space import Group, SpaceRule
from autoquant.errors import SpaceError, UsageError
from autoquant.space.schema import read_space
from tests.unit.space.files import GROUP, RULE, SCHEME_A, SCHEME_B, SECTION, read, refused, text


def test_a_space_holds_what_its_file_says(tmp_path: Path) -> None:
    space = read(tmp_path, text(), accuracy=Accuracy.NONE)
    assert space.name == "cnn"
    assert space.op_types == {"Conv", "Add"}
    assert space.schemes == (
        Scheme(
            name="a",
            activation=TensorFormat.parse("u8:tensor:asym"),
            weight=TensorFormat.parse("s8:channel:sym"),
            ranges=RangeMethod.parse("min-max"),
        ),
        Scheme(
            name="b",
            activation=TensorFormat.parse("s8:tensor:sym"),
            weight=TensorFormat.parse("u8:tensor:asym"),
            ranges=RangeMethod.parse("percentile-99.99"),
            operators=Operators.LINEAR,
        ),
    )
    assert space.rules == (SpaceRule(op_types=frozenset({"Softmax"}), nodes="^/head/", schemes=("float", "a")),)
    assert space.groups == (Group(name="head", nodes="^/head/"),)


def test_only_the_schemes_of_the_execution_provider_are_in_the_space(tmp_path: Path) -> None:
    more = '[ep.qnn]\nschemes = ["b"]\nop_types = ["Gelu"]'
    assert [scheme.name for scheme in read(tmp_path, text(more=more), ep="qnn").schemes] == ["b"]
    assert read(tmp_path, text(more=more), ep="qnn").op_types == {"Gelu"}


def test_biases_are_corrected_where_the_file_says_so_and_the_digest_follows(tmp_path: Path) -> None:
    plain, corrected, off = (
        read(tmp_path, text(scheme_a=SCHEME_A + bias)) for bias in ("", 'bias = "mean"\n', 'bias = "none"\n')
    )
    assert [space.schemes[0].bias for space in (plain, corrected, off)] == ["mean", "mean", "none"]
    assert plain.digest == corrected.digest != off.digest


def test_biases_are_left_as_they_are_but_where_the_file_says_otherwise(tmp_path: Path) -> None:
    space = read(tmp_path, text(scheme_a=SCHEME_A + 'bias = "mean"\n'))
    assert [scheme.bias for scheme in space.schemes] == ["mean", "mean"]
    assert [scheme.bias for scheme in space.uncorrected().schemes] == ["mean", "none"]
    assert (
        space.uncorrected().schemes
        == read(tmp_path, (tmp_path / "cnn.toml").read_text(), accuracy=Accuracy.NONE).schemes
    )


@pytest.mark.parametrize(("line", "asked", "level"), [("", None, "fast"), ('accuracy = "none"', None, "none")])
def test_the_level_of_accuracy_is_what_the_file_says(
    tmp_path: Path, line: str, asked: Accuracy | None, level: str
) -> None:
    space = read(tmp_path, f"{line}\n{text()}", accuracy=asked)
    assert space.accuracy == level
    assert space.schemes[0].bias == ("none" if level == "none" else "mean")


def test_the_level_that_is_asked_for_wins_and_the_digest_follows(tmp_path: Path) -> None:
    said, fast = read(tmp_path, text(), accuracy=Accuracy.NONE), read(tmp_path, text())
    assert (said.accuracy, said.schemes[0].bias) == ("none", "none")
    assert said.digest != fast.digest


def test_weights_are_rounded_to_the_nearest_integer_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    default = read(tmp_path, text())
    said = read(tmp_path, text(scheme_a=SCHEME_A + 'rounding = "nearest"\n'))
    other = read(tmp_path, text(scheme_a=SCHEME_A + 'rounding = "gptq"\n'))
    assert [scheme.rounding for scheme in other.schemes] == [Rounding.GPTQ, Rounding.NEAREST]
    assert said == default
    assert other.digest != default.digest


def test_the_digest_follows_the_content_and_not_the_comments(tmp_path: Path) -> None:
    digest = read(tmp_path, text()).digest
    assert read(tmp_path, text(more="# a comment")).digest == digest
    assert read(tmp_path, text(more='[ep.qnn]\nschemes = ["b"]\nop_types = ["Gelu"]')).digest == digest
    changed = [
        text(section=SECTION.replace('"Add"', '"Mul"')),
        text(section=SECTION.replace('"a", "b"', '"b", "a"')),
        text(scheme_b=SCHEME_B.replace("99.99", "99.9")),
        text(rule=RULE.replace("head", "tail")),
        text(group=GROUP.replace("head", "tail")),
    ]
    assert len({digest, *(read(tmp_path, content).digest for content in changed)}) == 6


@pytest.mark.parametrize("name", ["default", "quick", "extensive", "power_of_two"])
def test_a_shipped_space_is_read_by_its_name(name: str) -> None:
    space = read_space(name, ep="cpu")
    assert space.name == name
    assert {"Conv", "Gemm", "MatMul"} < space.op_types
    assert all(scheme.activation.dtype.bits == 8 for scheme in space.schemes)


def test_the_shipped_spaces_grow_from_quick_to_extensive() -> None:
    quick, default, extensive = (set(read_space(name, ep="cpu").schemes) for name in ("quick", "default", "extensive"))
    assert quick < default < extensive


@pytest.mark.parametrize("ep", ["qnn", "openvino"])
def test_16_bit_schemes_are_offered_to_providers_that_may_run_them(ep: str) -> None:
    assert any(scheme.activation.dtype.bits == 16 for scheme in read_space("extensive", ep=ep).schemes)


@pytest.mark.parametrize("ep", ["cpu", "qnn", "openvino"])
def test_the_name_of_a_scheme_says_what_it_is(ep: str) -> None:
    spelled = {
        "min-max": "minmax",
        "percentile-99.9": "p99.9",
        "percentile-99.99": "p99.99",
        "percentile-99.999": "p99.999",
    }
    for scheme in read_space("extensive", ep=ep).schemes:
        scope = "linear" if scheme.operators is Operators.LINEAR else str(scheme.weight).split(":")[1]
        ranges = spelled.get(str(scheme.ranges), str(scheme.ranges))
        width = "-s4" if scheme.weight.dtype is DType.S4 else ""
        static = f"{scheme.activation.dtype}{scheme.weight.dtype}-{scope}-{ranges}"
        assert scheme.name == (f"dynamic-{scope}{width}" if scheme.is_dynamic else static)


def test_every_scale_of_the_space_of_powers_of_two_is_one() -> None:
    for scheme in read_space("power_of_two", ep="cpu").schemes:
        assert scheme.activation.power_of_two
        assert scheme.weight.power_of_two


def test_an_unknown_name_is_refused_with_the_shipped_ones_and_a_suggestion() -> None:
    with pytest.raises(SpaceError) as error:
        read_space("defualt", ep="cpu")
    assert str(error.value) == (
        "defualt: no search space file has this path, those that are shipped have the names default, extensive,"
        " power_of_two, quick, did you mean 'default'?"
    )


def test_a_missing_file_is_refused_with_the_shipped_names(tmp_path: Path) -> None:
    with pytest.raises(
        SpaceError, match=r"mine.toml: no search space file has this path, .*default, extensive, power_of_two, quick$"
    ):
        read_space(str(tmp_path / "mine.toml"), ep="cpu")


def test_a_file_of_another_kind_is_refused_as_such(tmp_path: Path) -> None:
    other = tmp_path / "space.yaml"
    other.write_text("schemes: []")
    with pytest.raises(SpaceError, match=r"space\.yaml: a search space file is a \.toml, those that are shipped"):
        read_space(str(other), ep="cpu")


def test_a_provider_without_a_section_is_refused_with_those_that_have_one(tmp_path: Path) -> None:
    expected = "cnn.toml, ep: has no section for 'openvino', it has: cpu; add [ep.openvino]"
    assert refused(tmp_path, text(), ep="openvino") == expected


def test_what_is_not_toml_is_refused(tmp_path: Path) -> None:
    message = refused(tmp_path, "schema = = 1")
    assert message.startswith("cnn.toml: it cannot be read as TOML, put it right: Invalid value (at line 1")


def test_a_path_is_taken_as_its_text_is_and_what_is_neither_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cnn.toml"
    path.write_text(text())
    assert read_space(path, ep="cpu") == read_space(str(path), ep="cpu")
    with pytest.raises(UsageError, match=r"^the search space is of type 'int', give the name of one or the path of"):
        read_space(3, ep="cpu")  # type: ignore[arg-type]


def test_what_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpaceError, match=r"bytes.toml: it cannot be read as TOML, put it right: 'utf-8' codec"):
        read_space(str(path), ep="cpu")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (text(schema="schema = 2"), "schema: input should be 1, it is 2"),
        (text(schema=""), "schema: this key is missing, add it"),
        (text(schema="schema = 1\nrule = 3"), "rule: 'rule' is unknown, did you mean 'rules'?"),
        (
            text(schema="schema = 1\nversion = 3"),
            "version: 'version' is unknown, choose from: accuracy, description, ep, groups,",
        ),
        (text(section="\nop_types = ['Conv']\n"), "ep.cpu.schemes: this key is missing, add it"),
        (text(section=SECTION + "optypes = []\n"), "ep.cpu.optypes: 'optypes' is unknown, did you mean 'op_types'?"),
        (text(scheme_a=SCHEME_A + "range = 3\n"), "schemes.a.range: 'range' is unknown, did you mean 'ranges'?"),
        (text(rule=RULE + "node = 3\n"), "rules[0].node: 'node' is unknown, did you mean 'nodes'?"),
        (text(group=GROUP + "named = 3\n"), "groups[0].named: 'named' is unknown, did you mean 'name'?"),
    ],
)
def test_an_unknown_or_missing_key_is_named(tmp_path: Path, content: str, expected: str) -> None:
    assert refused(tmp_path, content).startswith(f"cnn.toml, {expected}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (text(rule=RULE.replace("Softmax", "Covn")), "rules[0].op_types: 'Covn' is unknown, did you mean 'Conv'?"),
        (text(section=SECTION.replace("Add", "Ad")), "ep.cpu.op_types: 'Ad' is unknown, did you mean 'Add'?"),
        (text(section=SECTION.replace("Add", "GRU")), "ep.cpu.op_types: 'GRU' is unknown, choose from: Add, Average"),
        (text(section=SECTION.replace('"b"', '"c"')), "ep.cpu.schemes: 'c' is unknown, choose from: a, b"),
        (text(rule=RULE.replace("float", "flaot")), "rules[0].schemes: 'flaot' is unknown, did you mean 'float'?"),
        (
            text(section=SECTION.replace('"b"', '"float"')),
            "ep.cpu.schemes: 'float' is the model as it is and always allowed, leave it out",
        ),
        (
            text(more=f"[schemes.float]{SCHEME_A}"),
            "schemes: 'float' is the model as it is and always allowed, leave it out",
        ),
    ],
)
def test_an_unknown_operator_or_scheme_is_refused_with_a_suggestion(
    tmp_path: Path, content: str, expected: str
) -> None:
    assert refused(tmp_path, content).startswith(f"cnn.toml, {expected}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            text(scheme_a=SCHEME_A.replace("u8:tensor:asym", "u8")),
            "schemes.a.activation: 'u8' is no tensor format, write e.g. 'u8:tensor:asym' or 's8:channel:sym'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("u8:tensor:asym", "u8:channel:sym")),
            "schemes.a.activation: 'u8:channel:sym' is per-channel, activations are per-tensor,"
            " write e.g. 'u8:tensor:asym'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("s8:channel:sym", "s8:channel:asym")),
            "schemes.a.weight: 's8:channel:asym' is asymmetric, per-channel weights must be symmetric,"
            " write e.g. 's8:channel:sym'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("s8:channel:sym", "s8:tensor:asym:unsaturated")),
            "schemes.a.weight: 's8:tensor:asym:unsaturated': zero points take part in what saturates,"
            " write e.g. 's8:tensor:sym:unsaturated'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("s8:channel:sym", "u8:channel:sym:unsaturated")),
            "schemes.a.weight: 'u8:channel:sym:unsaturated': products of other types than s8 do not saturate,"
            " leave out ':unsaturated'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("u8:tensor:asym", "u8:tensor:asym:unsaturated")),
            "schemes.a.activation: 'u8:tensor:asym:unsaturated' says how weights are scaled, leave out ':unsaturated'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("s8:channel:sym", "s8:channel:sym:pow2") + 'rounding = "adaquant"\n'),
            "schemes.a: rounding = 'adaquant' learns scales, 's8:channel:sym:pow2' says what they are, write 'gptq'",
        ),
        (
            text(scheme_a=SCHEME_A + 'rounding = "adaquant"\nbias = "none"\n'),
            "schemes.a: rounding = 'adaquant' learns biases with the scales, leave out bias = 'none'",
        ),
        (
            text(scheme_a=SCHEME_A.replace("min-max", "minmax")),
            "schemes.a.ranges: 'minmax' is no range method, write 'min-max', 'percentile-99.99', 'entropy', 'mse' or"
            " 'dynamic'",
        ),
        (
            text(scheme_b=SCHEME_B.replace("linear", "liner")),
            "schemes.b.operators: input should be 'all' or 'linear', it is 'liner'",
        ),
        (
            text(scheme_a=SCHEME_A + 'bias = "means"\n'),
            "schemes.a.bias: input should be 'none' or 'mean', it is 'means'",
        ),
        (
            text(more='[schemes."p99.9"]\nactivation = 8\nweight = "u8:tensor:sym"\nranges = "mse"'),
            "schemes.\"p99.9\".activation: '8' is no tensor format,",
        ),
    ],
)
def test_a_scheme_that_cannot_be_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    assert refused(tmp_path, content).startswith(f"cnn.toml, {expected}")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            text(rule=RULE.replace("^/head/", "(")),
            "rules[0].nodes: '(' is no regular expression, put it right: missing ), unterminated subpattern",
        ),
        (text(group=GROUP.replace("^/head/", "[")), "groups[0].nodes: '[' is no regular expression, put it right: "),
        (text(rule='\nschemes = ["a"]\n'), "rules[0]: says neither op_types nor nodes, add one of them"),
        (text(rule=RULE.replace('"float", "a"', "")), "rules[0].schemes: is empty, name at least one"),
        (text(rule=RULE.replace('"Softmax"', "")), "rules[0].op_types: is empty, name at least one"),
        (
            text(rule=RULE.replace('["Softmax"]', '"Conv"')),
            "rules[0].op_types: input should be a valid list, it is 'Conv'",
        ),
        (text(section=SECTION.replace('"a", "b"', "")), "ep.cpu.schemes: is empty, name at least one"),
        (
            text(more=f'[schemes."p99.9"]{SCHEME_A}'),
            'schemes."p99.9": no section of ep lists it, add it to the schemes of one or leave it out',
        ),
        (text(section=SECTION.replace('"b"', '"a"')), "ep.cpu.schemes: 'a' is listed twice, leave one out"),
        (
            text(group=GROUP.replace('"head"', '""')),
            "groups[0].name: string should have at least 1 character, it is ''",
        ),
        (text(more=f"[[groups]]{GROUP}"), "groups: 'head' is the name of 2 groups, give each its own"),
        ("schema = 1\n[ep]\n[schemes]", "ep: dictionary should have at least 1 item"),
    ],
)
def test_a_rule_section_or_group_that_cannot_be_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    assert refused(tmp_path, content).startswith(f"cnn.toml, {expected}")
