from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest

from autoquant.model.rewrite import infer_shapes
from autoquant.rewrites.unrolled import join_steps, restack
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array] = {
    **{f"i{i}": np.array(i) for i in range(4)},
    "last": np.array(-1),
    "list0": np.array([0]),
    "list12": np.array([1, 2]),
    "w": floats(6, 5),
    "v": floats(6, 5, seed=1),
    "t": floats(5, 6, seed=2),
    "b": floats(5, seed=3),
    "row": floats(1, 5, seed=4),
    "table": floats(2, 5, seed=5),
    "column": floats(5, 1, seed=6),
}


def a_model(body: str, given: str = "float[4,2,6] x", written: str = "float[] y") -> onnx.ModelProto:
    used = {name: value for name, value in CONSTANTS.items() if f", {name})" in body or f", {name}, " in body}
    return model_of(f"({given}, float[5,5] r) => ({written})", body, used)


def a_cell(product: str, axis: int = 0) -> str:
    """Three steps of a recurrence."""
    start = "h0 = Constant<value_float = 0.0>()"
    steps = (
        f"g{i} = Gather<axis = {axis}>(x, i{i}) p{i} = {product.replace('@', f'g{i}')} m{i} = Add(p{i}, h{i})"
        f" h{i + 1} = Tanh(m{i})"
        for i in range(3)
    )
    return f"{start} {' '.join(steps)} y = Identity(h3)"


CELL = ["Constant", "Gather", "Add", "Tanh", "Gather", "Add", "Tanh", "Gather", "Add", "Tanh", "Identity"]


def check(model: onnx.ModelProto, expected: list[str]) -> None:
    assert op_types(rewritten(join_steps, model, rtol=1e-5, atol=1e-6)) == expected


@pytest.mark.parametrize(
    ("body", "given", "joined"),
    [
        (a_cell("Gemm(@, w)"), "float[4,2,6] x", ["Reshape", "Gemm", "Reshape"]),
        (a_cell("Gemm<transB = 1, alpha = 0.5>(@, t, b)"), "float[4,2,6] x", ["Reshape", "Gemm", "Reshape"]),
        (a_cell("Gemm<beta = 2.0>(@, w, row)", axis=1), "float[2,4,6] x", ["Reshape", "Gemm", "Reshape"]),
        (a_cell("MatMul(@, w)", axis=-2), "float[2,4,6] x", ["MatMul"]),
        (a_cell("MatMul(@, w)"), "float[4,6] x", ["MatMul"]),
        (a_cell("MatMul(@, w)", axis=1), "float[1,4,2,6] x", ["MatMul"]),
    ],
)
def test_steps_with_one_matrix_are_one_product(body: str, given: str, joined: list[str]) -> None:
    check(a_model(body, given), [CELL[0], *joined, *CELL[1:]])


def test_indices_may_be_lists_and_negative() -> None:
    body = """g = Gather(x, list12) h = Gather(x, last) p = MatMul(g, w) q = MatMul(h, w) y = Add(p, q)"""
    check(a_model(body), ["MatMul", "Gather", "Gather", "Add"])
    body = """g = Gather(x, list0) h = Gather(x, list0) k = Gather(x, last) p = Gemm(g, w) q = Gemm(h, w) s = Gemm(k, w)
              y = Sum(p, q, s)"""
    check(
        a_model(body.replace("k = Gather(x, last)", "k = Gather(x, list0)"), "float[2,6] x"),
        ["Gemm", "Gather", "Gather", "Gather", "Sum"],
    )


def test_slices_that_others_read_stay_and_may_be_multiplied_twice() -> None:
    body = """g = Gather(x, i0) h = Gather(x, i1) k = Gather(x, i2) p = MatMul(g, w) q = MatMul(h, w) s = MatMul(g, v)
              t2 = MatMul(h, v) o = Concat<axis = 0>(p, q, s, t2) n = Relu(g) y = MatMul(n, w) z = Neg(k)"""
    check(
        a_model(body, written="float[] y, float[] o, float[] z"),
        [
            "Gather",
            "Gather",
            "MatMul",
            "Gather",
            "Gather",
            "MatMul",
            "Gather",
            "Gather",
            "Concat",
            "Relu",
            "MatMul",
            "Neg",
        ],
    )


@pytest.mark.parametrize(
    ("body", "given"),
    [
        ("g = Gather(x, i0) y = MatMul(g, w)", "float[2,2,6] x"),
        ("g = Gather(x, i0) h = Gather(x, i1) p = MatMul(g, w) q = MatMul(h, w) y = Add(p, q)", "float[5,2,6] x"),
        ("g = Gather(x, i0) h = Gather(x, i1) p = MatMul(g, w) q = MatMul(h, v) y = Add(p, q)", "float[2,2,6] x"),
        ("g = Gather(x, i0) h = Gather(x, i1) p = MatMul(g, r) q = MatMul(h, r) y = Add(p, q)", "float[2,2,5] x"),
        ("g = Gather(x, i0) h = Gather(x, i1) p = MatMul(g, w) q = MatMul(h, w) y = Add(p, q)", "float[2,N,6] x"),
        (
            "g = Gather<axis = 2>(x, i0) h = Gather<axis = 2>(x, i1) p = MatMul(g, w) q = MatMul(h, w) y = Add(p, q)",
            "float[2,6,2] x",
        ),
        (
            "g = Gather(x, i0) h = Gather(x, i1) p = Gemm(g, w, table) q = Gemm(h, w, table) y = Add(p, q)",
            "float[2,2,6] x",
        ),
        (
            "g = Gather(x, i0) h = Gather(x, i1) p = Gemm(g, w, column) q = Gemm(h, w, column) y = Add(p, q)",
            "float[2,5,6] x",
        ),
        (
            "g = Gather(x, i0) h = Gather(x, i1) p = Gemm<transA = 1>(g, w) q = Gemm<transA = 1>(h, w) y = Add(p, q)",
            "float[2,6,2] x",
        ),
    ],
    ids=["one", "few", "matrices", "not constant", "sizes", "last axis", "bias", "a bias a row", "transposed"],
)
def test_others_stay(body: str, given: str) -> None:
    model = a_model(body, given)
    assert join_steps(model) is model


CUT = "s{i} = Slice(x, {start}, {end}, list0) g{i} = Squeeze(s{i}, list0)"
BOUNDS: Mapping[str, Array] = {f"list{i}": np.array([i]) for i in range(5)} | {
    "far": np.array([2**31 - 1]),
    "least": np.array([-1]),
}


def a_layer(step: str, *, order: Sequence[int] = range(4), cuts: Mapping[int, str] | None = None) -> onnx.ModelProto:
    """As Keras 3 has it: slices, what a layer makes of each, and a Concat."""
    bounds = {i: (f"list{i}", f"list{i + 1}") for i in range(3)} | {3: ("least", "far")}
    taken = [(cuts or {}).get(i) or CUT.format(i=i, start=bounds[i][0], end=bounds[i][1]) for i in range(4)]
    steps = [f"{cut} {step.replace('@', f'g{i}').replace('#', f'o{i}')}" for i, cut in enumerate(taken)]
    added = [f"u{i} = Unsqueeze(o{i}, list0)" for i in range(4)]
    joined = f"c = Concat<axis=0>({', '.join(f'u{i}' for i in order)}) y = Neg(c)"
    body = " ".join([*steps, *added, joined])
    return model_of("(float[4,2,6] x) => (float[] y)", body, used_in(body, {**CONSTANTS, **BOUNDS}))


def joined_and_restacked(model: onnx.ModelProto) -> onnx.ModelProto:
    found: onnx.ModelProto = model
    while (further := join_steps(found)) is not found:
        found = infer_shapes(further)
    return restack(found)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("# = MatMul(@, w)", ["MatMul", "Neg"]),
        ("p# = Gemm(@, w, b) # = Relu(p#)", ["Reshape", "Gemm", "Reshape", "Relu", "Neg"]),
        ("# = LeakyRelu<alpha=0.2>(@)", ["LeakyRelu", "Neg"]),
        ("r# = Tanh(@) # = MatMul(r#, w)", ["Tanh", "MatMul", "Neg"]),
    ],
)
def test_a_layer_for_each_step_is_one_for_all(step: str, expected: list[str]) -> None:
    assert op_types(rewritten(joined_and_restacked, a_layer(step), rtol=1e-5, atol=1e-6)) == expected


@pytest.mark.parametrize(
    ("order", "n_concats"), [((0, 1, 2, 3), 0), ((0, 1, 3, 2), 1), ((0, 1, 2), 1), ((0, 1, 2, 3, 3), 1)]
)
def test_slices_in_another_order_or_number_stay_joined(order: Sequence[int], n_concats: int) -> None:
    found = rewritten(joined_and_restacked, a_layer("# = Relu(@)", order=order))
    assert op_types(found).count("Concat") == n_concats


@pytest.mark.parametrize(
    "cut",
    [
        "s1 = Slice(x, list1, list3, list0) t1 = ReduceMax(s1, list0) g1 = Squeeze(t1, list0)",
        "s1 = Slice(x, list1, list2, list0, list2) g1 = Squeeze(s1, list0)",
        "t1 = Neg(x) s1 = Slice(t1, list1, list2, list0) g1 = Squeeze(s1, list0)",
    ],
    ids=["of two", "with steps", "of another"],
)
def test_other_slices_are_no_steps(cut: str) -> None:
    assert "Concat" in op_types(rewritten(joined_and_restacked, a_layer("# = Relu(@)", cuts={1: cut})))
