from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoquant.model.copies import copy_of
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.einsum import lower_einsum
from tests.models import Floats, constants_of, floats, model_of, op_types, outputs_of

SIZES = dict(zip("abcdefghijklmnopqrstuvwxyz", (2, 5, 6, 7, 3, 2, 4, 3, 5, 6) * 3, strict=False))


def labels_of(equation: str) -> tuple[str, str, str]:
    given, arrow, output = equation.replace(" ", "").partition("->")
    first, second = given.split(",")
    return first, second, output if arrow else "".join(sorted(set(first) ^ set(second)))


@dataclass(frozen=True)
class Einsum:
    """``y = Einsum(x, w)``; which operands are constants, and which labels have a dynamic size."""

    equation: str
    sizes: Mapping[str, int]
    constants: str = ""
    dynamic: str = ""

    @property
    def operands(self) -> dict[str, Floats]:
        return {
            name: floats(*(self.sizes[label] for label in own), seed=i)
            for i, (name, own) in enumerate(zip("xw", labels_of(self.equation)[:2], strict=True))
        }

    @property
    def feed(self) -> dict[str, Floats]:
        return {name: values for name, values in self.operands.items() if name not in self.constants}

    @property
    def expected(self) -> npt.NDArray[np.float64]:
        found: npt.NDArray[np.float64] = np.einsum(
            self.equation, *(values.astype(float) for values in self.operands.values())
        )
        return found

    @property
    def model(self) -> onnx.ModelProto:
        x, w, y = (
            f"float[{','.join(label if label in self.dynamic else str(self.sizes[label]) for label in labels)}] {name}"
            for name, labels in zip("xwy", labels_of(self.equation), strict=True)
        )
        read = ", ".join(given for name, given in (("x", x), ("w", w)) if name not in self.constants)
        constants = {name: self.operands[name] for name in self.constants}
        return model_of(f"({read}) => ({y})", f'y = Einsum<equation="{self.equation}">(x, w)', constants)


def structure(model: onnx.ModelProto) -> list[str]:
    """One line a node: the axes of a Transpose, the shape of a Reshape, that of a constant which a MatMul reads."""
    constants = constants_of(model)
    lines = []
    for node in model.graph.node:
        details = [
            str(constants[name].tolist() if node.op_type == "Reshape" else constants[name].shape)
            for name in node.input
            if name in constants
        ]
        details += [str(list(helper.get_attribute_value(a))) for a in node.attribute if a.name == "perm"]
        lines.append(" ".join([node.op_type, *details]))
    return lines


def assert_computes(model: onnx.ModelProto, einsum: Einsum) -> None:
    onnx.checker.check_model(model, full_check=True)
    (found,) = outputs_of(model, einsum.feed)
    assert found.shape == einsum.expected.shape
    np.testing.assert_allclose(found, einsum.expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "constants", "expected"),
    [
        ("btc,chd->bhtd", "w", ["MatMul (6, 21)", "Reshape [5, 6, 3, 7]", "Transpose [0, 2, 1, 3]"]),
        ("btc,hdc->bthd", "w", ["MatMul (6, 21)", "Reshape [5, 6, 3, 7]"]),
        ("hdc,btc->bhtd", "x", ["MatMul (6, 21)", "Reshape [5, 6, 3, 7]", "Transpose [0, 2, 1, 3]"]),
        ("btc,chd->bhtd", "", ["Reshape [6, 21]", "MatMul", "Reshape [5, 6, 3, 7]", "Transpose [0, 2, 1, 3]"]),
        ("bthd,hdc->btc", "w", ["Reshape [5, 6, 21]", "MatMul (21, 6)"]),
        ("bthd,hdc->btc", "", ["Reshape [5, 6, 21]", "Reshape [21, 6]", "MatMul"]),
        ("btc,cd->btd", "w", ["MatMul (6, 7)"]),
        ("btc,dc", "w", ["MatMul (6, 7)", "Transpose [0, 2, 1]"]),
        ("oc,bcl->bol", "x", ["Transpose [0, 2, 1]", "MatMul (6, 3)", "Transpose [0, 2, 1]"]),
        ("nctv,vw->nctw", "w", ["MatMul (5, 6)"]),
        ("bhid,bhjd->bhij", "", ["Transpose [0, 1, 3, 2]", "MatMul"]),
        ("bhij,bhjd->bhid", "", ["MatMul"]),
        ("bhij,bhjd->bihd", "", ["MatMul", "Transpose [0, 2, 1, 3]"]),
        ("bihd,bjhd->bhij", "", ["Transpose [0, 2, 1, 3]", "Transpose [0, 2, 3, 1]", "MatMul"]),
        ("bhd,bhsd->bhs", "", ["Reshape [5, 3, 7, 1]", "MatMul", "Reshape [5, 3, 5]"]),
        ("bgi,gio->bgo", "w", ["Transpose [1, 0, 2]", "MatMul (4, 5, 3)", "Transpose [1, 0, 2]"]),
        ("c,c->", "w", ["MatMul (6, 1)", "Reshape []"]),
    ],
)
def test_products_become_what_moves_values_least_often(equation: str, constants: str, expected: list[str]) -> None:
    einsum = Einsum(equation, SIZES, constants)
    lowered = lower_einsum(einsum.model)
    assert structure(lowered) == expected
    assert_computes(lowered, einsum)


def test_dimensions_of_size_1_are_reshaped_and_not_transposed() -> None:
    einsum = Einsum("btc,chd->bhtd", SIZES | {"t": 1}, "w")
    lowered = lower_einsum(einsum.model)
    assert structure(lowered) == ["MatMul (6, 21)", "Reshape [5, 3, 1, 7]"]
    assert_computes(lowered, einsum)


@pytest.mark.parametrize(
    ("equation", "dynamic", "expected"),
    [
        ("btc,chd->bthd", "t", ["MatMul (6, 21)", "Reshape [5, -1, 3, 7]"]),
        ("btc,cd->btd", "bt", ["MatMul (6, 7)"]),
        ("btc,chd->bthd", "bt", ["Einsum (6, 3, 7)"]),
    ],
)
def test_one_dynamic_dimension_may_be_reshaped(equation: str, dynamic: str, expected: list[str]) -> None:
    einsum = Einsum(equation, SIZES, "w", dynamic)
    lowered = lower_einsum(einsum.model)
    assert structure(lowered) == expected
    assert_computes(lowered, einsum)


def test_products_of_dynamic_activations_need_no_reshape() -> None:
    einsum = Einsum("bhid,bhjd->bhij", SIZES, dynamic="bij")
    lowered = lower_einsum(einsum.model)
    assert structure(lowered) == ["Transpose [0, 1, 3, 2]", "MatMul"]
    assert_computes(lowered, einsum)


def test_the_product_takes_the_name_of_the_node_and_the_output_keeps_its_own() -> None:
    model = Einsum("btc,chd->bhtd", SIZES, "w").model
    model.graph.node[0].name = "query"
    lowered = lower_einsum(model)
    assert [node.name for node in lowered.graph.node] == ["query", "query_product_Reshape", "query_product_Transpose"]
    assert lowered.graph.node[-1].output[0] == "y"
    assert list(constants_of(lowered)) == ["w_rearranged", "query_product_shape"]


def test_lowering_leaves_its_argument_as_it_is() -> None:
    model = Einsum("btc,chd->bhtd", SIZES, "w").model
    before = copy_of(model)
    assert lower_einsum(model) != before
    assert model == before


def test_a_constant_that_others_read_stays_for_them_and_one_copy_is_for_all_who_read_it_so() -> None:
    body = """a = Einsum<equation="tc,chd->htd">(x, w) b = Einsum<equation="tc,chd->thd">(x, w)
              f = Flatten(w) c = Gemm<transB=1>(f, f)"""
    model = model_of("(float[5,4] x) => (float[3,5,2] a, float[5,3,2] b, float[4,4] c)", body, {"w": floats(4, 3, 2)})
    lowered = lower_einsum(model)
    assert op_types(lowered) == ["MatMul", "Reshape", "Transpose", "MatMul", "Reshape", "Flatten", "Gemm"]
    assert {name for name in constants_of(lowered) if name.startswith("w")} == {"w", "w_rearranged"}
    feed = {"x": floats(5, 4)}
    for expected, found in zip(outputs_of(model, feed), outputs_of(lowered, feed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "x", "w"),
    [
        ("ij,kj->i", "3,4", "5,4"),
        ("ij,jk->k", "3,4", "4,5"),
        ("ii,ij->ij", "3,3", "3,4"),
        ("...j,jk->...k", "3,4", "4,5"),
        ("i,j->ij", "3", "4"),
        ("ij,ij->ij", "3,4", "3,4"),
        ("ij,jk->ik", "3,1", "4,5"),
        ("bij,bjk->bik", "1,3,4", "2,4,5"),
        ("bij,bjk->bik", "n,3,4", "1,4,5"),
        ("ij,jk->ik", "3,0", "0,5"),
    ],
)
def test_what_is_no_product_of_matrices_stays(equation: str, x: str, w: str) -> None:
    n_dimensions = len(equation.partition("->")[2].replace("...", "i"))
    output = ",".join("abcdefg"[:n_dimensions])
    model = model_of(f"(float[{x}] x, float[{w}] w) => (float[{output}] y)", f'y = Einsum<equation="{equation}">(x, w)')
    assert lower_einsum(model) is model


@pytest.mark.parametrize("equation", ["ij->ji", "ij,jk,kl->il"])
def test_other_numbers_of_operands_stay(equation: str) -> None:
    read = ", ".join(["x"] * (equation.count(",") + 1))
    model = model_of("(float[4,4] x) => (float[4,4] y)", f'y = Einsum<equation="{equation}">({read})')
    assert lower_einsum(model) is model


@pytest.mark.parametrize("elem", ["double", "int64"])
def test_other_types_stay(elem: str) -> None:
    body = 'y = Einsum<equation="ij,jk->ik">(x, w)'
    model = model_of(f"({elem}[3,4] x, {elem}[4,5] w) => ({elem}[3,5] y)", body)
    assert lower_einsum(model) is model


def test_a_product_of_constants_stays_for_folding() -> None:
    model = Einsum("ij,jk->ik", SIZES, "xw").model
    assert lower_einsum(model) is model


@st.composite
def einsums(draw: st.DrawFn) -> Einsum:
    """Products of matrices with up to two labels of each kind, in any order."""
    letters = draw(st.permutations("abcdefgh"))
    numbers = [draw(st.integers(least, 2)) for least in (0, 1, 0, 0)]
    batch, summed, rows, columns = (letters[2 * i : 2 * i + n] for i, n in enumerate(numbers))
    first, second, output = (
        "".join(draw(st.permutations(labels)))
        for labels in ([*batch, *rows, *summed], [*batch, *summed, *columns], [*batch, *rows, *columns])
    )
    equation = f"{first},{second}->{output}"
    if not batch and draw(st.booleans()):
        equation = draw(st.sampled_from([f"{first},{second}", f" {first} , {second}"]))
    sizes = {label: draw(st.integers(1, 4)) for label in letters}
    constants = draw(st.sampled_from(["", "x", "w"]))
    dynamic = draw(st.sets(st.sampled_from([*batch, *summed, *rows, *columns]), max_size=2))
    in_constant = {"": "", "x": first, "w": second}[constants]
    return Einsum(equation, sizes, constants, "".join(sorted(dynamic - set(in_constant))))


@settings(max_examples=100)
@given(einsums())
def test_products_stay_equal_whatever_the_order_of_labels(einsum: Einsum) -> None:
    lowered = lower_einsum(einsum.model)
    assert_computes(lowered, einsum)
    if not einsum.dynamic:
        assert op_types(lowered).count("MatMul") == 1
        assert "Einsum" not in op_types(lowered)


@settings(max_examples=100)
@given(einsums())
def test_no_step_does_nothing_and_a_constant_without_batch_is_a_matrix(einsum: Einsum) -> None:
    lowered = infer_shapes(lower_einsum(einsum.model))
    values = {v.name: v for v in (*lowered.graph.input, *lowered.graph.value_info, *lowered.graph.output)}
    shapes = {name: [d.dim_value for d in v.type.tensor_type.shape.dim] for name, v in values.items()}
    for node in lowered.graph.node:
        if node.op_type == "MatMul" and einsum.constants:
            first, second, output = (set(labels) for labels in labels_of(einsum.equation))
            assert node.input[1] in constants_of(lowered)
            assert constants_of(lowered)[node.input[1]].ndim == 2 or first & second & output
        if node.op_type == "Reshape" and not einsum.dynamic:
            assert shapes[node.input[0]] != shapes[node.output[0]]
        if node.op_type == "Transpose" and not einsum.dynamic:
            moved = [axis for axis in node.attribute[0].ints if shapes[node.input[0]][axis] != 1]
            assert moved != sorted(moved)
