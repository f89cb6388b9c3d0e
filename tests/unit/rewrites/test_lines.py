"""Which convolutions of lines become those of images of one row, and that every output stays as it is."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.lines import lay_lines
from tests.models import floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, npt.NDArray[np.generic]] = {
    "w": floats(16, 16, 3, scale=0.2),
    "each": floats(16, 1, 5, scale=0.4),
    "halves": floats(32, 16, 1, scale=0.2),
    "first": floats(16, 3, 7, scale=0.2),
    "two": floats(2, 16, 1, scale=0.2),
    "odd": floats(18, 18, 3, scale=0.2),
    "b": floats(16),
    "channel": floats(16, 1),
    "batch": floats(1, 16, 1),
    "place": floats(24),
    "slopes": floats(16, 1, seed=1),
    "ones": floats(16) ** 2,
    "start": np.array([2]),
    "end": np.array([10]),
    "last": np.array([-1]),
    "axis1": np.array([1]),
    "sizes": np.array([8, 8]),
    "starts3": np.array([0, 0, 2]),
    "ends3": np.array([1, 16, 9]),
    "start32": np.array([2], np.int32),
    "end32": np.array([10], np.int32),
    "last32": np.array([-1], np.int32),
    "zero": np.array(0, np.float32),
    "six": np.array(6, np.float32),
}


def model_with(body: str, *, size: str = "1,16,24", opset: int = 21, outputs: str = "float[] y") -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => ({outputs})", body, used_in(body, CONSTANTS), opset=opset)


def assert_laid(model: onnx.ModelProto, expected: list[str] | None = None) -> onnx.ModelProto:
    found = rewritten(lay_lines, model, rtol=1e-4, atol=1e-5)
    assert expected is None or op_types(found) == expected
    return found


@pytest.mark.parametrize(
    "conv",
    [
        "Conv(x, w)",
        "Conv<pads=[1,2]>(x, w, b)",
        "Conv<strides=[2], dilations=[3], pads=[3,3], kernel_shape=[3]>(x, w)",
        'Conv<auto_pad="SAME_UPPER", strides=[2]>(x, w)',
        "Conv<group=16, pads=[2,2]>(x, each)",
    ],
)
def test_a_convolution_of_lines_is_one_of_images_of_one_row(conv: str) -> None:
    found = assert_laid(model_with(f"y = {conv}"), ["Unsqueeze", "Conv", "Squeeze"])
    assert [node.name for node in found.graph.node if node.op_type == "Conv"] == ["y"]


@pytest.mark.parametrize(
    "node",
    [
        "Conv<pads=[1,1]>(c, w, )",
        "Relu(c)",
        "Clip(c, zero)",
        "Gelu(c)",
        "LeakyRelu<alpha=0.1>(c)",
        "MaxPool<kernel_shape=[3], strides=[2], pads=[1,1], dilations=[1]>(c)",
        "AveragePool<kernel_shape=[4], count_include_pad=1, pads=[1,0]>(c)",
        "GlobalAveragePool(c)",
        "InstanceNormalization(c, ones, b)",
        "Add(c, channel)",
        "Mul(batch, c)",
        "Sub(c, place)",
        "PRelu(c, slopes)",
        "Div(c, x)",
        "Sum(c, x, c)",
        "Concat<axis=1>(c, x)",
        "Concat<axis=-1>(c, x, c)",
        "Slice(c, start, end, last)",
        "Slice(c, start, end, axis1)",
        "Slice(c, start32, end32, last32)",
        "Slice(c, start, end, last, )",
        "Clip(c, , six)",
    ],
)
def test_what_makes_lines_of_lines_behind_it_is_too(node: str) -> None:
    op_type = node.partition("<")[0].partition("(")[0]
    found = assert_laid(model_with(f"c = Conv<pads=[1,1]>(x, w) y = {node}"))
    assert op_types(found) == ["Unsqueeze", "Conv", op_type, "Squeeze"]


def test_gates_of_halves_are_too() -> None:
    body = (
        "c = Conv(x, halves) a, g = Split<axis=1>(c, sizes16) s = Sigmoid(g) m = Mul(a, s) y = Conv<pads=[1,1]>(m, w)"
    )
    model = model_with(body.replace("sizes16", "parts"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([16, 16]), "parts"))
    assert_laid(model, ["Unsqueeze", "Conv", "Split", "Sigmoid", "Mul", "Conv", "Squeeze"])


def test_a_first_convolution_of_few_channels_is_where_one_behind_it_is() -> None:
    body = "f = Conv<strides=[2]>(x, first) a = Abs(f) p = MaxPool<kernel_shape=[2]>(a) y = Conv(p, w)"
    assert_laid(model_with(body, size="1,3,64"), ["Unsqueeze", "Conv", "Abs", "MaxPool", "Conv", "Squeeze"])
    alone = model_with("f = Conv<strides=[2]>(x, first) y = Relu(f)", size="1,3,64")
    assert lay_lines(alone) is alone


@pytest.mark.parametrize(
    ("body", "size", "opset"),
    [
        ("y = Conv(x, two)", "1,16,24", 21),
        ("y = Conv(x, odd)", "1,18,24", 21),
        ("y = Conv(x, w)", "1,16,24", 12),
        ("s = Relu(w) y = Conv(x, s)", "1,16,24", 21),
        ("y = Relu(x)", "1,16,24", 21),
    ],
)
def test_what_onnxruntime_does_not_compute_by_blocks_stays(body: str, size: str, opset: int) -> None:
    model = model_with(body, size=size, opset=opset)
    found = lay_lines(model)
    assert op_types(found) == op_types(model)


@pytest.mark.parametrize(
    "behind",
    ["Transpose<perm=[0,2,1]>(c)", "Slice(c, starts3, ends3)", "Softmax(c)", "ReduceMean<keepdims=0>(c, last)"],
)
def test_other_readers_get_lines(behind: str) -> None:
    op_type = behind.partition("<")[0].partition("(")[0]
    assert_laid(model_with(f"c = Conv(x, w) y = {behind}"), ["Unsqueeze", "Conv", "Squeeze", op_type])


def test_outputs_and_what_is_read_twice_keep_their_names() -> None:
    body = "c = Conv<pads=[1,1]>(x, w) r = Relu(c) t = Transpose<perm=[0,2,1]>(r) y = Conv(r, w)"
    found = assert_laid(model_with(body, outputs="float[] y, float[] c, float[] t"))
    assert op_types(found).count("Unsqueeze") == 1
    assert op_types(found).count("Squeeze") == 3


def test_lines_of_unknown_length_are_too() -> None:
    model = model_with("c = Conv<pads=[1,1]>(x, w) y = Relu(c)", size="N,16,L")
    found = lay_lines(model)
    assert op_types(found) == ["Unsqueeze", "Conv", "Relu", "Squeeze"]
    for length in (5, 9):
        feed = {"x": floats(2, 16, length)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


STEPS = (
    "Conv<pads=[1,1]>({0}, w)",
    "Conv<group=16, pads=[2,2]>({0}, each, b)",
    "Relu({0})",
    "Tanh({0})",
    "Mish({0})",
    "Add({0}, {1})",
    "Mul({1}, {0})",
    "Add({0}, channel)",
    "Max({0}, batch)",
    "Softmax({0})",
    "InstanceNormalization({0}, ones, b)",
    "AveragePool<kernel_shape=[3], pads=[1,1]>({0})",
)


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=9))
def test_any_net_of_lines_keeps_its_outputs(steps: list[tuple[str, int, int]]) -> None:
    names, body = ["x"], ""
    for i, (step, first, second) in enumerate(steps):
        body += f" t{i} = {step.format(names[first % len(names)], names[second % len(names)])}"
        names.append(f"t{i}")
    assert_laid(model_with(f"{body} y = Identity({names[-1]})"))
