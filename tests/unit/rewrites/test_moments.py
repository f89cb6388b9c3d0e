"""Layer norms that are multiplied out."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.moments import fuse_moments
from tests.models import Floats, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

MEAN = "m = ReduceMean<keepdims=1>(x, last)"
SQUARES = f"{MEAN} d = Sub(x, m) q = Mul(d, d) v = ReduceMean<keepdims=1>(q, last)"
ROOT = f"{SQUARES} e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s)"
FACTOR = f"{ROOT} k = Mul(r, g)"
KERAS = f"{FACTOR} a = Mul(x, k) n = Neg(m) c = Mul(n, k) t = Add(c, b) y = Add(a, t)"
TENSORFLOW = f"{FACTOR} a = Mul(x, k) c = Mul(m, k) t = Sub(b, c) y = Add(a, t)"
JAX = f"{FACTOR} a = Mul(d, k) y = Add(a, b)"
SPREAD = f"{MEAN} d = Sub(x, m) xx = Mul(x, x) q = ReduceMean<keepdims=1>(xx, last) mm = Mul(m, m) o = Sub(q, mm)"
FLAX = f"{SPREAD} v = Relu(o) e = Add(v, eps) s = Sqrt(e) w = Div(d, s) a = Mul(w, g) y = Add(a, b)"
CONSTANTS = {
    "last": np.array([-1]),
    "zeroth": np.array([0]),
    "first": np.array([1]),
    "eps": np.array(1e-3, np.float32),
    "half": np.array(-0.5, np.float32),
    "two": np.array(2, np.float32),
    "one": np.array(1, np.float32),
    "nought": np.array(0, np.float32),
    "g": floats(1, 1, 6),
    "b": floats(6, seed=1),
    "places": floats(1, 5, 6),
    "column": floats(5, 1),
    "wide": np.full((1, 1, 1, 1), 1e-3, np.float32),
}


def a_model(
    body: str, *, opset: int = 21, sizes: str = "2,5,6", written: str = "float[] y", **more: Floats
) -> onnx.ModelProto:
    return model_of(f"(float[{sizes}] x) => ({written})", body, used_in(body, {**CONSTANTS, **more}), opset=opset)


def found_in(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the same outputs, and the model as it was."""
    return rewritten(fuse_moments, model, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        KERAS,
        TENSORFLOW,
        JAX,
        KERAS.replace("m = ReduceMean<keepdims=1>(x, last)", "m = GlobalAveragePool(x)"),
        KERAS.replace("q = Mul(d, d)", "q = Pow(d, two)"),
        KERAS.replace("s = Sqrt(e) r = Reciprocal(s)", "s = Sqrt(e) r = Div(one, s)"),
        KERAS.replace("s = Sqrt(e) r = Reciprocal(s)", "r = Pow(e, half)"),
        KERAS.replace("k = Mul(r, g)", "k = Identity(r)").replace("k = Identity(r)", "").replace(", k)", ", r)"),
        f"{FACTOR} a = Mul(x, k) c = Mul(m, k) y = Sub(a, c)",
        f"{FACTOR} c = Mul(k, m) a = Mul(k, x) t = Sub(a, c) y = Add(b, t)",
        f"{FACTOR} a = Mul(x, k) c = Mul(m, k) t = Sub(c, a) u = Neg(t) y = Sub(u, b)",
        TENSORFLOW.replace("Mul(r, g)", "Mul(two, r)"),
        FLAX,
        FLAX.replace("v = Relu(o)", "v = Clip(o, nought)"),
        FLAX.replace("v = Relu(o) e = Add(v, eps)", "e = Add(o, eps)"),
        FLAX.replace("w = Div(d, s) a = Mul(w, g)", "r = Reciprocal(s) k = Mul(r, g) a = Mul(d, k)"),
    ],
    ids=[
        "Keras", "TensorFlow", "JAX", "pooled mean", "Pow", "Div", "Pow of the sum", "no scale", "no bias",
        "other order", "signs", "one scale", "Flax", "clipped", "not clipped", "Flax and JAX",
    ],
)  # fmt: skip
def test_a_norm_that_is_multiplied_out_becomes_one(body: str) -> None:
    found = found_in(a_model(body))
    assert op_types(found) == ["LayerNormalization"]
    onnx.checker.check_model(found)


CHANNELS = {"last)": "first)", ", g)": ", h)", ", b)": ", h)", "(b, ": "(h, "}
DIVIDED = f"{SQUARES} e = Add(v, eps) s = Sqrt(e) w = Div(d, s) a = Mul(w, g) y = Add(a, b)"


def over_channels(body: str) -> str:
    for old, new in CHANNELS.items():
        body = body.replace(old, new)
    return body


@pytest.mark.parametrize("sizes", ["2,5,6", "2,5,3,4"])
@pytest.mark.parametrize(
    "body", [KERAS, TENSORFLOW, JAX, DIVIDED, FLAX], ids=["Keras", "TensorFlow", "JAX", "PyTorch", "Flax"]
)
def test_a_norm_over_channels_lies_between_transposes(body: str, sizes: str) -> None:
    n_axes = sizes.count(",") + 1
    model = a_model(over_channels(body), sizes=sizes, h=floats(5, *[1] * (n_axes - 2), seed=3))
    found = found_in(model)
    assert op_types(found) == ["Transpose", "LayerNormalization", "Transpose"]
    onnx.checker.check_model(found, full_check=True)


def test_what_onnxruntime_fuses_itself_stays() -> None:
    model = a_model(DIVIDED)
    assert found_in(model) is model


def test_what_else_reads_a_part_keeps_it() -> None:
    found = found_in(a_model(KERAS, written="float[] y, float[] m"))
    assert op_types(found) == ["ReduceMean", "LayerNormalization"]


@pytest.mark.parametrize(
    "body",
    [
        KERAS.replace("last)", "zeroth)"),
        KERAS.replace("(x, last)", "(x, first)"),
        over_channels(KERAS).replace(", h)", ", g)"),
        KERAS.replace("ReduceMean<keepdims=1>(q, last)", "ReduceMax<keepdims=1>(q, last)"),
        KERAS.replace("Sub(x, m)", "Sub(x, b)"),
        KERAS.replace("n = Neg(m)", "n = Neg(v)"),
        KERAS.replace("n = Neg(m)", "n = Abs(m)"),
        KERAS.replace("y = Add(a, t)", "y = Sub(a, t)"),
        KERAS.replace("Mul(r, g)", "Mul(r, places)"),
        KERAS.replace("Add(c, b)", "Add(c, places)"),
        KERAS.replace("Add(c, b)", "Add(c, column)"),
        KERAS.replace("Add(v, eps)", "Add(v, column)"),
        KERAS.replace("Mul(n, k)", "Mul(n, r)"),
        KERAS.replace("Mul(d, d)", "Mul(d, x)"),
        KERAS.replace("r = Reciprocal(s)", "r = Neg(s)"),
        JAX.replace("Mul(d, k)", "Mul(q, k)"),
        "y = Add(x, b)",
        FLAX.replace("v = Relu(o)", "v = Clip(o, eps)"),
        FLAX.replace("v = Relu(o)", "v = Abs(o)"),
        FLAX.replace("Sub(q, mm)", "Sub(mm, q)"),
        FLAX.replace("Sub(q, mm)", "Add(q, mm)"),
        FLAX.replace("(xx, last)", "(xx, first)"),
        FLAX.replace("Mul(x, x)", "Mul(x, d)"),
        FLAX.replace("Mul(m, m)", "Mul(m, two)"),
        FLAX.replace("mm = Mul(m, m)", "m2 = ReduceMean<keepdims=1>(x, first) mm = Mul(m2, m2)"),
    ],
    ids=[
        "another axis", "unlike axes", "vectors of another axis",
        "no mean", "another deviation", "another mean", "no sign", "another sign", "scale by place",
        "bias by place", "bias by column", "epsilon by column", "unlike factors", "no square", "no reciprocal",
        "no deviation", "a sum", "clipped elsewhere", "not clipped but turned", "turned", "added",
        "other mean of squares", "mean of no squares", "no square of the mean", "square of another mean",
    ],
)  # fmt: skip
def test_others_stay(body: str) -> None:
    model = a_model(body)
    assert found_in(model) is model


def test_what_is_divided_by_something_else_stays() -> None:
    for divisor in ("two", "s"):
        model = a_model(over_channels(f"{ROOT} w = Div(d, {divisor}) y = Mul(w, r)"))
        assert found_in(model) is model


def test_what_has_more_axes_than_before_stays() -> None:
    model = a_model(KERAS.replace("eps", "wide"), written="float[1,2,5,6] y")
    assert found_in(model) is model


@pytest.mark.parametrize("n", [30, 1200])
def test_long_sums_are_not_followed_to_their_ends(n: int) -> None:
    added = [f"a{i + 1} = Add(a{i}, {'b' if n > 30 else f'a{i}'})" for i in range(n)]
    model = a_model(f"a0 = Neg(x) {' '.join(added)} y = Add(a{n}, b)")
    assert fuse_moments(model) is model


@pytest.mark.parametrize(
    ("opset", "sizes"),
    [(13, "2,5,6"), (21, "2,5,n"), (21, "2,5,0")],
    ids=["no such operator", "unknown size", "nothing"],
)
def test_norms_that_cannot_be_written_stay(opset: int, sizes: str) -> None:
    body = TENSORFLOW.replace("Mul(r, g)", "Mul(r, two)").replace("Sub(b, c)", "Sub(two, c)")
    if opset < 18:
        body = body.replace("<keepdims=1>(x, last)", "<axes=[-1]>(x)").replace(
            "<keepdims=1>(q, last)", "<axes=[-1]>(q)"
        )
    model = a_model(body, opset=opset, sizes=sizes)
    assert fuse_moments(model) is model
