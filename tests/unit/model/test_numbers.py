from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from autoquant.errors import ModelError
from autoquant.model.numbers import number_outputs, number_outputs_of
from tests.models import floats, model_of


@pytest.mark.parametrize(
    "body",
    [
        "y = Cast<to=2>(x)",
        "a = Round(x) y = Cast<to=2>(a)",
        "a = Cast<to=2>(x) y = Transpose<perm=[1,0]>(a)",
        "a = Transpose<perm=[1,0]>(x) b = Floor(a) y = Cast<to=2>(b)",
        "a = Cast<to=11>(x) b = Round(a) y = Cast<to=2>(b)",
        "a = Sigmoid(x) b = Mul(a, a) c = Transpose<perm=[1,0]>(b) y = Cast<to=2>(c)",
        "a = Cast<to=6>(x) y = Cast<to=2>(a)",
        "a = Cast<to=2>(x) s = Shape(x) y = Reshape(a, s)",
        "a = Greater(x, x) b = Cast<to=1>(a) c = MatMul(b, x) y = Cast<to=2>(c)",
    ],
)
def test_floats_that_were_rounded_are_numbers(body: str) -> None:
    assert number_outputs(model_of("(float[3,3] x) => (uint8[3,3] y)", body)) == {"y"}


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ("y = ArgMax<axis=0, keepdims=0>(x)", "int64[3]"),
        ("a = ArgMax<axis=0, keepdims=0>(x) y = Cast<to=2>(a)", "uint8[3]"),
        ("a = ArgMax<axis=0, keepdims=0>(x) b = Cast<to=1>(a) c = Round(b) y = Cast<to=2>(c)", "uint8[3]"),
        ("a = Greater(x, x) y = Cast<to=2>(a)", "uint8[3,3]"),
        ("a = Greater(x, x) y = Not(a)", "bool[3,3]"),
        ("y = Round(x)", "float[3,3]"),
        ("a = Greater(x, x) b = Cast<to=1>(a) c = Add(b, b) y = Cast<to=2>(c)", "uint8[3,3]"),
        ("a = Greater(x, x) b = Where(a, x, x) y = Cast<to=2>(b)", "uint8[3,3]"),
        ("a = ArgMax<axis=0, keepdims=0>(x) b = Gather(x, a) y = Cast<to=2>(b)", "uint8[3,3]"),
        ("a = Cast<to=7>(x) b = Cast<to=1>(a) c = Add(b, x) y = Cast<to=2>(c)", "uint8[3,3]"),
    ],
)
def test_labels_indices_and_truth_values_are_none(body: str, output: str) -> None:
    assert number_outputs(model_of(f"(float[3,3] x) => ({output} y)", body)) == frozenset()


def test_where_floats_are_put_out_these_judge() -> None:
    model = model_of("(float[3,3] x) => (uint8[3,3] y, float[3,3] z)", "y = Cast<to=2>(x) z = Relu(x)")
    assert number_outputs(model) == frozenset()


def test_functions_are_looked_into() -> None:
    model = parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 19, "own" : 1]>
        g (float[3,3] x) => (uint8[3,3] y) { y = own.pixels(x) }
        <domain: "own", opset_import: ["" : 19]> pixels (x) => (y) { a = Sigmoid(x) y = Cast<to=2>(a) }
    """)
    assert number_outputs(model) == {"y"}


def test_files_say_it_with_their_external_data(tmp_path: Path) -> None:
    body = "a = Sigmoid(x) b = Reshape(a, s) y = Cast<to=2>(b)"
    model = model_of("(float[3,4] x) => (uint8[4,3] y)", body, {"s": np.array([4, 3])})
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert number_outputs_of(path) == {"y"}


def test_of_a_file_whose_outputs_are_floats_weights_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        model_of("(float[2] x) => (float[2] y)", "y = Add(x, c)", {"c": floats(2)}),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    (tmp_path / "weights.bin").unlink()
    assert number_outputs_of(path) == frozenset()
    with pytest.raises(ModelError, match="there is no such file"):
        number_outputs_of(tmp_path / "gone.onnx")
