"""Vectors in rows that stay a matrix."""

import cProfile
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.matrices import keep_matrices
from tests.models import Array, floats, model_of, op_types
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(4, 4, scale=0.5),
    "b": floats(4),
    "rows": np.array([6, 4]),
    "back": np.array([2, 3, 4]),
    "heads": np.array([2, 3, 2, 2]),
    "copied": np.array([0, 0, -1]),
    "first": np.array([0]),
    "last": np.array([-1]),
    "two": 2.0,
    "each": floats(4, seed=1),
    "wide": floats(1, 1, 4, seed=2),
    "whole": floats(2, 3, 4, seed=3),
    "some": floats(3, 4, seed=4),
    "column": floats(3, 1, seed=5),
    "one": 0.5,
    "low": -0.5,
}
PRODUCT = "{r} = Reshape({x}, rows) {g} = Gemm({r}, w, b) {y} = Reshape({g}, back)"


def product(x: str, y: str) -> str:
    return PRODUCT.format(x=x, y=y, r=f"{y}r", g=f"{y}g")


def a_model(body: str, outputs: str = "float[] y", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[2,3,4] x) => ({outputs})", body, CONSTANTS, opset=opset)


def becomes(body: str, expected: list[str], outputs: str = "float[] y", opset: int = 21) -> onnx.ModelProto:
    found = rewritten(keep_matrices, a_model(body, outputs, opset), rtol=1e-5, atol=1e-6)
    assert op_types(found) == expected
    return found


BETWEEN = {
    "an activation": "s = Relu(a)",
    "several": "p = Gelu(a) q = Mul(p, each) r = Sub(one, q) s = Clip(r, low)",
    "a vector of more dimensions": "s = Add(wide, a)",
    "all values": "s = Mul(a, whole)",
    "a norm": "s = LayerNormalization(a, each, b)",
    "a norm by its place": "s = LayerNormalization<axis=2>(a, each)",
    "a norm without means": "s = RMSNormalization(a, each)",
    "twice the same": "s = Mul(a, a)",
    "a norm that is written out": "p = Pow(a, two) m = ReduceMean(p, last) q = Sqrt(m) r = Div(a, q) s = Mul(r, each)",
    "a norm by an attribute": "m = ReduceL2<axes=[2]>(a) s = Div(a, m)",
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_is_between_two_products_is_computed_of_matrices(between: str) -> None:
    body = f"{product('x', 'a')} {between} {product('s', 'y')}"
    opset = 13 if "axes=" in between else 23 if "RMS" in between else 21
    operators = [node.op_type for node in a_model(body, opset=opset).graph.node][3:-3]
    becomes(body, ["Reshape", "Gemm", *operators, "Gemm", "Reshape"], opset=opset)


STAY = {
    "constants of some rows": "s = Add(a, some)",
    "a number for each row": "s = Mul(a, column)",
    "along another axis": "s = Softmax<axis=1>(a)",
    "a norm of more axes": "s = LayerNormalization<axis=1>(a, some)",
    "a norm with factors for some rows": "s = LayerNormalization(a, some, b)",
    "a norm that tells means": "s, mean = LayerNormalization(a, each)",
    "rows of another tensor": "m = ReduceMean(x, first) s = Add(a, m)",
    "matrices": "s = MatMul(a, w)",
}


@pytest.mark.parametrize("between", STAY.values(), ids=STAY)
def test_others_stay(between: str) -> None:
    model = a_model(f"{product('x', 'a')} {between} {product('s', 'y')}")
    assert keep_matrices(model) is model


def test_a_residual_stream_is_a_matrix_and_heads_are_made_of_it() -> None:
    body = (
        f"n = LayerNormalization(x, each, b) {product('n', 'a')} h = Reshape(a, heads)"
        " t = Transpose<perm=[0,2,1,3]>(h) u = Transpose<perm=[0,2,1,3]>(t) v = Reshape(u, copied)"
        f" {product('v', 'o')} s = Add(o, x) m = LayerNormalization(s, each, b) {product('m', 'p')} y = Add(p, s)"
    )
    found = becomes(
        body,
        [
            *("Reshape", "LayerNormalization", "Gemm", "Reshape", "Transpose", "Transpose", "Reshape", "Gemm", "Add"),
            *("LayerNormalization", "Gemm", "Add", "Reshape"),
        ],
    )
    assert [node.output[0] for node in found.graph.node][-1] == "y"


def test_what_is_read_otherwise_keeps_its_name_and_shape() -> None:
    body = f"{product('x', 'a')} s = Relu(a) y = ReduceSum(s, first) {product('s', 'p')} {product('s', 'q')}"
    found = becomes(
        f"{body} z = Add(p, q)",
        ["Reshape", "Gemm", "Relu", "Reshape", "ReduceSum", "Gemm", "Gemm", "Add", "Reshape"],
        outputs="float[] y, float[] z",
    )
    assert "s" in {name for node in found.graph.node for name in node.output}


def test_outputs_of_the_graph_keep_their_names() -> None:
    body = f"{product('x', 'a')} s = Relu(a) r = Reshape(s, rows) t = Neg(s) {product('t', 'y')}"
    found = becomes(
        body,
        ["Reshape", "Gemm", "Relu", "Reshape", "Reshape", "Neg", "Gemm", "Reshape"],
        outputs="float[] y, float[] s, float[] r",
    )
    assert found.graph.node[5].input[0] == "s_rows"


def test_a_constant_of_all_rows_is_written_once() -> None:
    body = f"{product('x', 'a')} r = Add(a, whole) s = Mul(r, whole) {product('s', 'y')}"
    found = becomes(body, ["Reshape", "Gemm", "Add", "Mul", "Gemm", "Reshape"])
    assert [tensor.name for tensor in found.graph.initializer if "whole" in tensor.name] == ["whole_by_rows"]


def test_reshapes_that_write_the_same_count_once() -> None:
    norm = "n = LayerNormalization(x, each, b)"
    three = " ".join(f"r{i} = Reshape(n, rows) g{i} = Gemm(r{i}, w, b)" for i in range(3))
    model = a_model(f"{norm} {three} s = Softmax<axis=1>(n) t = Add(g0, g1) y = Add(t, g2)", "float[] y, float[] s")
    assert keep_matrices(model) is model, "onnxruntime runs one of the three"


def test_a_new_reshape_takes_no_name_of_a_node() -> None:
    body = f"{product('x', 'a')} s = Relu(a) t = Neg(s) {product('t', 'p')} {product('s', 'q')} y = Add(p, q)"
    model = a_model(body.replace("Neg(s)", "Softmax<axis=1>(s)"), "float[] y, float[] s")
    next(node for node in model.graph.node if node.op_type == "Softmax").name = "s_shape"
    found = keep_matrices(model)
    names = [node.name for node in found.graph.node]
    assert len(set(names)) == len(names)
    assert {"s_shape", "s_shape_"} <= set(names)


def test_long_chains_take_no_time_that_grows_with_their_square() -> None:
    def calls(n: int) -> int:
        steps = [f"t{i + 1} = Add(t{i}, t{i})" for i in range(n)]
        views = [f"v{i + 1} = Reshape(v{i}, {'heads' if i % 2 else 'back'})" for i in range(n)]
        body = " ".join([product("x", "t0"), *steps, product(f"t{n}", "v0"), *views, f"y = Neg(v{n})"])
        profile = cProfile.Profile()
        model = a_model(body)
        profile.runcall(keep_matrices, model)
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(200) < 3 * calls(100)


def test_of_several_shapes_in_a_row_the_last_one_is_said() -> None:
    becomes("t = Unsqueeze(x, first) u = Reshape(t, heads) y = Relu(u)", ["Reshape", "Relu"])
    becomes(
        "t = Unsqueeze(x, first) u = Reshape(t, heads) y = Relu(u) z = Neg(t)",
        ["Unsqueeze", "Reshape", "Relu", "Neg"],
        outputs="float[] y, float[] z",
    )


@pytest.mark.parametrize("body", ["s = Relu(x) y = Neg(s)", f"s = Relu(x) {product('s', 'y')}", "y = Neg(x)"])
def test_nothing_is_changed_where_that_saves_no_reshape(body: str) -> None:
    model = a_model(body)
    assert keep_matrices(model) is model


def test_sizes_have_to_be_known() -> None:
    body = "a = Reshape(x, rows) g = Gemm(a, w) t = Reshape(g, back) s = Relu(t) u = Reshape(s, rows) y = Gemm(u, w)"
    sizes = {"rows": np.array([-1, 4]), "back": np.array([-1, 3, 4])}
    model = model_of("(float[N,3,4] x) => (float[] y)", body, {**CONSTANTS, **sizes})
    assert keep_matrices(model) is model


STEPS = [
    *(
        "{y} = Relu({x})",
        "{y} = Add({x}, {z})",
        "{y} = Mul({x}, each)",
        "{y} = Add({x}, whole)",
        "{y} = Add({x}, some)",
        "m{y} = ReduceMax({x}, last) {y} = Sub({x}, m{y})",
    ),
    *("{y} = LayerNormalization({x}, each, b)", "{y} = Softmax({x})", "{y} = Sub({z}, {x})", PRODUCT, PRODUCT),
    "h{y} = Reshape({x}, heads) t{y} = Transpose<perm=[0,1,3,2]>(h{y}) {y} = Reshape(t{y}, copied)",
    "f{y} = Flatten<axis=2>({x}) {y} = Reshape(f{y}, back)",
    "{y} = Transpose<perm=[0,1,2]>({x})",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(STEPS), min_size=2, max_size=10), st.data())
def test_outputs_and_their_shapes_are_the_same(steps: list[str], data: st.DataObject) -> None:
    tensors, body = ["x"], list[str]()
    for i, step in enumerate(steps):
        x, z = tensors[-1], data.draw(st.sampled_from(tensors))
        body.append(step.format(x=x, z=z, y=f"t{i}", r=f"r{i}", g=f"g{i}"))
        tensors.append(f"t{i}")
    wanted = {tensors[-1], *data.draw(st.sets(st.sampled_from(tensors[1:]), max_size=2))}
    model = a_model(" ".join(body), outputs=", ".join(f"float[] {name}" for name in sorted(wanted)))
    found = rewritten(keep_matrices, model, rtol=1e-4, atol=1e-5)
    count = [sum(op_type in ("Reshape", "Flatten") for op_type in op_types(each)) for each in (found, model)]
    assert count[0] <= count[1]
