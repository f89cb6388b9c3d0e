"""Where our builder decides otherwise than onnxruntime's quantizer, one test each."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException
from onnxruntime.quantization import QuantType

from autoquant.domain.scheme import Scheme
from autoquant.model.graph import Graph
from autoquant.model.ops import bias_of
from tests.graphs import (
    U8S8_CHANNEL,
    U8S8_TENSOR,
    Case,
    case_of,
    exact,
    models,
    op_types_of,
    optimized,
    run,
    scheme,
    uses,
)
from tests.inspected import FROM_1_32
from tests.models import floats, model_of
from tests.parity.quantizer import quantized_by_onnxruntime

IMAGE = "float[1,4,6,6]"
S8S8 = scheme("s8:tensor:sym", "s8:tensor:sym")
U8U8 = scheme("u8:tensor:asym", "u8:tensor:asym")
U8S8_SYMMETRIC = scheme("u8:tensor:sym", "s8:tensor:sym")


def snr_db(reference: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((reference**2).sum() / ((reference - found) ** 2).sum()))


# What stays float


def test_a_float_reader_of_a_tensor_that_a_float_node_writes_reads_it_unquantized() -> None:
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} a, {IMAGE} b)", "s = Tanh(x) a = Conv(s, w) b = Exp(s)", {"w": floats(4, 4, 1, 1)}
    )
    case = case_of(model)
    ours, theirs = case.quantized(U8S8_TENSOR).model, quantized_by_onnxruntime(case, per_channel=False)
    assert uses(ours)["b"] == ("Exp", ("s", 0))
    assert uses(theirs)["b"] != uses(ours)["b"]
    np.testing.assert_array_equal(run(ours, case.feed)[1], run(model, case.feed)[1])


@pytest.mark.parametrize(
    ("call", "kernel"),
    [("Gemm(s, w, b)", "com.microsoft:QGemm"), ("MatMul(s, s)", "com.microsoft:MatMulIntegerToFloat")],
)
def test_a_product_writes_floats_for_a_float_reader_and_still_runs_on_integers(
    call: str, kernel: str, tmp_path: Path
) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)",
        f"s = Sigmoid(x) g = {call} y = Tanh(g)",
        {"w": floats(4, 4), "b": floats(4)} if call.startswith("Gemm") else {},
    )
    case = case_of(model)
    ours = case.quantized(U8S8_CHANNEL)
    assert uses(ours.model)["y"] == ("Tanh", ("g", 0))
    assert kernel in optimized(ours.model, tmp_path).kernels
    assert uses(quantized_by_onnxruntime(case, per_channel=True))["y"] != ("Tanh", ("g", 0))


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("DepthToSpace<blocksize=2>(c)", "1,1,12,12"),
        ("Expand(c, sizes)", "2,4,6,6"),
        ("Tile(c, repeats)", "1,8,6,6"),
        ("ReduceMax(c, axes)", "1,4,1,1"),
        ("ReduceMin(c, axes)", "1,4,1,1"),
    ],
)
@pytest.mark.parametrize("taken", [S8S8, U8S8_CHANNEL], ids=lambda taken: taken.name)
def test_what_moves_or_selects_values_runs_on_integers(call: str, shape: str, taken: Scheme, tmp_path: Path) -> None:
    constants = {
        "w": floats(4, 4, 1, 1),
        "sizes": np.array([2, 4, 6, 6]),
        "repeats": np.array([1, 2, 1, 1]),
        "axes": np.array([2, 3]),
    }
    body = f"c = Conv(x, w) m = {call} y = Sigmoid(m)"
    case = case_of(model_of(f"({IMAGE} x) => (float[{shape}] y)", body, constants))
    ours = case.quantized(taken)
    kernels = optimized(ours.model, tmp_path).kernels
    assert {str(key.root) for tensor, key in ours.plan.produced.items() if tensor in ("c", "m")} == {"c"}
    assert {"c", "m"} <= set(ours.plan.produced)
    assert Counter(kernels)["DequantizeLinear"] == Counter(kernels)["QuantizeLinear"] == 1
    assert snr_db(run(case.graph.model, case.feed)[0], run(ours.model, case.feed)[0]) > 25


@pytest.mark.parametrize(
    ("reader", "kernel"), [("Sigmoid", "QLinearMatMul"), ("Tanh", "com.microsoft:MatMulIntegerToFloat")]
)
def test_a_constant_may_be_the_first_operand_of_a_product(reader: str, kernel: str, tmp_path: Path) -> None:
    """It has the type of activations: with an s8 one onnxruntime runs the product in float."""
    signature, body = "(float[2,4,5] x) => (float[2,3,5] y)", f"s = Sigmoid(x) g = MatMul(a, s) y = {reader}(g)"
    case = case_of(model_of(signature, body, {"a": floats(3, 4)}))
    ours = case.quantized(U8S8_CHANNEL)
    assert kernel in optimized(ours.model, tmp_path).kernels
    assert snr_db(run(case.graph.model, case.feed)[0], run(ours.model, case.feed)[0]) > 30
    reproduced = quantized_by_onnxruntime(
        case, per_channel=False, options={"TensorQuantOverrides": {"a": [{"quant_type": QuantType.QUInt8}]}}
    )
    assert uses(ours.model)["g"] == uses(reproduced)["g"]


def test_a_product_that_floats_and_integers_read_writes_integers() -> None:
    """onnxruntime takes no product for an integer one whose floats a QuantizeLinear and another operator read."""
    model = model_of(
        "(float[4,4] x) => (float[4,4] y, float[4,4] z)",
        "g = Gemm(x, w) y = Tanh(g) z = Sigmoid(g)",
        {"w": floats(4, 4)},
    )
    read = uses(case_of(model).quantized(U8S8_CHANNEL).model)
    assert [step[0] for step in read["y"][1][:2]] == ["DequantizeLinear", "QuantizeLinear"]  # type: ignore[index]
    assert read["y"][1] == read["z"][1]


@pytest.mark.parametrize(("call", "kernel"), [("Gemm(s, w)", "com.microsoft:QGemm"), ("MatMul(s, s)", "QLinearMatMul")])
@pytest.mark.parametrize(
    ("clip", "taken"),
    [("Clip(g, low)", U8S8_CHANNEL), ("Relu(g)", scheme("u8:tensor:sym:pow2", "s8:tensor:sym:pow2"))],
)
def test_a_product_before_a_relu_or_clip_that_stays_runs_on_integers(
    call: str, kernel: str, clip: str, taken: Scheme, tmp_path: Path
) -> None:
    """onnxruntime looks for the QuantizeLinear of a product behind the Relu or Clip that alone reads it."""
    body = f"s = Sigmoid(x) g = {call} c = {clip} y = Exp(c)"
    model = model_of("(float[4,4] x) => (float[4,4] y)", body, {"w": floats(4, 4), "low": 1e-3})
    kernels = optimized(case_of(model).quantized(taken).model, tmp_path).kernels
    assert kernel in kernels
    assert clip[:4] in kernels


def test_a_product_that_is_a_graph_output_before_a_relu_writes_floats(tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] g, float[4,4] y)",
        "s = Sigmoid(x) g = Gemm(s, w) y = Relu(g)",
        {"w": floats(4, 4)},
    )
    ours = case_of(model).quantized(U8S8_CHANNEL)
    assert Graph(model).nodes[1].outputs[0] not in ours.plan.produced
    assert "com.microsoft:QGemm" in optimized(ours.model, tmp_path).kernels


def test_a_gemm_that_only_integers_read_writes_integers() -> None:
    model = model_of("(float[4,4] x) => (float[4,4] z)", "g = Gemm(x, w) z = Sigmoid(g)", {"w": floats(4, 4)})
    ours = case_of(model).quantized(U8S8_CHANNEL)
    assert Graph(model).nodes[0].outputs[0] in ours.plan.produced


@pytest.mark.parametrize("taken", [S8S8, U8S8_SYMMETRIC], ids=lambda taken: taken.name)
def test_a_relu_stays_where_the_range_of_its_output_does_not_make_it_redundant(taken: Scheme) -> None:
    """Traps 8 and 9: removed on the word of a global option alone, it lets negative values through."""
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} r, {IMAGE} y)",
        "a = Conv(x, w) r = Relu(a) y = LeakyRelu(r)",
        {"w": floats(4, 4, 1, 1)},
    )
    case = case_of(model)
    ours = case.quantized(taken)
    assert "Relu" in op_types_of(ours.model)
    assert run(ours.model, case.feed)[0].min() >= 0
    symmetric = {"symmetric": True}
    theirs = quantized_by_onnxruntime(
        case, per_channel=False, options={"TensorQuantOverrides": {"r": [dict(symmetric)], "a": [dict(symmetric)]}}
    )
    assert "Relu" not in op_types_of(theirs)
    assert run(theirs, case.feed)[0].min() < 0


def test_a_relu_is_absorbed_where_the_range_of_its_output_makes_it_redundant() -> None:
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)", "a = Conv(x, w) r = Relu(a) y = LeakyRelu(r)", {"w": floats(4, 4, 1, 1)}
    )
    assert "Relu" not in op_types_of(case_of(model).quantized(U8S8_TENSOR).model)


def test_a_clip_to_an_interval_without_zero_stays() -> None:
    """Trap 9: the range is widened to hold zero, which the clip would not let pass."""
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Conv(x, w) c = Clip(a, one, two) y = LeakyRelu(c)",
        {"w": floats(4, 4, 1, 1), "one": 1.0, "two": 2.0},
    )
    case = case_of(model)
    ours, theirs = case.quantized(U8S8_TENSOR).model, quantized_by_onnxruntime(case, per_channel=False)
    assert run(ours, case.feed)[0].min() > 0.99
    assert run(theirs, case.feed)[0].min() == 0


@pytest.mark.parametrize("between", ["MaxPool<kernel_shape=[1,1]>(a)", "Transpose<perm=[0,1,3,2]>(a)"])
def test_a_relu_behind_an_operator_that_moves_values_stays(between: str) -> None:
    """Trap 10: removed, it takes from MaxPool the equal scales that its integer kernel needs."""
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)",
        f"a = Conv(x, w) m = {between} r = Relu(m) y = LeakyRelu(r)",
        {"w": floats(4, 4, 1, 1)},
    )
    case = case_of(model)
    ours = case.quantized(U8S8_TENSOR).model
    assert "Relu" in op_types_of(ours)
    before, after = (uses(ours)[name][1] for name in ("m", "r"))
    assert before[:2] == after[:2]  # type: ignore[index]
    assert "Relu" not in op_types_of(quantized_by_onnxruntime(case, per_channel=False))


@pytest.mark.parametrize(("mode", "is_quantized"), [("linear", False), ("nearest", True)])
def test_a_resize_is_quantized_only_where_it_repeats_values(mode: str, is_quantized: bool) -> None:
    model = model_of(
        f"({IMAGE} x) => (float[1,4,12,12] y)",
        f'a = Conv(x, w) u = Resize<mode="{mode}">(a, , scales) y = Sigmoid(u)',
        {"w": floats(4, 4, 1, 1), "scales": np.array([1, 1, 2, 2], np.float32)},
    )
    ours = case_of(model).quantized(U8S8_TENSOR)
    assert (1 in ours.plan.integer) == is_quantized
    assert ("u" in ours.plan.produced) == is_quantized


def test_a_resize_that_writes_a_number_of_its_own_stays_float() -> None:
    """The range of what it reads would clip that number; onnxruntime has no integer kernel for it."""
    crop = 'mode="nearest", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=99.0'
    constants = {
        "w": floats(4, 4, 1, 1),
        "roi": np.array([0, 0, -0.5, -0.5, 1, 1, 1.5, 1.5], np.float32),
        "sizes": np.array([1, 4, 12, 12]),
    }
    body = f"a = Conv(x, w) u = Resize<{crop}>(a, roi, , sizes) y = LeakyRelu(u)"
    case = case_of(model_of(f"({IMAGE} x) => (float[1,4,12,12] y)", body, constants))
    ours = case.quantized(exact(U8S8_TENSOR))
    assert 1 not in ours.plan.integer
    (reference,), (found,) = (run(model, case.feed) for model in (case.graph.model, ours.model))
    assert reference.max() == 99
    np.testing.assert_allclose(found.max(), 99, rtol=0.01)
    assert snr_db(reference, found) > 40


def test_a_mean_that_is_tiny_beside_its_image_has_steps_that_its_kernel_can_take() -> None:
    """QLinearGlobalAveragePool takes scales of which that of the image is less than 256 times size times the mean's."""
    image = (np.indices((1, 4, 6, 6)).sum(axis=0) % 2 * 2 - 1).astype(np.float32)
    model = model_of(f"({IMAGE} x) => (float[1,4,1,1] y)", "s = Add(x, t) y = GlobalAveragePool(s)", {"t": 1e-6})
    case = case_of(model, {"x": image})
    np.testing.assert_allclose(run(case.quantized(U8S8_TENSOR).model, case.feed)[0], 0, atol=1 / 36)
    with pytest.raises(RuntimeException, match="parameter out of computation range"):
        run(quantized_by_onnxruntime(case, per_channel=False), case.feed)


# Weights and biases


def a_product_with_a_bias(op_type: str) -> Case:
    """The documented example: bias [5, -4.5], weight scale 7.843e-10, input scale 0.5; x is all ones."""
    half = np.float32(7.843e-10 * 127)
    weight = np.array([[half, -half / 2], [half / 3, half / 4]], np.float32)
    constants = {"w": weight.reshape(2, 2, 1, 1) if op_type == "Conv" else weight, "b": np.array([5, -4.5], np.float32)}
    shape = "float[1,2,1,1]" if op_type == "Conv" else "float[1,2]"
    model = model_of(f"({shape} x) => ({shape} y)", f"g = {op_type}(x, w, b) y = LeakyRelu<alpha=1.0>(g)", constants)
    case = case_of(model, {"x": np.ones((1, 2, 1, 1) if op_type == "Conv" else (1, 2), np.float32)})
    zero, whole = np.float32(0), np.float32(127.5)
    return Case(case.graph, case.feed, {**case.extremes, case.graph.inputs[0]: (zero, whole)})


@pytest.mark.parametrize("op_type", ["Conv", "Gemm"])
@pytest.mark.parametrize(
    "weight", ["s8:tensor:sym", "s8:channel:sym", "u8:tensor:asym", "u8:channel:sym", "s8:tensor:asym"]
)
def test_a_bias_too_large_for_int32_widens_the_weight_scale_of_every_type(op_type: str, weight: str) -> None:
    """microsoft/onnxruntime PR #21645 does so for symmetric signed weights; others are clipped there (trap 17)."""
    case = a_product_with_a_bias(op_type)
    found = run(case.quantized(scheme("u8:tensor:asym", weight)).model, case.feed)[0].ravel()
    np.testing.assert_allclose(found, [5, -4.5], atol=9.5 / 255 * 2)


@pytest.mark.parametrize(
    ("taken", "zeros"),
    [(U8S8_CHANNEL, slice(1, 2)), (U8S8_CHANNEL, slice(None)), (U8S8_TENSOR, slice(None))],
    ids=["a channel", "all channels", "the tensor"],
)
def test_the_bias_of_zeros_is_no_multiple_of_the_inputs_scale(taken: Scheme, zeros: slice) -> None:
    constants = {"w": floats(4, 4), "b": floats(4)}
    constants["w"][:, zeros], constants["b"][1] = 0, 0.013
    case = case_of(model_of("(float[4,4] x) => (float[4,4] y)", "y = Gemm(x, w, b)", dict(constants)))
    as_theirs = {"OpTypesToExcludeOutputQuantization": ["Gemm"]}
    ours, theirs = (
        run(model, case.feed)[0][:, 1]
        for model in (
            case.quantized(taken).model,
            quantized_by_onnxruntime(case, per_channel=taken is U8S8_CHANNEL, options=as_theirs),
        )
    )
    assert np.abs(ours - 0.013).max() < 1e-3
    assert np.abs(theirs - 0.013).max() > 1e-3


def test_a_channel_of_zeros_has_the_zero_point_of_the_others(tmp_path: Path) -> None:
    """QLinearConv of onnxruntime 1.24 refuses several."""
    weight = floats(4, 4, 1, 1)
    weight[1] = 0
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", "c = Conv(x, w) y = LeakyRelu(c)", {"w": weight}))
    ours = case.quantized(scheme("u8:tensor:asym", "u8:channel:sym")).model
    assert "com.microsoft:QLinearConv" in optimized(ours, tmp_path).kernels
    assert snr_db(run(case.graph.model, case.feed)[0], run(ours, case.feed)[0]) > 35
    theirs = quantized_by_onnxruntime(
        case, per_channel=True, weight=QuantType.QUInt8, options={"WeightSymmetric": True}
    )
    assert [uses(model)["c"][2][0][2] for model in (ours, theirs)] == [{128}, {0, 128}]  # type: ignore[index]


def test_without_the_wider_scale_the_documented_bias_is_lost() -> None:
    case = a_product_with_a_bias("Conv")
    theirs = quantized_by_onnxruntime(case, per_channel=False, options={"QDQDisableWeightAdjustForInt32Bias": True})
    assert abs(run(theirs, case.feed)[0].ravel()[0]) < 1


@settings(max_examples=30)
@given(models(), st.sampled_from([U8S8_TENSOR, U8S8_CHANNEL, U8U8]))
def test_every_bias_has_exactly_the_scale_of_input_times_weight(model: onnx.ModelProto, taken: Scheme) -> None:
    """The kernel of Gemm takes that for granted: a bias of another scale gives wrong numbers silently."""
    ours = case_of(model).quantized(taken).model
    graph = Graph(ours)
    for node in graph.nodes:
        if node.op_type in ("Conv", "Gemm") and bias_of(node):
            x, w, b = (graph.constant(graph.producer[name].inputs[1]) for name in node.inputs)
            np.testing.assert_array_equal(b, x * w)
            assert b.dtype == np.float32


@pytest.mark.parametrize("taken", [U8S8_TENSOR, U8S8_CHANNEL], ids=lambda taken: taken.name)
def test_the_factor_that_a_gemm_gives_its_bias_is_multiplied_in(taken: Scheme) -> None:
    """onnxruntime's quantizer multiplies the bias scale by ``beta`` and sets the attribute to 1: the factor is lost."""
    model = model_of(
        "(float[4,8] x) => (float[4,8] y)",
        "g = Gemm<beta=0.5>(x, w, b) y = LeakyRelu<alpha=1.0>(g)",
        {"w": floats(8, 8), "b": floats(8, scale=10)},
    )
    case = case_of(model)
    (reference,) = run(model, case.feed)
    assert snr_db(reference, run(case.quantized(exact(taken)).model, case.feed)[0]) > 35
    assert snr_db(reference, run(quantized_by_onnxruntime(case, per_channel=False), case.feed)[0]) < 15


def test_a_gemm_with_a_bias_of_one_row_is_quantized_per_channel() -> None:
    """onnxruntime's quantizer fails: it takes the row for one channel's bias."""
    model = model_of(
        "(float[4,8] x) => (float[4,8] y)",
        "g = Gemm(x, w, b) y = LeakyRelu(g)",
        {"w": floats(8, 8), "b": floats(1, 8)},
    )
    case = case_of(model)
    assert snr_db(run(model, case.feed)[0], run(case.quantized(exact(U8S8_CHANNEL)).model, case.feed)[0]) > 35
    with pytest.raises(ValueError, match="ambiguous"):
        quantized_by_onnxruntime(case, per_channel=True)


def test_a_matmul_weight_of_three_dimensions_never_has_a_scale_per_channel(tmp_path: Path) -> None:
    """Trap 16: onnxruntime's quantizer gives it one, with which it runs in float, and until 1.31 not at all."""
    model = model_of(
        "(float[2,3,4] x) => (float[2,3,5] y)", "m = MatMul(x, w) y = LeakyRelu(m)", {"w": floats(2, 4, 5)}
    )
    case = case_of(model)
    ours = case.quantized(U8S8_CHANNEL).model
    scales = {t.name: numpy_helper.to_array(t).shape for t in ours.graph.initializer if t.name.endswith("_scale")}
    assert scales["w_scale"] == ()
    assert snr_db(run(model, case.feed)[0], run(ours, case.feed)[0]) > 25
    assert optimized(ours, tmp_path).integer_nodes == {"m", "y"}
    theirs = quantized_by_onnxruntime(case, per_channel=True)
    if FROM_1_32:
        assert optimized(theirs, tmp_path).integer_nodes == {"y"}
    else:
        with pytest.raises(Exception, match="QLinearMatMul"):
            run(theirs, case.feed)
