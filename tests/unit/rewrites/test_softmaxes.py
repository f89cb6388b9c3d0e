"""Which Softmax is written otherwise, and that every output stays as it is."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from autoquant.rewrites.softmaxes import expect_last, split_softmax, transpose_softmax
from tests.models import feed_of, floats, model_of, op_types
from tests.rewriting import rewritten

PARTS = ["ReduceMax", "Sub", "Exp", "ReduceSum", "Div"]
HEAD = "r = Reshape(x, s) t = Transpose<perm = [0, 2, 1, 3]>(r) p = Softmax<axis = 1>(t)"


def assert_written(
    rewrite: Callable[[onnx.ModelProto], onnx.ModelProto], model: onnx.ModelProto, expected: list[str]
) -> None:
    feed = {name: 50 * values for name, values in feed_of(model).items()}
    found = rewritten(rewrite, model, feed, rtol=1e-4, atol=1e-5)
    assert op_types(found) == expected
    assert (found is model) == (expected == op_types(model))


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ("2,19,32,32", 1, PARTS),
        ("2,19,32,32", -3, PARTS),
        ("2,5,1024", 1, PARTS),
        ("2,19,32,32", 3, ["Softmax"]),
        ("2,19,16,32", 1, ["Softmax"]),
        ("2,19,N,32", 1, ["Softmax"]),
    ],
    ids=["channels", "from behind", "a line", "last", "few places", "unknown"],
)
def test_a_softmax_of_channels_with_many_places_becomes_its_parts(shape: str, axis: int, expected: list[str]) -> None:
    model = model_of(f"(float[{shape}] x) => (float[] y)", f"y = Softmax<axis = {axis}>(x)")
    if "N" in shape:
        assert split_softmax(model) is model
    else:
        assert_written(split_softmax, model, expected)


def test_below_opset_18_where_axes_are_attributes_it_stays() -> None:
    model = model_of("(float[2,19,32,32] x) => (float[] y)", "y = Softmax<axis = 1>(x)", opset=17)
    assert split_softmax(model) is model


def head_of(behind: str, *, shape: str = "1,64,50", n_weights: int = 16, opset: int = 21) -> onnx.ModelProto:
    constants = {"s": np.array([1, 4, 16, 50]), "w": floats(1, n_weights, 1, 1), "b": floats(1)}
    used = {name: value for name, value in constants.items() if name != "b" or ", b)" in behind}
    return model_of(f"(float[{shape}] x) => (float[] y)", f"{HEAD} {behind}", used, opset=opset)


def test_the_distances_of_a_yolo_are_a_product_of_a_last_axis() -> None:
    model = head_of("y = Conv(p, w)")
    assert_written(expect_last, model, ["Reshape", "Transpose", "Softmax", "MatMul", "Reshape"])


@pytest.mark.parametrize(
    "behind",
    [
        "y = Conv(p, w, b)",
        "y = Conv<pads = [1, 1, 1, 1]>(p, w)",
        "q = Conv(p, w) y = Mul(q, p)",
        "y = Conv<strides = [2, 2]>(p, w)",
    ],
    ids=["a bias", "padding", "read twice", "strides"],
)
def test_other_ends_stay(behind: str) -> None:
    model = head_of(behind)
    assert expect_last(model) is model


def test_before_opset_13_a_softmax_is_of_all_axes_from_there_on() -> None:
    model = head_of("y = Conv(p, w)", opset=12)
    assert expect_last(model) is model


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("y = Transpose<perm=[0,2,3,1]>(p)", ["Transpose", "Softmax"]),
        ("y = Transpose<perm=[3,2,0,1]>(p)", ["Transpose", "Softmax"]),
        ("y = Transpose<perm=[0,1,3,2]>(p)", ["Softmax", "Transpose"]),
        ("t = Transpose<perm=[0,2,3,1]>(p) n = Neg(p) m = Transpose<perm=[0,2,3,1]>(n) y = Add(t, m)",
         ["Softmax", "Transpose", "Neg", "Transpose", "Add"]),
        ("y = Neg(p)", ["Softmax", "Neg"]),
    ],
    ids=["last", "elsewhere too", "another axis", "read beside", "no Transpose"],
)  # fmt: skip
def test_a_softmax_is_taken_of_the_last_axis_where_that_comes_behind_it(behind: str, expected: list[str]) -> None:
    model = model_of("(float[2,5,3,4] x) => (float[] y)", f"p = Softmax<axis=1>(x) {behind}")
    assert_written(transpose_softmax, model, expected)


def test_a_transpose_without_an_order_turns_all_axes() -> None:
    model = model_of("(float[5,3,4] x) => (float[] y)", "p = Softmax<axis=0>(x) y = Transpose(p)")
    assert_written(transpose_softmax, model, ["Transpose", "Softmax"])


def test_a_softmax_of_the_last_axis_stays_before_a_transpose() -> None:
    model = model_of("(float[5,3,4] x) => (float[] y)", "p = Softmax<axis=-1>(x) y = Transpose<perm=[0,1,2]>(p)")
    assert_written(transpose_softmax, model, ["Softmax", "Transpose"])
