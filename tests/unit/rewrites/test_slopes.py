"""PRelu that is written with other operators."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.slopes import fuse_prelu
from tests.models import constants_of, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS = {
    "c": floats(1, 4, 1, 1, scale=0.5),
    "last": floats(6, scale=0.5),
    "half": np.array(0.5, np.float32),
    "wide": floats(2, 1, 1, 1, 1),
    "more": floats(1, 8, 1, 1),
}
ABSOLUTE = "b = Abs(x) d = Sub(x, b) r = Relu(x)"
NEGATED = "n = Neg(x) d = Relu(n) r = Relu(x)"


def model_with(body: str, *, outputs: str = "float[] y", size: str = "1,4,5,6") -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => ({outputs})", body, used_in(body, CONSTANTS))


def assert_becomes(model: onnx.ModelProto, expected: list[str]) -> onnx.ModelProto:
    found = rewritten(fuse_prelu, model, rtol=1e-6, atol=1e-7)
    assert op_types(found) == expected
    return found


@pytest.mark.parametrize(
    ("body", "factor"),
    [
        (f"{ABSOLUTE} m = Mul(d, c) y = Add(r, m)", 2),
        (f"{ABSOLUTE} m = Mul(c, d) y = Add(m, r)", 2),
        (f"{ABSOLUTE} h = Mul(d, half) m = Mul(h, c) y = Add(r, m)", 1),
        (f"{ABSOLUTE} m = Mul(d, half) y = Add(r, m)", None),
        (f"{ABSOLUTE} m = Mul(d, last) y = Add(r, m)", None),
        (f"{NEGATED} m = Mul(d, c) y = Add(r, m)", -1),
        (f"{NEGATED} m = Mul(c, d) y = Add(m, r)", -1),
    ],
)
def test_each_way_to_write_a_prelu_is_known(body: str, factor: float | None) -> None:
    found = assert_becomes(model_with(body), ["PRelu"])
    assert [node.name for node in found.graph.node] == ["y"]
    if factor is not None:
        np.testing.assert_array_equal(constants_of(found)["y_slope"], factor * CONSTANTS["c"])


def test_behind_a_relu_there_is_nothing_below_0() -> None:
    body = "x1 = Relu(x) b = Abs(x1) d = Sub(x1, b) m = Mul(d, c) y = Add(x1, m)"
    found = assert_becomes(model_with(body), ["Relu"])
    assert [node.name for node in found.graph.node] == ["x1"]


@pytest.mark.parametrize("outputs", ["float[] y, float[] x1", "float[] y, float[] z"])
def test_a_relu_that_others_read_keeps_its_name(outputs: str) -> None:
    more = " z = Tanh(x1)" if "z" in outputs else ""
    body = f"x1 = Relu(x) b = Abs(x1) d = Sub(x1, b) m = Mul(d, c) y = Add(x1, m){more}"
    assert_becomes(model_with(body, outputs=outputs), ["Relu", "PRelu", *["Tanh"][: len(more)]])


def test_a_relu_that_is_read_elsewhere_stays_beside_it() -> None:
    body = f"{NEGATED} m = Mul(d, c) s = Add(r, m) y = Mul(s, r)"
    assert_becomes(model_with(body), ["Relu", "PRelu", "Mul"])


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (f"{ABSOLUTE} m = Mul(d, c) y = Add(x, m)", "float[] y"),
        (f"{ABSOLUTE} m = Mul(d, x) y = Add(r, m)", "float[] y"),
        (f"{ABSOLUTE} m = Mul(d, wide) y = Add(r, m)", "float[] y"),
        (f"{ABSOLUTE} m = Mul(d, c) y = Add(r, m)", "float[] y, float[] m"),
        (f"{ABSOLUTE} m = Mul(d, c) y = Add(r, m)", "float[] y, float[] b"),
        ("b = Abs(x) d = Sub(b, x) r = Relu(x) m = Mul(d, c) y = Add(r, m)", "float[] y"),
        ("n = Neg(x) d = Relu(n) r = Relu(d) m = Mul(d, c) y = Add(r, m)", "float[] y"),
        (f"{NEGATED} m = Mul(d, c) t = Relu(n) y = Add(r, m)", "float[] y, float[] t"),
        (f"{NEGATED} m = Mul(d, c) y = Sub(r, m)", "float[] y"),
    ],
)
def test_other_sums_stay(body: str, outputs: str) -> None:
    model = model_with(body, outputs=outputs)
    assert fuse_prelu(model) is model


def test_slopes_that_would_widen_stay() -> None:
    model = model_with(f"{NEGATED} m = Mul(d, more) y = Add(r, m)", size="1,1,5,6")
    assert fuse_prelu(model) is model
