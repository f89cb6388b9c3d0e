from pathlib import Path

import pytest

from autoquant.errors import ModelError
from autoquant.model.numbers import number_outputs, number_outputs_of
from tests.models import model_of, saved


@pytest.mark.parametrize(
    "body",
    [
        "y = Cast<to=2>(x)",
        "a = Round(x) y = Cast<to=2>(a)",
        "a = Cast<to=2>(x) y = Transpose<perm=[1,0]>(a)",
        "a = Transpose<perm=[1,0]>(x) b = Floor(a) y = Cast<to=2>(b)",
        "a = Cast<to=11>(x) b = Round(a) y = Cast<to=2>(b)",
        "a = Cast<to=7>(x) b = Cast<to=1>(a) c = Add(b, x) y = Cast<to=2>(c)",
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
    ],
)
def test_labels_indices_and_truth_values_are_none(body: str, output: str) -> None:
    assert number_outputs(model_of(f"(float[3,3] x) => ({output} y)", body)) == frozenset()


def test_where_floats_are_put_out_these_judge() -> None:
    model = model_of("(float[3,3] x) => (uint8[3,3] y, float[3,3] z)", "y = Cast<to=2>(x) z = Relu(x)")
    assert number_outputs(model) == frozenset()


def test_a_file_is_read_only_where_all_outputs_are_of_integers(tmp_path: Path) -> None:
    path = saved(model_of("(float[3,3] x) => (uint8[3,3] y)", "y = Cast<to=2>(x)"), tmp_path / "model.onnx")
    assert number_outputs_of(path, ["tensor(uint8)"]) == {"y"}
    gone = tmp_path / "gone.onnx"
    assert number_outputs_of(gone, ["tensor(uint8)", "tensor(double)"]) == frozenset()
    with pytest.raises(ModelError, match="there is no such file"):
        number_outputs_of(gone, ["tensor(uint8)"])
