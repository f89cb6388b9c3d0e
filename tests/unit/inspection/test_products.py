"""Products that onnxruntime computes on integers although their numbers do not fit, and what comes of it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from autoquant.inspection.kernels import Runs
from autoquant.inspection.products import wrong_numbers
from tests.inspected import FROM_1_32, causes_in, graph_of, inspected, node_of
from tests.models import Array, feed_of, floats, model_of, outputs_of
from tests.qdq import Constant, Wrapped

IMAGE: Mapping[str, tuple[int, ...]] = {"x": (1, 4, 6, 6)}
MATRIX: Mapping[str, tuple[int, ...]] = {"x": (4, 8)}
STACK = {"x": (2, 4, 8)}


def with_unlike_scales(wrapped: Wrapped) -> onnx.ModelProto:
    """With scales of the weight that differ between channels."""
    model = wrapped.model
    for tensor in model.graph.initializer:
        scales = numpy_helper.to_array(tensor)
        if tensor.name == "w_s" and scales.size > 1:
            unlike = (scales * np.linspace(1, 3, scales.size)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(unlike, "w_s"))
    return model


def optimized_outputs(path: Path, feed: Mapping[str, Array]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, feed)[0]
    return found


WRONG: dict[str, tuple[Mapping[str, tuple[int, ...]], tuple[int, ...], int]] = {
    "Conv(x, w)": (IMAGE, (4, 4, 3, 3), 1),
    "Gemm(x, w)": (MATRIX, (8, 8), 0),
    "Gemm<transB=1>(x, w)": (MATRIX, (8, 8), 1),
}
if not FROM_1_32:
    WRONG["MatMul(x, w)"] = (MATRIX, (8, 8), 0)

UNFIT = [
    (Wrapped("MatMul(x, w)", MATRIX, {"w": Constant((8, 6), axis=0)}), "output channels are on axis 1"),
    (Wrapped("MatMul(x, w)", STACK, {"w": Constant((2, 8, 8), axis=2)}), "has not two dimensions"),
]
"""Products of matrices whose weight has its channels where no kernel has them."""


@pytest.mark.parametrize("call", WRONG)
def test_channels_on_the_wrong_axis_of_a_square_weight_give_wrong_numbers(call: str, tmp_path: Path) -> None:
    inputs, shape, axis = WRONG[call]
    model = with_unlike_scales(Wrapped(call, inputs, {"w": Constant(shape, axis=axis)}))
    found = inspected(model, tmp_path)
    (remark,) = found.remarks
    assert node_of(found).runs is Runs.INTEGER
    assert remark.name == "t"
    assert remark.text.endswith("this integer kernel gives wrong numbers")
    feed = feed_of(model)
    difference = np.abs(optimized_outputs(tmp_path / "model.onnx", feed) - outputs_of(model, feed)[0])
    assert difference.max() > 0.1


@pytest.mark.parametrize(
    ("wrapped", "text"),
    [
        (Wrapped("Conv(x, w)", IMAGE, {"w": Constant((6, 4, 3, 3), axis=1)}), "output channels are on axis 0"),
        *([] if FROM_1_32 else UNFIT),
    ],
)
def test_channels_that_do_not_fit_fail_when_the_model_runs(wrapped: Wrapped, text: str, tmp_path: Path) -> None:
    model = with_unlike_scales(wrapped)
    (remark,) = inspected(model, tmp_path).remarks
    assert text in remark.text
    assert remark.text.endswith("this integer kernel fails when it runs")
    with pytest.raises(Exception, match="was false"):
        optimized_outputs(tmp_path / "model.onnx", feed_of(model))


@pytest.mark.skipif(not FROM_1_32, reason="onnxruntime runs them on integers until 1.31")
@pytest.mark.parametrize(("wrapped", "text"), UNFIT)
def test_channels_that_do_not_fit_keep_a_product_in_float(wrapped: Wrapped, text: str, tmp_path: Path) -> None:
    model = with_unlike_scales(wrapped)
    found = inspected(model, tmp_path)
    assert node_of(found).runs is Runs.FLOAT
    assert text in causes_in(found)["t"]
    feed = feed_of(model)
    np.testing.assert_allclose(optimized_outputs(tmp_path / "model.onnx", feed), outputs_of(model, feed)[0], atol=0.06)


def test_a_wrong_bias_scale_of_gemm_gives_wrong_numbers(tmp_path: Path) -> None:
    bias = Constant((8,), "s32", scale=0.1)
    model = Wrapped("Gemm(x, w, b)", MATRIX, {"w": Constant((8, 8)), "b": bias}, scale=1.0).model
    found = inspected(model, tmp_path)
    assert node_of(found).runs is Runs.INTEGER
    expected = "Gemm's bias scale is wrong: it runs as an integer kernel and gives wrong numbers"
    assert [remark.text for remark in found.remarks] == [expected]
    feed = feed_of(model)
    assert np.abs(optimized_outputs(tmp_path / "model.onnx", feed) - outputs_of(model, feed)[0]).max() > 1


@pytest.mark.parametrize(
    "wrapped",
    [
        Wrapped("Gemm(x, w, b)", MATRIX, {"w": Constant((8, 8)), "b": Constant((8,), "s32", scale=0.0006)}),
        Wrapped("Gemm<transB=1>(x, w)", MATRIX, {"w": Constant((6, 8), axis=0)}),
        Wrapped("MatMul(x, w)", MATRIX, {"w": Constant((8, 6), axis=1)}),
        Wrapped("Conv(x, w)", IMAGE, {"w": Constant((6, 4, 3, 3), axis=0)}),
    ],
)
def test_numbers_that_fit_are_not_remarked_upon(wrapped: Wrapped, tmp_path: Path) -> None:
    model = with_unlike_scales(wrapped)
    found = inspected(model, tmp_path)
    assert (found.remarks, found.unlike_written) == ((), ())
    feed = feed_of(model)
    np.testing.assert_array_equal(optimized_outputs(tmp_path / "model.onnx", feed), outputs_of(model, feed)[0])


def test_an_activation_per_channel_fails_when_the_model_runs(tmp_path: Path) -> None:
    model = Wrapped("Conv(x, w)", IMAGE, {"w": Constant((4, 4, 3, 3))}).model
    for tensor in model.graph.initializer:
        if tensor.name in ("x_s", "x_z"):
            tensor.CopyFrom(numpy_helper.from_array(np.repeat(numpy_helper.to_array(tensor), 4), tensor.name))
    (remark,) = inspected(model, tmp_path).remarks
    assert remark.text == "input 0 is quantized per channel, activations must be per tensor: this integer kernel fails"


def test_an_activation_per_channel_says_nothing_of_the_scale_of_a_bias(tmp_path: Path) -> None:
    """There are three scales of the input and eight of the weight."""
    constants = {"w": Constant((8, 3, 3, 3), axis=0), "b": Constant((8,), "s32", scale=0.001)}
    model = Wrapped("Conv(x, w, b)", {"x": (1, 3, 6, 6)}, constants, output="").model
    for tensor in model.graph.initializer:
        if tensor.name in ("x_s", "x_z"):
            tensor.CopyFrom(numpy_helper.from_array(np.repeat(numpy_helper.to_array(tensor), 3), tensor.name))
    for node in model.graph.node:
        if node.input[0] in ("x", "x_q") or node.output[0] in ("x_q", "x_d"):
            node.attribute.append(onnx.helper.make_attribute("axis", 1))
    assert not any("bias" in remark.text for remark in inspected(model, tmp_path).remarks)


def test_nothing_is_said_of_the_channels_of_an_activation_whose_shape_is_not_known() -> None:
    model = Wrapped("Conv(x, k)", {**IMAGE, "k": (2, 4, 3, 3)}).model
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "N"
    del model.graph.value_info[:]
    graph = graph_of(model)
    (node,) = (node for node in graph.nodes if node.op_type == "Conv")
    assert graph.shape(node.inputs[1]) is None
    assert list(wrong_numbers(node, graph)) == []


@pytest.mark.parametrize(
    ("shape", "zero_points", "is_said"),
    [
        ((3, 8, 6), (6,), True),
        ((3, 8, 6), (3, 1, 6), False),
        ((1, 8, 1), (1,), False),
        ((8, 6), (6,), False),
    ],
)
def test_zero_points_of_a_stack_of_matrices_fail_when_the_model_runs(
    shape: tuple[int, ...], zero_points: tuple[int, ...], is_said: bool, tmp_path: Path
) -> None:
    body = "xq, xs, xz = DynamicQuantizeLinear(x) i = MatMulInteger(xq, w, xz, wz) f = Cast<to=1>(i) y = Mul(f, xs)"
    constants = {"w": floats(*shape, scale=50).astype(np.int8), "wz": np.zeros(zero_points, np.int8)}
    batch = "3," if len(shape) > 2 else ""
    model = model_of(f"(float[{batch}4,8] x) => (float[{batch}4,{shape[-1]}] y)", body, constants)
    texts = [remark.text for remark in inspected(model, tmp_path).remarks]
    assert any(text.startswith("the weight of MatMulInteger is a stack") for text in texts) is is_said
    if is_said:
        with pytest.raises(Fail, match="zero point"):
            outputs_of(model, feed_of(model))
    else:
        outputs_of(model, feed_of(model))
