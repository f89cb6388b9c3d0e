"""Models that cannot be searched are one sentence and exit code 2."""

from pathlib import Path

import onnx
import pytest

from tests.integration.conftest import Command, assert_refused
from tests.models import a_classifier, floats, model_of


@pytest.mark.parametrize("content", [b"hello", bytes(range(256)) * 8])
def test_a_file_that_is_no_model_is_refused(search: Command, content: bytes) -> None:
    Path("bad.onnx").write_bytes(content)
    assert_refused(search(model="bad.onnx"), "bad.onnx", "not an ONNX model")


def test_an_empty_file_is_refused(search: Command) -> None:
    Path("empty.onnx").touch()
    assert_refused(search(model="empty.onnx"), "empty.onnx", "no nodes")


def test_a_model_that_was_cut_off_is_refused(search: Command) -> None:
    content = Path("model.onnx").read_bytes()
    Path("half.onnx").write_bytes(content[: len(content) // 2])
    assert_refused(search(model="half.onnx"), "half.onnx", "not an ONNX model")


def test_a_missing_model_is_refused(search: Command) -> None:
    assert_refused(search(model="gone.onnx"), "gone.onnx", "no such file")


def test_an_unknown_example_is_refused(search: Command) -> None:
    assert_refused(search(model="example:digit"), "'digit' is unknown, there is: digits")


def test_a_model_without_its_external_data_is_refused(search: Command) -> None:
    model = onnx.load("model.onnx")
    onnx.save(model, "external.onnx", save_as_external_data=True, location="external.bin", size_threshold=0)
    Path("external.bin").unlink()
    assert_refused(search(model="external.onnx"), "external.onnx", "external data")


def test_a_model_that_onnxruntime_refuses_is_refused(search: Command) -> None:
    onnx.save(model_of("(float[N,8] x) => (float[N,8] y)", "y = com.microsoft.NoSuchOperator(x)"), "odd.onnx")
    assert_refused(search(model="odd.onnx"), "odd.onnx", "onnxruntime cannot open it")


def test_a_model_that_is_quantized_already_is_refused(search: Command) -> None:
    model = model_of(
        "(float[N,8] x) => (float[N,8] y)",
        "q = QuantizeLinear(x, s) y = DequantizeLinear(q, s)",
        {"s": 0.1},
    )
    onnx.save(model, "quantized.onnx")
    assert_refused(search(model="quantized.onnx"), "quantized.onnx", "already quantized", "QuantizeLinear")


@pytest.mark.parametrize(
    ("signature", "body", "phrase"),
    [
        ("(float[N,8] x) => (seq(float[N,8]) y)", "y = SequenceConstruct(x, x)", "'y' is no tensor"),
        ("(seq(float[8]) x) => (float[K] y)", "y = ConcatFromSequence<axis=0>(x)", "'x' is no tensor"),
        ("() => (float[8] y)", "y = Relu(c)", "no inputs"),
    ],
)
def test_a_model_without_tensors_to_feed_is_refused(search: Command, signature: str, body: str, phrase: str) -> None:
    onnx.save(model_of(signature, body, {"c": floats(8)}), "odd.onnx")
    assert_refused(search(model="odd.onnx"), phrase)


def test_a_model_that_gives_maps_is_refused(search: Command) -> None:
    onnx.save(a_classifier(), "odd.onnx")
    assert_refused(search(model="odd.onnx"), "odd.onnx", "'p' is no tensor", "cut the model")
