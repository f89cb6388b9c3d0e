import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.fusions import divide_by_roots, fuse_hard_swish, lower_matmul, reduce_stacked, split_gemm
from tests.models import a_mlp, constants_of, feed_of, floats, model_of, op_types, outputs_of

HARD_SWISH = {"three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6}
SIGNATURE = "(float[1,2,4] x) => (float[1,2,4] y)"


def assert_equal_outputs(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    onnx.checker.check_model(after)
    feed = feed_of(before)
    for expected, found in zip(outputs_of(before, feed), outputs_of(after, feed), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def hard_swish(add: str, product: str, *, divided: str, division: str = "Div({}, six)") -> str:
    """Text of ``x * Clip(x + 3, 0, 6) / 6``, where the product, the gate or ``x`` is divided."""
    gate = f"a = Add({add}) c = Clip(a, zero, six)"
    if divided == "product":
        return f"{gate} p = Mul({product.format(x='x', gate='c')}) y = {division.format('p')}"
    if divided == "gate":
        return f"{gate} d = {division.format('c')} y = Mul({product.format(x='x', gate='d')})"
    return f"{gate} d = {division.format('x')} y = Mul({product.format(x='d', gate='c')})"


def test_a_hard_swish_of_doubles_stays_as_there_is_no_kernel_for_its_gate() -> None:
    constants = {name: np.array(value, np.float64) for name, value in HARD_SWISH.items()}
    model = model_of(
        SIGNATURE.replace("float", "double"), hard_swish("x, three", "{x}, {gate}", divided="product"), constants
    )
    assert fuse_hard_swish(model) is model


@pytest.mark.parametrize("add", ["x, three", "three, x"])
@pytest.mark.parametrize("product", ["{x}, {gate}", "{gate}, {x}"])
@pytest.mark.parametrize("divided", ["product", "gate", "x"])
@pytest.mark.parametrize("division", ["Div({}, six)", "Mul({}, sixth)", "Mul(sixth, {})"])
@pytest.mark.parametrize("shape", [(), (1, 1, 1)])
def test_every_spelling_of_hard_swish_becomes_a_gate_and_a_product(
    add: str, product: str, divided: str, division: str, shape: tuple[int, ...]
) -> None:
    constants = {
        name: np.full(shape if name == "three" else (), value, np.float32) for name, value in HARD_SWISH.items()
    }
    model = model_of(SIGNATURE, hard_swish(add, product, divided=divided, division=division), constants)
    fused = fuse_hard_swish(model)
    assert op_types(fused) == ["HardSigmoid", "Mul"]
    assert fused.graph.node[1].output[0] == "y"
    assert not constants_of(fused)
    assert op_types(model) != op_types(fused)
    assert_equal_outputs(model, fused)


@pytest.mark.parametrize(
    "body",
    [
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c) y = Div(p, three)",
        "a = Add(x, six) c = Clip(a, zero, six) p = Mul(x, c) y = Div(p, six)",
        "a = Add(x, three) c = Clip(a, three, six) p = Mul(x, c) y = Div(p, six)",
        "a = Add(x, three) c = Clip(a, zero) p = Mul(x, c) y = Div(p, six)",
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(a, c) y = Div(p, six)",
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(c, c) y = Div(p, six)",
        "s = Relu(x) a = Add(s, three) c = Clip(a, zero, six) p = Mul(x, c) y = Div(p, six)",
        "a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c) y = Div(six, p)",
        "a = Add(x, three) c = Clip(a, zero, six) d = Div(x, six) p = Mul(d, c) y = Add(p, d)",
        "a = Add(x, three) c = Clip(a, zero, six) d = Mul(x, three) y = Mul(d, c)",
        "a = Add(x, three) c = Clip(a, zero, six) d = Div(x, six) e = Div(c, six) y = Mul(d, e)",
    ],
)
def test_what_only_resembles_a_hard_swish_stays(body: str) -> None:
    model = model_of(SIGNATURE, body, HARD_SWISH)
    fused = fuse_hard_swish(model)
    assert op_types(fused) == op_types(model)
    assert_equal_outputs(model, fused)


@pytest.mark.parametrize("tensor", ["a", "c", "p"])
@pytest.mark.parametrize("is_output", [True, False])
def test_a_hard_swish_of_which_a_part_is_read_elsewhere_stays(tensor: str, is_output: bool) -> None:
    body, name = hard_swish("x, three", "{x}, {gate}", divided="product"), tensor
    if not is_output:
        body, name = f"{body} z = Sigmoid({tensor})", "z"
    model = model_of(f"(float[1,2,4] x) => (float[1,2,4] y, float[1,2,4] {name})", body, HARD_SWISH)
    fused = fuse_hard_swish(model)
    assert op_types(fused) == op_types(model)
    assert_equal_outputs(model, fused)


@pytest.mark.parametrize("size", ["4", "N"])
def test_constants_that_widen_a_hard_swish_leave_it_as_it_is(size: str) -> None:
    constants: dict[str, npt.NDArray[np.generic] | float] = {**HARD_SWISH, "three": np.full((1, 1), 3, np.float32)}
    signature = f"(float[{size}] x) => (float[1,{size}] y)"
    model = model_of(signature, hard_swish("x, three", "{x}, {gate}", divided="product"), constants)
    fused = fuse_hard_swish(model)
    assert op_types(fused) == op_types(model)
    assert_equal_outputs(model, fused)


def test_a_hard_swish_of_any_size_is_fused() -> None:
    body = hard_swish("x, three", "{x}, {gate}", divided="product")
    assert op_types(fuse_hard_swish(model_of("(float[1,N] x) => (float[1,N] y)", body, HARD_SWISH))) == [
        "HardSigmoid",
        "Mul",
    ]


def test_chained_hard_swishes_are_all_fused_and_keep_their_inputs() -> None:
    body = """a = Add(x, three) c = Clip(a, zero, six) p = Mul(x, c) q = Div(p, six)
              e = Add(q, three) f = Clip(e, zero, six) g = Div(f, six) h = Mul(q, g) y = Add(h, q)"""
    model = model_of(SIGNATURE, body, HARD_SWISH)
    fused = fuse_hard_swish(model)
    assert op_types(fused) == ["HardSigmoid", "Mul", "HardSigmoid", "Mul", "Add"]
    assert_equal_outputs(model, fused)


def matmul_model(shape: tuple[int, ...], bias: str | None, bias_shape: tuple[int, ...] = (5,)) -> onnx.ModelProto:
    listed, out = ",".join(map(str, shape)), ",".join(map(str, (*shape[:-1], 5)))
    body = "y = MatMul(x, w)" if bias is None else f"p = MatMul(x, w) y = Add({bias})"
    return model_of(f"(float[{listed}] x) => (float[{out}] y)", body, {"w": floats(3, 5), "b": floats(*bias_shape)})


@pytest.mark.parametrize("bias", [None, "p, b", "b, p"])
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (2, 4, 3), (2, 1, 4, 3)])
def test_a_matmul_with_a_constant_matrix_becomes_a_gemm_between_reshapes_unless_it_is_2d(
    shape: tuple[int, ...], bias: str | None
) -> None:
    model = matmul_model(shape, bias)
    lowered = lower_matmul(model)
    assert op_types(lowered) == (["Gemm"] if len(shape) == 2 else ["Reshape", "Gemm", "Reshape"])
    (gemm,) = (node for node in lowered.graph.node if node.op_type == "Gemm")
    assert len(gemm.input) == (2 if bias is None else 3)
    assert gemm.name == model.graph.node[0].name
    assert_equal_outputs(model, lowered)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(lambda dims: (*dims, 3)),
    bias=st.sampled_from([None, "p, b", "b, p"]),
)
def test_lowering_leaves_the_output_as_it_is(shape: tuple[int, ...], bias: str | None) -> None:
    model = matmul_model(shape, bias)
    assert_equal_outputs(model, lower_matmul(model))


@pytest.mark.parametrize("bias_shape", [(4, 1), (1,), (4, 5), ()])
def test_a_summand_that_is_no_bias_stays_an_add(bias_shape: tuple[int, ...]) -> None:
    model = matmul_model((2, 4, 3), "p, b", bias_shape)
    lowered = lower_matmul(model)
    assert op_types(lowered) == ["Reshape", "Gemm", "Reshape", "Add"]
    assert_equal_outputs(model, lowered)


@pytest.mark.parametrize("shape", [(4, 3), (2, 4, 3)])
def test_a_bias_may_be_a_row(shape: tuple[int, ...]) -> None:
    model = matmul_model(shape, "p, b", (1, 5))
    lowered = lower_matmul(model)
    assert "Add" not in op_types(lowered)
    assert_equal_outputs(model, lowered)


def test_a_product_without_elements_stays_as_it_is() -> None:
    """A size of 0 in a Reshape is the size that the tensor had."""
    model = matmul_model((2, 0, 3), None)
    assert lower_matmul(model) == model


def test_a_product_that_is_read_twice_keeps_its_bias_apart() -> None:
    model = model_of(
        "(float[2,4,3] x) => (float[2,4,5] y, float[2,4,5] p)",
        "p = MatMul(x, w) y = Add(p, b)",
        {"w": floats(3, 5), "b": floats(5)},
    )
    lowered = lower_matmul(model)
    assert op_types(lowered) == ["Reshape", "Gemm", "Reshape", "Add"]
    assert_equal_outputs(model, lowered)


def test_a_matmul_of_which_two_sizes_are_not_known_stays() -> None:
    assert op_types(lower_matmul(a_mlp())) == ["MatMul", "Add", "Relu", "MatMul"]


@pytest.mark.parametrize("sizes", ["1,T,3", "B,1,3", "2,T,3", "N,3", "2,1,T,3"])
@pytest.mark.parametrize("bias", [None, "p, b"])
def test_one_size_may_be_unknown(sizes: str, bias: str | None) -> None:
    body = "y = MatMul(x, w)" if bias is None else f"p = MatMul(x, w) y = Add({bias})"
    model = model_of(f"(float[{sizes}] x) => (float[{sizes[:-1]}5] y)", body, {"w": floats(3, 5), "b": floats(5)})
    lowered = infer_shapes(lower_matmul(model))
    assert "MatMul" not in op_types(lowered)
    assert Graph(lowered).sizes(TensorName("y")) == Graph(model).sizes(TensorName("y"))
    for length in (1, 7):
        feed = {"x": floats(*(int(size) if size.isdigit() else length for size in sizes.split(",")))}
        (found,), (expected,) = (outputs_of(each, feed) for each in (lowered, model))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("signature", "body", "weight"),
    [
        ("(float[2,3] x, float[3,5] w) => (float[2,5] y)", "y = MatMul(x, w)", None),
        ("(float[5,2] x) => (float[3,2] y)", "y = MatMul(w, x)", floats(3, 5)),
        ("(float[2,4,3] x) => (float[2,4,5] y)", "y = MatMul(x, w)", floats(2, 3, 5)),
        ("(float[4,3] x) => (float[4] y)", "y = MatMul(x, w)", floats(3)),
        ("(float[3] x) => (float[5] y)", "y = MatMul(x, w)", floats(3, 5)),
        ("(int32[2,3] x) => (int32[2,5] y)", "y = MatMul(x, w)", np.ones((3, 5), np.int32)),
    ],
    ids=["dynamic matrix", "constant first operand", "three dimensions", "vector", "vector input", "integers"],
)
def test_a_matmul_that_no_gemm_can_replace_stays(
    signature: str, body: str, weight: npt.NDArray[np.generic] | None
) -> None:
    model = model_of(signature, body, {} if weight is None else {"w": weight})
    assert op_types(lower_matmul(model)) == ["MatMul"]


@pytest.mark.parametrize(("opset", "is_lowered"), [(10, False), (11, True)])
def test_before_opset_11_only_a_matmul_with_a_bias_becomes_a_gemm(opset: int, is_lowered: bool) -> None:
    body, constants = "a = MatMul(x, w) b = MatMul(a, v) y = Add(b, c)", {"w": floats(3, 3), "v": floats(3, 5)}
    model = model_of("(float[2,3] x) => (float[2,5] y)", body, {**constants, "c": floats(5)}, opset=opset)
    lowered = lower_matmul(model)
    assert op_types(lowered) == ["Gemm" if is_lowered else "MatMul", "Gemm"]
    assert_equal_outputs(model, lowered)


def test_new_tensors_take_no_name_that_the_model_has() -> None:
    taken = ["m_product", "m_shape_in", "m_shape_out", "x_for_m", "y_HardSigmoid"]
    body = "m = MatMul(x, w) a = Add(m, three) c = Clip(a, zero, six) p = Mul(m, c) y = Div(p, six)"
    others = " ".join(f"{name} = Identity(x)" for name in taken)
    outputs = ", ".join(f"float[2,2,4] {name}" for name in taken)
    model = model_of(
        f"(float[2,2,4] x) => (float[2,2,4] y, {outputs})", f"{body} {others}", {**HARD_SWISH, "w": floats(4, 4)}
    )
    for node in model.graph.node[5:]:
        node.name = f"other_{node.name}"
    fused = lower_matmul(fuse_hard_swish(model))
    assert op_types(fused)[:5] == ["Reshape", "Gemm", "Reshape", "HardSigmoid", "Mul"]
    assert_equal_outputs(model, fused)


def test_new_tensors_of_several_products_have_names_of_their_own() -> None:
    model = model_of(
        "(float[2,2,3] x) => (float[2,2,5] y, float[2,2,5] z)",
        "x_for_b = Relu(x) y = MatMul(x, w) z = MatMul(x_for_b, w)",
        {"w": floats(3, 5)},
    )
    for node, name in zip(model.graph.node[1:], ("b_for_c", "c"), strict=True):
        node.name = name
    assert_equal_outputs(model, lower_matmul(model))


@pytest.mark.parametrize(
    ("gemm", "expected"),
    [
        ("Gemm(x, w, c)", ["MatMul", "Add"]),
        ("Gemm(x, d, c)", ["MatMul", "Add"]),
        ("Gemm<transB=1>(x, w, c)", ["Gemm", "Add"]),
        ("Gemm<transA=1>(x, w, c)", ["Gemm", "Add"]),
        ("Gemm(x, w, whole)", ["MatMul", "Add"]),
        ("Gemm(x, w, rows)", ["MatMul", "Add"]),
        ("Gemm(x, w, bias)", ["Gemm"]),
        ("Gemm(x, w)", ["Gemm"]),
        ("Gemm<alpha=2.0>(x, w, c)", ["Gemm"]),
        ("Gemm<beta=2.0>(x, w, c)", ["Gemm"]),
    ],
)
def test_a_gemm_that_adds_more_than_a_bias_becomes_a_product_and_an_add(gemm: str, expected: list[str]) -> None:
    constants = {"w": floats(4, 4), "whole": floats(4, 4), "rows": floats(4, 1), "bias": floats(4)}
    model = model_of("(float[4,4] x, float[4,4] c, float[4,4] d) => (float[4,4] y)", f"y = {gemm}", constants)
    split = split_gemm(model)
    assert op_types(split) == expected
    assert_equal_outputs(model, split)


def test_before_opset_11_a_transposed_gemm_stays() -> None:
    body = "y = Gemm<transB=1>(x, w, c)"
    model = model_of("(float[4,4] x, float[4,4] c) => (float[4,4] y)", body, {"w": floats(4, 4)}, opset=10)
    assert op_types(split_gemm(model)) == ["Gemm"]


PARTS = "a = Relu(x) b = Neg(x) c = Sigmoid(x)"


def stacked(
    axis: int, reduction: str, *, parts: Sequence[str] = "abc", outputs: str = "float[] y", opset: int = 21
) -> onnx.ModelProto:
    """As ``torch.stack((a, b, c), axis).max(axis).values`` is exported."""
    unsqueezed = " ".join(
        f"u{part} = Unsqueeze({part}, axis)" if opset >= 13 else f"u{part} = Unsqueeze<axes=[{axis}]>({part})"
        for part in parts
    )
    body = f"{PARTS} {unsqueezed} s = Concat<axis={axis}>({', '.join(f'u{part}' for part in parts)}) {reduction}"
    constants = {"axis": np.array([axis]), "other": np.array([axis - 1])}
    used = {name: value for name, value in constants.items() if re.search(rf"\b{name}\)", body)}
    return model_of(f"(float[2,3,4] x) => ({outputs})", body, used, opset=opset)


@pytest.mark.parametrize("op_type", ["Max", "Min"])
@pytest.mark.parametrize("axis", [0, 1, 3, -1, -4])
def test_the_largest_of_a_stack_is_that_of_its_parts(op_type: str, axis: int) -> None:
    model = stacked(axis, f"y = Reduce{op_type}<keepdims=0>(s, axis)")
    found = reduce_stacked(model)
    assert op_types(found) == ["Relu", "Neg", "Sigmoid", op_type]
    assert_equal_outputs(model, found)


def test_axes_may_be_attributes() -> None:
    model = stacked(2, "y = ReduceMax<keepdims=0, axes=[2]>(s)", opset=11)
    found = reduce_stacked(model)
    assert op_types(found) == ["Relu", "Neg", "Sigmoid", "Max"]
    assert_equal_outputs(model, found)


def test_a_part_that_others_read_too_stays() -> None:
    model = stacked(1, "y = ReduceMax<keepdims=0>(s, axis) z = Neg(ua)", outputs="float[] y, float[] z")
    found = reduce_stacked(model)
    assert op_types(found) == ["Relu", "Neg", "Sigmoid", "Unsqueeze", "Max", "Neg"]
    assert_equal_outputs(model, found)


@pytest.mark.parametrize(
    "model",
    [
        stacked(1, "y = ReduceMax<keepdims=1>(s, axis)"),
        stacked(1, "y = ReduceMax<keepdims=0>(s, other)"),
        stacked(1, "y = ReduceMax<keepdims=0>(s)"),
        stacked(1, "y = ReduceMean<keepdims=0>(s, axis)"),
        stacked(1, "y = ReduceMax<keepdims=0>(s, axis) z = Neg(s)", outputs="float[] y, float[] z"),
        model_of(
            "(float[2,3] x) => (float[] y)",
            "a = Unsqueeze(x, axis) b = Relu(a) s = Concat<axis=1>(a, b) y = ReduceMax<keepdims=0>(s, axis)",
            {"axis": np.array([1])},
        ),
    ],
    ids=["kept", "other axis", "all axes", "mean", "read", "not stacked"],
)
def test_other_reductions_stay(model: onnx.ModelProto) -> None:
    assert reduce_stacked(model) is model


ROOT = "sq = Mul(x, x) m = ReduceMean(sq, axes) v = Add(m, epsilon) s = Sqrt(v) f = Reciprocal(s)"
NORM = {"axes": np.array([-1]), "epsilon": np.array(1e-5, np.float32), "scale": floats(8)}


@pytest.mark.parametrize("end", ["n = Mul(x, f) y = Mul(n, scale)", "n = Mul(f, x) y = Mul(scale, n)"])
def test_a_norm_by_a_reciprocal_becomes_one_by_a_division(end: str) -> None:
    model = model_of("(float[2,3,8] x) => (float[2,3,8] y)", f"{ROOT} {end}", NORM)
    found = divide_by_roots(model)
    assert op_types(found) == ["Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]
    feed = feed_of(model)
    np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        (f"{ROOT} y = Mul(x, f) z = Exp(f)", ["axes", "epsilon"]),
        (f"{ROOT} y = Mul(f, f)", ["axes", "epsilon"]),
        (f"{ROOT} t = Sqrt(v) g = Reciprocal(t) y = Mul(f, g)", ["axes", "epsilon"]),
        ("s = Sqrt(x) f = Reciprocal(s) y = Mul(x, f)", []),
        ("s = Exp(x) f = Reciprocal(s) y = Mul(x, f)", []),
    ],
    ids=["read twice", "squared", "two of them", "no mean", "no root"],
)
def test_other_reciprocals_stay(body: str, constants: list[str]) -> None:
    outputs = "float[2,3,8] y, float[2,3,1] z" if "z =" in body else "float[2,3,8] y"
    model = model_of(f"(float[2,3,8] x) => ({outputs})", body, {name: NORM[name] for name in constants})
    assert divide_by_roots(model) is model
