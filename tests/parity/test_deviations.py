"""Where our builder decides otherwise than onnxruntime's quantizer, one test each."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType

from autoquant.domain.scheme import Operators, Scheme
from autoquant.model.graph import Graph
from autoquant.model.ops import bias_of
from autoquant.model.optimized import OptimizedGraph, read_optimized
from tests.graphs import U8S8_CHANNEL, U8S8_TENSOR, Case, case_of, exact, models, opened, run, scheme, uses
from tests.inspected import FROM_1_32
from tests.models import floats, model_of
from tests.parity.quantizer import quantized_by_onnxruntime

IMAGE = "float[1,4,6,6]"
S8S8 = scheme("s8:tensor:sym", "s8:tensor:sym")
U8U8 = scheme("u8:tensor:asym", "u8:tensor:asym")
U8S8_SYMMETRIC = scheme("u8:tensor:sym", "s8:tensor:sym")


def optimized(model: onnx.ModelProto, folder: Path) -> OptimizedGraph:
    """The graph that runs under default session options."""
    opened(model, str(folder / "optimized.onnx"))
    return read_optimized(folder / "optimized.onnx")


def plain_options() -> ort.SessionOptions:
    """Under which nothing is fused."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return options


def snr_db(reference: np.ndarray, found: np.ndarray) -> float:
    return float(10 * np.log10((reference**2).sum() / ((reference - found) ** 2).sum()))


def op_types_of(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


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


# A float operator between quantized neighbours


def between(before: str, operator: str, behind: str) -> onnx.ModelProto:
    """A Conv, what leads to the operator ``f``, the operator, what leads away, and an operator that reads integers."""
    gemm = operator.startswith("Gemm")
    flat = "flat = Reshape(in, rows)" if gemm else "flat = Transpose<perm=[0,1,3,2]>(in)"
    return model_of(
        f"({IMAGE} x) => (float[{'N,M' if gemm else 'N,C,H,W'}] y)",
        f"""a = Conv(x, w, b) in = {before}(a) {flat} f = {operator} out = {behind}(f) y = Sigmoid(out)""",
        {
            "w": floats(4, 4, 1, 1, scale=0.5),
            "b": floats(4),
            "wf": floats(36, 4, scale=0.2) if gemm else floats(4, 4, 1, 1, seed=3),
            "rows": np.array([4, 36], np.int64),
        },
    )


BEFORE = ["MaxPool<kernel_shape=[1,1]>", "LeakyRelu"]
BEHIND = ["Relu", "LeakyRelu"]


@pytest.mark.parametrize("operator", ["Conv(flat, wf, b)", "Conv(flat, wf)", "Gemm(flat, wf, b)", "Gemm(flat, wf)"])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("behind", BEHIND)
def test_a_float_operator_between_quantized_ones_runs_in_float_under_default_options(
    operator: str, before: str, behind: str, tmp_path: Path
) -> None:
    """Trap 23: onnxruntime's optimizer makes it int8 per tensor, unless a Sum of one input stands before it."""
    model = between(before, operator, behind)
    case = case_of(model)
    ours = case.quantized(U8S8_CHANNEL, {"f": None, "out": None} if behind == "Relu" else {"f": None})
    assert ours.candidate.float_nodes == {"f"}
    assert op_types_of(ours.model).count("Sum") == 1
    graph = optimized(ours.model, tmp_path)
    assert "a" in graph.integer_nodes
    assert "f" not in graph.integer_nodes
    assert not {"QGemm", "com.microsoft:QGemm"} & set(graph.kernels)


@pytest.mark.parametrize("reader", ["Sigmoid", "Tanh"])
def test_a_float_product_of_two_quantized_activations_runs_in_float(reader: str, tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)", f"a = Sigmoid(x) t = Transpose(a) f = MatMul(a, t) y = {reader}(f)"
    )
    case = case_of(model)
    assert "f" in optimized(quantized_by_onnxruntime(case, per_channel=True), tmp_path).integer_nodes
    ours = case.quantized(U8S8_CHANNEL, {"f": None})
    assert "f" not in optimized(ours.model, tmp_path).integer_nodes


def test_a_float_matmul_that_becomes_a_gemm_with_its_bias_runs_in_float(tmp_path: Path) -> None:
    model = model_of(
        "(float[4,4] x) => (float[4,4] y)",
        "a = Sigmoid(x) f = MatMul(a, w) g = Add(f, b) y = Sigmoid(g)",
        {"w": floats(4, 4), "b": floats(4)},
    )
    case = case_of(model)
    theirs = optimized(quantized_by_onnxruntime(case, per_channel=True, nodes=["a", "y"]), tmp_path)
    ours = optimized(case.quantized(U8S8_CHANNEL, {"f": None, "g": None}).model, tmp_path)
    assert "com.microsoft:QGemm" in theirs.kernels
    assert "com.microsoft:QGemm" not in ours.kernels


def test_a_float_conv_that_takes_in_a_constant_summand_runs_in_float(tmp_path: Path) -> None:
    model = model_of(
        f"({IMAGE} x) => ({IMAGE} y)",
        "a = Sigmoid(x) f = Conv(a, w) g = Add(f, b) y = Sigmoid(g)",
        {"w": floats(4, 4, 1, 1), "b": floats(1, 4, 1, 1)},
    )
    case = case_of(model)
    theirs = optimized(quantized_by_onnxruntime(case, per_channel=True, nodes=["a", "y"]), tmp_path)
    ours = optimized(case.quantized(U8S8_CHANNEL, {"f": None, "g": None}).model, tmp_path)
    assert any("QLinearConv" in kernel for kernel in theirs.kernels)
    assert not any("QLinearConv" in kernel for kernel in ours.kernels)


@pytest.mark.parametrize(
    ("call", "kernel"),
    [
        ("Add(c, d)", "Add"),
        ("Mul(c, d)", "Mul"),
        ("Concat<axis=1>(c, d)", "Concat"),
        ("Where(b, c, d)", "Where"),
        ("Sigmoid(c)", "Sigmoid"),
        ("LeakyRelu(c)", "LeakyRelu"),
        ("Softmax(c)", "Softmax"),
        ("GlobalAveragePool(c)", "GlobalAveragePool"),
    ],
)
def test_other_float_operators_between_integers_run_within_a_step_of_float(
    call: str, kernel: str, tmp_path: Path
) -> None:
    n_channels = 8 if kernel == "Concat" else 4
    size = 1 if kernel == "GlobalAveragePool" else 6
    constants = {"w": floats(4, 4, 1, 1), "u": floats(3, n_channels, 1, 1), "b": np.arange(6) % 2 == 0}
    body = f"c = Conv(x, w) d = Conv(c, w) m = {call} y = Conv(m, u)"
    case = case_of(model_of(f"({IMAGE} x) => (float[1,3,{size},{size}] y)", body, constants))
    ours = case.quantized(scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)).model
    assert f"com.microsoft:QLinear{kernel}" in optimized(ours, tmp_path).kernels
    (quantize,) = (node for node in ours.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "m")
    ours.graph.output.append(helper.make_tensor_value_info(quantize.output[0], onnx.TensorProto.UINT8, None))
    fused = run(ours, case.feed)[-1].astype(int)
    as_written = ort.InferenceSession(ours.SerializeToString(), plain_options(), providers=["CPUExecutionProvider"])
    rounded = as_written.run(None, dict(case.feed))[-1].astype(int)
    assert np.abs(fused - rounded).max() <= 1


def test_without_the_sum_onnxruntime_quantizes_a_node_that_was_excluded(tmp_path: Path) -> None:
    case = case_of(between("LeakyRelu", "Conv(flat, wf)", "LeakyRelu"))
    others = [node.name for node in case.graph.nodes if node.name != "f"]
    theirs = quantized_by_onnxruntime(case, per_channel=True, nodes=others)
    assert "f" in optimized(theirs, tmp_path).integer_nodes


@pytest.mark.parametrize("behind", ["Tanh", "Exp"])
def test_a_float_operator_that_leads_to_floats_needs_no_sum(behind: str, tmp_path: Path) -> None:
    case = case_of(between("LeakyRelu", "Conv(flat, wf, b)", behind))
    ours = case.quantized(U8S8_CHANNEL, {"f": None})
    assert "Sum" not in op_types_of(ours.model)
    assert "f" not in optimized(ours.model, tmp_path).integer_nodes


@settings(max_examples=40)
@given(models(), st.sets(st.integers(0, 30), max_size=8))
def test_no_float_operator_of_any_mix_becomes_an_integer_kernel(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto, in_float: set[int]
) -> None:
    case = case_of(model)
    chosen = {node.name: None for node in case.graph.nodes if node.index in in_float}
    ours = case.quantized(U8S8_CHANNEL, chosen)
    graph = optimized(ours.model, tmp_path_factory.mktemp("optimized"))
    assert not ours.candidate.float_nodes & graph.integer_nodes
