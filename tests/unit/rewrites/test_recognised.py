import numpy as np
import onnx
import pytest

from autoquant.rewrites.recognised import recognise_activations
from tests.models import feed_of, floats, model_of, op_types
from tests.rewriting import rewritten

CONSTANTS = {
    "half": 0.5,
    "one": 1.0,
    "three": 3.0,
    "root": 2**0.5,
    "k": 0.044715,
    "c": (2 / np.pi) ** 0.5,
    "far": 20.0,
    "wide": floats(1, 4, 1),
}
BY_TANH = "e = Mul(d, c) t = Tanh(e) u = Add(t, one) v = Mul(x, half) y = Mul(v, u)"
SPELLINGS = {
    f"a = Pow(x, three) b = Mul(a, k) d = Add(x, b) {BY_TANH}": ["Gelu"],
    f"a = Mul(k, x) p = Mul(x, a) b = Mul(x, p) d = Add(x, b) {BY_TANH}": ["Gelu"],
    "a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(d, half) y = Mul(x, e)": ["Gelu"],
    "n = Neg(x) a = Div(n, root) b = Erf(a) d = Sub(one, b) e = Mul(d, half) y = Mul(x, e)": ["Gelu"],
    "n = Neg(x) e = Exp(n) d = Add(one, e) y = Div(one, d)": ["Sigmoid"],
    "n = Neg(x) e = Exp(n) d = Add(e, one) y = Reciprocal(d)": ["Sigmoid"],
    "n = Neg(x) e = Exp(n) d = Add(e, one) y = Div(x, d)": ["Sigmoid", "Mul"],
}


def a_model(body: str, *, opset: int = 21) -> onnx.ModelProto:
    return model_of("(float[2,4,8] x) => (float[2,4,8] y)", body, CONSTANTS, opset=opset)


@pytest.mark.parametrize(("body", "expected"), SPELLINGS.items())
def test_whatever_spells_an_activation_becomes_its_operator(body: str, expected: list[str]) -> None:
    model = a_model(body)
    feed = {name: 4 * values for name, values in feed_of(model).items()}
    assert op_types(rewritten(recognise_activations, model, feed, rtol=1e-5, atol=1e-5)) == expected


def test_an_exponent_may_be_an_integer() -> None:
    body = next(iter(SPELLINGS)).replace("three", "whole")
    model = model_of("(float[2,4,8] x) => (float[2,4,8] y)", body, {**CONSTANTS, "whole": np.array(3)})
    assert op_types(recognise_activations(model)) == ["Gelu"]


def test_what_it_reads_may_be_such_a_function_itself() -> None:
    body = next(iter(SPELLINGS)).replace("x", "r")
    assert op_types(recognise_activations(a_model(f"s = Tanh(x) r = Mul(s, wide) {body}"))) == ["Tanh", "Mul", "Gelu"]
    assert op_types(recognise_activations(a_model(f"r = Exp(x) {body}"))) == ["Exp", "Gelu"]


def test_what_else_is_read_stays() -> None:
    body = "n = Neg(x) e = Exp(n) d = Add(e, one) y = Reciprocal(d) z = Sqrt(d)"
    model = model_of("(float[2,4,8] x) => (float[2,4,8] y, float[2,4,8] z)", body, CONSTANTS)
    assert sorted(op_types(recognise_activations(model))) == ["Add", "Exp", "Neg", "Sigmoid", "Sqrt"]


@pytest.mark.parametrize(
    "body",
    [
        "s = Sigmoid(x) y = Mul(x, s)",
        "z = Sub(x, far) m = Mul(z, z) r = Pow(m, half) a = Add(x, far) q = Sub(a, r) c = Mul(q, half)"
        " n = Neg(c) e = Exp(n) d = Add(e, one) y = Div(c, d)",
        "y = Gelu(x)",
        "a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(d, one) y = Mul(x, e)",
        "a = Div(x, root) b = Erf(a) d = Add(b, one) e = Mul(d, half) s = Sqrt(x) y = Mul(s, e)",
        "a = Div(x, root) b = Erf(a) d = Add(b, wide) e = Mul(d, half) y = Mul(x, e)",
        "n = Neg(x) e = Exp(n) d = Add(e, k) y = Reciprocal(d)",
        "n = Neg(x) e = Exp(n) m = ReduceMax(e) d = Add(m, e) y = Reciprocal(d)",
    ],
)
def test_what_is_another_function_or_written_shortly_stays(body: str) -> None:
    model = a_model(body)
    assert recognise_activations(model) is model


def test_before_the_operator_was_there_it_stays() -> None:
    model = a_model(next(iter(SPELLINGS)), opset=19)
    assert recognise_activations(model) is model
