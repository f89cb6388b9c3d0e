from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autoquant.model.unrolled import join_steps
from tests.models import Array, feed_of, floats, model_of, op_types, outputs_of

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
    feed, before = feed_of(model), model.SerializeToString()
    found = join_steps(model)
    assert model.SerializeToString() == before
    assert op_types(found) == expected
    onnx.checker.check_model(found, full_check=True)
    for one, other in zip(outputs_of(model, feed), outputs_of(found, feed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


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
