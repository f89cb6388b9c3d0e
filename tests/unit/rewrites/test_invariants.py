from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from autoquant.model.subgraphs import bodies_of
from autoquant.rewrites.invariants import hoist_invariants
from tests.models import Array, floats, model_of, op_types
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array] = {"w": floats(4, 4), "n": np.array(3), "go": np.array(True), "b": floats(4, seed=1)}


def a_loop(
    body: str, *, after: str = "y = Neg(z)", states: str = "x", given: str = "s", gives: str = "t"
) -> onnx.ModelProto:
    """Of so many states of one shape that are called so in the body, and what it makes of them."""
    names = [[f"float[2,4] {name}" for name in each.split()] for each in (given, gives)]
    outputs = ", ".join(["z", *(f"z{i}" for i in range(1, len(names[1])))])
    text = f"""{outputs} = Loop(n, go, {states}) <body = inner (int64 i, bool c, {", ".join(names[0])})
               => (bool d, {", ".join(names[1])}) {{ d = Identity(c) {body} }}> {after}"""
    used = {name: value for name, value in CONSTANTS.items() if name in ("n", "go") or f", {name})" in text}
    return model_of("(float[2,4] x, float[2,4] k) => (float[2,4] y)", text, used)


def body_of(model: onnx.ModelProto) -> onnx.GraphProto:
    return next(body for node in model.graph.node for body in bodies_of(node))


def inside(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in body_of(model).node]


def check(model: onnx.ModelProto, outer: list[str], inner: list[str]) -> None:
    """Whether so much is outside and in the body, and outputs are the same."""
    found = rewritten(hoist_invariants, model)
    assert (op_types(found), inside(found)) == (outer, inner)


@pytest.mark.parametrize(
    ("body", "outer", "inner"),
    [
        ("p = MatMul(k, w) t = Add(s, p)", ["MatMul"], ["Identity", "Add"]),
        ("q = Relu(k) p = MatMul(q, w) r = Add(p, b) t = Mul(s, r)", ["Relu", "MatMul", "Add"], ["Identity", "Mul"]),
        ("p = MatMul(k, w) r = Mul(s, p) t = MatMul(r, w)", ["MatMul"], ["Identity", "Mul", "MatMul"]),
        ("p = MatMul(k, w) u = Relu(k) v = Add(u, s) t = Add(v, p)", ["MatMul"], ["Identity", "Relu", "Add", "Add"]),
        ("t = MatMul(k, w)", ["MatMul"], ["Identity", "Identity"]),
    ],
    ids=["alone", "with what is around", "others stay", "cheap ones stay", "as output"],
)  # fmt: skip
def test_products_of_what_does_not_change_come_before_the_loop(body: str, outer: list[str], inner: list[str]) -> None:
    check(a_loop(body), [*outer, "Loop", "Neg"], inner)


def test_a_state_that_is_passed_on_does_not_change() -> None:
    model = a_loop(
        "p = MatMul(f, w) t = Add(s, p) g = Identity(f)",
        states="x, k",
        given="s f",
        gives="t g",
        after="y = Add(z, z1)",
    )
    check(model, ["MatMul", "Loop", "Add"], ["Identity", "Add", "Identity"])


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul(s, w) t = Add(p, k)",
        "u = Relu(k) t = Add(s, u)",
        "a = Cast<to = 1>(i) q = Mul(k, a) p = MatMul(q, w) t = Add(s, p)",
        "q = RandomNormalLike(k) o = Sub(q, q) p = MatMul(o, w) t = Add(s, p)",
    ],
    ids=["changes", "no product", "counts", "drawn"],
)
def test_others_stay(body: str) -> None:
    model = a_loop(body)
    assert hoist_invariants(model) is model


def test_constants_of_the_body_come_along_and_bodies_inside_read_from_outside() -> None:
    model = a_loop(
        """p = MatMul(k, v) o = Cast<to = 9>(i) r = If(o) <then_branch = g () => (float[2,4] e) { e = Add(p, v2) },
           else_branch = h () => (float[2,4] f) { f = Neg(p) }> t = Add(s, r)"""
    )
    body = body_of(model)
    body.initializer.append(numpy_helper.from_array(floats(4, 4, seed=2), "v"))
    body.initializer.append(numpy_helper.from_array(floats(4, seed=3), "v2"))
    found = rewritten(hoist_invariants, model)
    assert op_types(found) == ["MatMul", "Loop", "Neg"]
    assert [tensor.name for tensor in body_of(found).initializer] == ["v2"]
    assert [[value.name for value in each.value_info] for each in (body, body_of(found))] == [
        ["p", "o", "r"],
        ["o", "r"],
    ]


def test_an_output_may_be_left_out() -> None:
    text = """p = MatMul(k, w) u = Unsqueeze(p, first) o, h = LSTM<hidden_size = 4>(u, wl, wr)
              v = Squeeze(h, first) t = Add(s, v)"""
    model = a_loop(text)
    lstm = next(node for node in body_of(model).node if node.op_type == "LSTM")
    lstm.output[0] = ""
    constants = {"first": np.array([0]), "wl": floats(1, 16, 4), "wr": floats(1, 16, 4, seed=1)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    check(model, ["MatMul", "Unsqueeze", "LSTM", "Squeeze", "Loop", "Neg"], ["Identity", "Add"])


def test_of_a_scan_too() -> None:
    text = """z, q = Scan(k, x) <num_scan_inputs = 1,
              body = inner (float[2,4] f, float[4] r) => (float[2,4] g, float[2,4] t)
              { p = MatMul(f, w) t = Add(p, r) g = Identity(f) }> y = Identity(q)"""
    model = model_of("(float[2,4] x, float[2,4] k) => (float[2,2,4] y)", text, {"w": CONSTANTS["w"]})
    check(model, ["MatMul", "Scan", "Identity"], ["Add", "Identity"])


def test_names_of_two_loops_do_not_meet() -> None:
    body = """<body = inner (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t)
              { d = Identity(c) p = MatMul(k, w) t = Add(s, p) }>"""
    text = f"z = Loop(n, go, x) {body} y = Loop(n, go, z) {body}"
    used = {name: CONSTANTS[name] for name in ("n", "go", "w")}
    model = model_of("(float[2,4] x, float[2,4] k) => (float[2,4] y)", text, used)
    assert op_types(rewritten(hoist_invariants, model)) == ["MatMul", "Loop", "MatMul", "Loop"]
