"""Short last axes."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.repeats import multiply_outer, repeat_last
from tests.models import feed_of, model_of, op_types, outputs_of


def a_model(op_type: str, left: str, right: str, *, dtype: str = "float") -> onnx.ModelProto:
    return model_of(f"({dtype}[{left}] a, {dtype}[{right}] b) => ({dtype} y)", f"y = {op_type}(a, b)")


def assert_equal(found: onnx.ModelProto, model: onnx.ModelProto) -> None:
    feed = feed_of(model)
    np.testing.assert_array_equal(outputs_of(found, feed)[0], outputs_of(model, feed)[0])
    onnx.checker.check_model(found)


@pytest.mark.parametrize("op_type", ["Add", "Div", "Mul", "Sub"])
@pytest.mark.parametrize(("left", "right"), [("64,32,1", "64,32,3"), ("64,32,6", "64,32,1"), ("2048,2", "2048,1")])
def test_one_element_is_repeated_along_a_short_axis(op_type: str, left: str, right: str) -> None:
    model = a_model(op_type, left, right)
    found = repeat_last(model)
    assert op_types(found) == ["Concat", op_type]
    assert_equal(found, model)


@pytest.mark.parametrize(
    ("op_type", "left", "right"),
    [
        ("Mul", "64,32,1", "64,32,7"),
        ("Mul", "8,8,1", "8,8,3"),
        ("Mul", "64,32,1", "64,32,1"),
        ("Mul", "64,32,3", "64,32,3"),
        ("Mul", "64,32,1", "64,1,3"),
        ("Mul", "64,1,1", "64,32,3"),
        ("Mul", "64,32,1", "3"),
        ("Mul", "n,32,1", "n,32,3"),
        ("Pow", "64,32,1", "64,32,3"),
    ],
    ids=[
        "long",
        "few",
        "one each",
        "equal",
        "outer",
        "one for many",
        "fewer axes",
        "unknown sizes",
        "another operator",
    ],
)
def test_others_stay(op_type: str, left: str, right: str) -> None:
    model = a_model(op_type, left, right)
    assert repeat_last(model) is model


def test_integers_stay() -> None:
    model = a_model("Mul", "64,32,1", "64,32,3", dtype="int64")
    assert repeat_last(model) is multiply_outer(model) is model


@pytest.mark.parametrize(("left", "right"), [("64,32,1", "64,1,3"), ("64,1,3", "64,32,1"), ("2048,1", "1,4")])
def test_a_column_times_a_row_is_a_product_of_matrices(left: str, right: str) -> None:
    model = a_model("Mul", left, right)
    found = multiply_outer(model)
    assert op_types(found) == ["MatMul"]
    assert_equal(found, model)


@pytest.mark.parametrize(
    ("op_type", "left", "right"),
    [
        ("Add", "64,32,1", "64,1,3"),
        ("Mul", "64,32,1", "64,32,3"),
        ("Mul", "1,32,1", "64,1,3"),
        ("Mul", "2048,1", "1,9"),
    ],
    ids=["a sum", "no row", "other samples", "a long row"],
)
def test_other_products_stay(op_type: str, left: str, right: str) -> None:
    model = a_model(op_type, left, right)
    assert multiply_outer(model) is model
