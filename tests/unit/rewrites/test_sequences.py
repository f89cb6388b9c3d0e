"""Products of the steps of a sequence that a Loop goes through."""

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from autoquant.model.subgraphs import bodies_of
from autoquant.rewrites.sequences import multiply_sequences
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array] = {
    "w": floats(4, 5, scale=0.5),
    "v": floats(4, 5, seed=1),
    "five": floats(5, seed=4),
    "three": floats(3, 4, 5, seed=2),
    "table": floats(3, 2, 4, seed=3),
    "n": np.array(3),
    "go": np.array(True),
    "zero": np.array(0),
    "one": np.array(1),
    "first": np.array(1),
}


def a_loop(
    body: str, *, states: str = "h", given: str = "float[2,5] s", gives: str = "float[2,5] t"
) -> onnx.ModelProto:
    """Over three steps of ``x``, of which the first result is that of the model."""
    results = ", ".join(["y", *(f"z{i}" for i in range(1, len(states.split(","))))])
    text = f"""q = Neg(x) {results} = Loop(n, go, {states}) <body = inner (int64 i, bool c, {given})
               => (bool d, {gives}) {{ d = Identity(c) {body} }}>"""
    return model_of("(float[3,2,4] x, float[2,5] h, float[4,5] m) => (float[2,5] y)", text, used_in(text, CONSTANTS))


def inside(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node for body in bodies_of(node) for node in body.node]


@pytest.mark.parametrize(
    ("body", "outer", "inner"),
    [
        ("g = Gather(q, i) p = MatMul(g, w) t = Add(s, p)", 1, ["Identity", "Gather", "Add"]),
        ("g = Gather<axis=0>(x, i) p = MatMul(g, w) t = Mul(s, p)", 1, ["Identity", "Gather", "Mul"]),
        ("g = Gather(q, i) p = Gemm(g, w, five) t = Add(s, p)", 1, ["Identity", "Gather", "Add", "Add"]),
        (
            "g = Gather(q, i) p = MatMul(g, w) o = MatMul(g, v) r = Mul(p, o) t = Add(s, r)",
            2,
            ["Identity", "Gather", "Gather", "Mul", "Add"],
        ),
        (
            "g = Gather(q, i) p = MatMul(g, w) e = ReduceMax<keepdims=0>(g) r = Add(p, e) t = Add(s, r)",
            1,
            ["Identity", "Gather", "Gather", "ReduceMax", "Add", "Add"],
        ),
    ],
    ids=["of an activation", "of an input", "with a bias", "two of a step", "a step that is read otherwise, too"],
)  # fmt: skip
def test_products_of_steps_are_products_of_the_sequence(body: str, outer: int, inner: list[str]) -> None:
    found = rewritten(multiply_sequences, a_loop(body), rtol=1e-5, atol=1e-6)
    assert op_types(found).count("MatMul") == outer
    assert inside(found) == inner


@pytest.mark.parametrize("grown", ["k = Add(j, one)", "k = Add(one, j)", "a = Add(j, one) k = Identity(a)"])
def test_a_state_may_count(grown: str) -> None:
    """As TensorFlow writes it; what each step passes on is as good as what is around."""
    body = f"{grown} g = Gather(f, j) p = MatMul(g, u) t = Add(s, p) e = Identity(f) a0 = Identity(u)"
    model = a_loop(
        body,
        states="h, zero, q, w",
        given="float[2,5] s, int64 j, float[3,2,4] f, float[4,5] u",
        gives="float[2,5] t, int64 k, float[3,2,4] e, float[4,5] a0",
    )
    found = rewritten(multiply_sequences, model, rtol=1e-5, atol=1e-6)
    assert "MatMul" not in inside(found)


@pytest.mark.parametrize(
    "body",
    [
        "g = Gather(table, i) p = MatMul(g, w) t = Add(s, p)",
        "g = Gather(q, i) p = MatMul(g, three) r = ReduceMax<keepdims=0>(p, first) t = Add(s, r)",
        "f = Tanh(s) e = ReduceMax<keepdims=0>(f) b = Cast<to=7>(e) a = Abs(b) k = Mod(a, n) g = Gather(q, k)"
        " p = MatMul(g, w) t = Add(s, p)",
        "r = Mul(q, q) g = Gather(r, i) p = MatMul(g, w) t = Add(s, p)",
        "g = Gather(q, i) p = MatMul(g, m) t = Add(s, p)",
        "g = Gather(q, i) p = Gemm<alpha=2.0>(g, w) t = Add(s, p)",
        "g = Gather<axis=1>(square, i) p = MatMul(g, w) t = Add(s, p)",
    ],
    ids=["a table", "no matrix", "chosen steps", "of what the body makes", "no constant", "a factor", "another axis"],
)
def test_other_products_stay(body: str) -> None:
    model = a_loop_of_squares(body) if "square" in body else a_loop(body)
    assert multiply_sequences(model) is model


def a_loop_of_squares(body: str) -> onnx.ModelProto:
    text = f"""square = Neg(x) y = Loop(n, go, h) <body = inner (int64 i, bool c, float[2,5] s)
               => (bool d, float[2,5] t) {{ d = Identity(c) {body} }}>"""
    return model_of("(float[2,3,4] x, float[2,5] h) => (float[2,5] y)", text, used_in(text, CONSTANTS))
