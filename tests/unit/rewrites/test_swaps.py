import numpy as np
import onnx
import pytest

from autoquant.rewrites.affine import fold_affine
from autoquant.rewrites.swaps import transpose_first
from tests.models import feed_of, floats, model_of, op_types, outputs_of
from tests.rewriting import rewritten

CONSTANTS = {
    "mean": floats(3),
    "std": floats(1, 1, 3, seed=1),
    "places": floats(4, 1, seed=2),
    "number": floats(1),
    "wide": floats(1, 1, 1, 1, 3),
    "w": floats(2, 3, 1, 1),
}
TO_SECOND = "Transpose<perm=[0,3,1,2]>"


def model_with(body: str, outputs: str = "float[] y") -> onnx.ModelProto:
    used = {
        name: value
        for name, value in CONSTANTS.items()
        if f"{name})" in body or f"({name}" in body or f" {name}," in body
    }
    return model_of(f"(float[2,5,4,3] x) => ({outputs})", body, used)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"m = Mul(x, mean) y = {TO_SECOND}(m)", ["Transpose", "Mul"]),
        (f"m = Sub(mean, x) y = {TO_SECOND}(m)", ["Transpose", "Sub"]),
        (f"s = Sub(x, mean) d = Div(s, std) a = Add(d, number) y = {TO_SECOND}(a)", ["Transpose", "Sub", "Div", "Add"]),
        (f"m = Mul(x, places) y = {TO_SECOND}(m)", ["Transpose", "Mul"]),
    ],
)
def test_arithmetic_goes_behind_a_transpose_of_its_result(body: str, expected: list[str]) -> None:
    assert op_types(rewritten(transpose_first, model_with(body))) == expected


def test_a_convolution_takes_in_what_was_before_the_transpose() -> None:
    model = model_with(f"s = Sub(x, mean) d = Div(s, std) t = {TO_SECOND}(d) y = Conv(t, w)")
    found = fold_affine(onnx.shape_inference.infer_shapes(transpose_first(model)))
    assert op_types(found) == ["Transpose", "Conv"]
    one, other = (outputs_of(each, feed_of(model))[0] for each in (found, model))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, strict=True)


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        (f"m = Mul(x, x) y = {TO_SECOND}(m)", "float[] y"),
        (f"m = Relu(x) y = {TO_SECOND}(m)", "float[] y"),
        ("m = Mul(x, mean) y = Transpose<perm=[0,2,1,3]>(m)", "float[] y"),
        ("m = Mul(x, mean) y = Transpose(m)", "float[] y"),
        (f"m = Mul(x, mean) y = {TO_SECOND}(m)", "float[] y, float[] m"),
        (f"m = Mul(x, mean) r = Relu(m) y = {TO_SECOND}(m)", "float[] y, float[] r"),
        ("m = Mul(x, wide) y = Transpose<perm=[0,4,1,2,3]>(m)", "float[] y"),
    ],
)
def test_what_is_read_elsewhere_or_turned_otherwise_stays(body: str, outputs: str) -> None:
    model = model_with(body, outputs)
    assert transpose_first(model) is model
