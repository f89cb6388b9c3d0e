"""Each cause on a model where it happens: seen in the optimised graph, found in words."""

import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.causes import UNKNOWN, causes_of
from autoquant.inspection.kernels import Runs
from autoquant.inspection.types import X86
from autoquant.inspection.written import Written
from tests.inspected import FROM_1_32, causes_in, graph_of, inspected, node_of
from tests.models import floats, model_of
from tests.qdq import Constant, Wrapped, pair, parameters, stored

IMAGE = {"x": (1, 4, 6, 6)}
TWO = {"x": (1, 4, 6, 6), "z": (1, 4, 6, 6)}
MATRIX = {"x": (4, 8)}
WEIGHT = {"w": Constant((4, 4, 3, 3))}
SQUARE = {"w": Constant((8, 8))}
SCALES = {"scales": np.array([1, 1, 2, 2], np.float32)}
BOUNDS = {"low": 0.0, "high": 6.0}
NORM = {k: np.abs(floats(4)) + 1 for k in "gbmv"}
SUMS = Constant((8,), "s32", scale=0.0006)


def conv(**changes: object) -> Wrapped:
    return Wrapped("Conv(x, w)", IMAGE, WEIGHT, **changes)  # type: ignore[arg-type]


CASES = {
    "no kernel": (Wrapped("Tanh(x)"), "no integer kernel for Tanh on the CPU provider"),
    "no kernel with a weight": (
        Wrapped("ConvTranspose(x, w)", IMAGE, WEIGHT),
        "no integer kernel for ConvTranspose on the CPU provider",
    ),
    "a norm": (
        Wrapped("BatchNormalization(x, g, b, m, v)", plain=NORM),
        "no integer kernel for BatchNormalization on the CPU provider",
    ),
    "recurrent": (
        Wrapped(
            "LSTM<hidden_size=4>(x, w, r)",
            {"x": (3, 1, 8)},
            {"w": Constant((1, 16, 8)), "r": Constant((1, 16, 4))},
        ),
        "no integer kernel for LSTM with Q/DQ on the CPU provider: quantize it dynamically or leave it in float",
    ),
    "an operator of which nothing is known": (
        Wrapped("Softplus(x)"),
        "autoquant knows of no integer kernel for Softplus on the CPU provider",
    ),
    "interpolation": (
        Wrapped('Resize<mode="linear">(x, , scales)', plain=SCALES),
        "no integer kernel for Resize with mode linear on the CPU provider",
    ),
    "16 bits": (conv(activation="u16"), "16-bit activations have no integer kernel"),
    "16 bits of weight": (
        Wrapped("Conv(x, w)", IMAGE, {"w": Constant((4, 4, 3, 3), "s16")}),
        "16-bit weights have no integer kernel",
    ),
    "no output Q": (conv(output=""), "no output QuantizeLinear"),
    "types": (
        Wrapped("Sigmoid(x)", output="u16"),
        "input and output types differ (uint8 in, uint16 out)",
    ),
    "a float constant": (
        Wrapped("Add(x, c)", plain={"c": floats(4, 1, 1)}),
        "input 1 ('c') is a float constant",
    ),
    "Clip inside the range": (
        conv(plain=BOUNDS, behind="Clip(@, low, high)", zero_point=0, scale=7 / 255),
        "Clip 'r' behind it is not absorbed: its bounds 0 and 6 lie inside the output's range 0 to 7",
    ),
    "Relu at the middle": (
        conv(behind="Relu(@)"),
        "Relu 'r' behind it is not absorbed: zero point 128 is not the type's minimum 0",
    ),
    "another operator behind": (conv(behind="LeakyRelu(@)"), "no output QuantizeLinear"),
    "a scale of the bias that is wrong": (
        Wrapped("Conv(x, w, b)", IMAGE, WEIGHT | {"b": Constant((4,), "s32", scale=0.06)}),
        "bias scale differs from input scale x weight scale by more than 1 %",
    ),
    "a bias of 8 bits": (
        Wrapped("Conv(x, w, b)", IMAGE, WEIGHT | {"b": Constant((4,), "s8")}),
        "the bias is quantized to int8, the integer kernel takes int32",
    ),
    "beta": (
        Wrapped("Gemm<beta=0.5>(x, w, b)", MATRIX, SQUARE | {"b": SUMS}),
        "beta of Gemm with a bias is 0.5, the integer kernel takes 1",
    ),
    "alpha": (
        Wrapped("Gemm<alpha=0.5>(x, w, b)", MATRIX, SQUARE | {"b": SUMS}),
        "alpha of Gemm with a bias is 0.5, the integer kernel takes 1",
    ),
    "the axis of Gemm": (
        Wrapped("Gemm(x, w)", MATRIX, {"w": Constant((8, 6), axis=0)}),
        "the weight of Gemm is per channel on axis 0, output channels are on axis 1",
    ),
    "parameters that differ": (
        Wrapped("MaxPool<kernel_shape=[2,2]>(x)"),
        "different in/out parameters: MaxPool only moves values and runs on integers where scale and zero point"
        " before and behind are equal",
    ),
    "16 bits that move with other parameters": (
        Wrapped("Transpose<perm=[0,2,3,1]>(x)", activation="u16"),
        "different in/out parameters: Transpose only moves values and runs on integers where scale and zero point"
        " before and behind are equal",
    ),
    "16 bits that are compared": (
        Wrapped("MaxPool<kernel_shape=[2,2]>(x)", activation="u16", moves=True),
        "16-bit activations have no integer kernel",
    ),
    "an old MaxPool": (
        Wrapped("MaxPool<kernel_shape=[2,2]>(x)", moves=True, opset=11),
        "MaxPool takes integers from opset 12 on, the model is at opset 11",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_node_that_the_file_quantizes_runs_in_float_for_a_cause_in_words(name: str, tmp_path: Path) -> None:
    wrapped, cause = CASES[name]
    found = inspected(wrapped.model, tmp_path)
    (node,) = (node for node in found.nodes if node.name in ("t", "y"))
    assert node.runs is Runs.FLOAT
    assert node.causes == (cause,)


def test_an_input_that_is_not_quantized_is_named(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8")
    body = f"{pair('x', 'x_d')} z = Exp(x) t = Add(x_d, z) {pair('t', 'y')}"
    found = inspected(model_of("(float[4] x) => (float[4] y)", body, values), tmp_path)
    assert node_of(found).causes == ("input 1 ('z') does not come from a DequantizeLinear",)
    assert node_of(found).written is Written.PARTLY


IN_BODIES = """other = If(c) <
    then_branch = first () => (float[1,4,4,4] e) { e = Exp(t) },
    else_branch = second () => (float[1,4,4,4] i) { i = Identity(t) }
>"""


def two_outputs(end: str) -> onnx.ModelProto:
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", WEIGHT["w"])
    body = f"{pair('x', 'x_d')} w_d = DequantizeLinear(w_q, w_s, w_z) t = Conv(x_d, w_d) {pair('t', 'y')} {end}"
    second = "float[1,4,4,4] t" if not end else "float[1,4,4,4] other"
    return model_of(f"(float[1,4,6,6] x, bool c) => (float[1,4,4,4] y, {second})", body, values)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("", "the output is also a graph output ('t')"),
        ("other = Exp(t)", "the output has a consumer that is no QuantizeLinear (Exp 'other')"),
        (IN_BODIES, "the output is read inside a body of If, Loop or Scan"),
    ],
)
def test_an_output_that_others_read_is_named(end: str, cause: str, tmp_path: Path) -> None:
    assert node_of(inspected(two_outputs(end), tmp_path)).causes == (cause,)


def test_unlike_shapes_of_scale_and_zero_point_are_named(tmp_path: Path) -> None:
    model = Wrapped("Gemm(x, w)", MATRIX, SQUARE).model
    for tensor in model.graph.initializer:
        if tensor.name == "w_s":
            tensor.dims.append(1)
    cause = "scale and zero point of the weight of Gemm have different shapes"
    assert causes_in(inspected(model, tmp_path)) == {"t": cause}


@pytest.mark.parametrize(
    ("bias", "cause"),
    [
        ("e", "input 2 ('e') does not come from a DequantizeLinear"),
        ("wide", "the bias 'wide' is a float constant of more than one dimension"),
    ],
)
def test_a_bias_that_is_not_quantized_is_named(bias: str, cause: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", SQUARE["w"]) | {"wide": floats(4, 8)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) e = Exp(b) z = Exp(e)
               t = Gemm(x_d, w_d, {bias}) {pair("t", "y")}"""
    model = model_of("(float[4,8] x, float[8] b) => (float[4,8] y, float[8] z)", body, values)
    assert causes_in(inspected(model, tmp_path)) == {"t": cause}


def test_a_weight_of_4_bits_is_named(tmp_path: Path) -> None:
    model = Wrapped("MatMul(x, w)", MATRIX, SQUARE).model
    for tensor in model.graph.initializer:
        if tensor.name in ("w_q", "w_z"):
            small = np.clip(onnx.numpy_helper.to_array(tensor), -8, 7)
            int4 = onnx.TensorProto.INT4
            tensor.CopyFrom(onnx.helper.make_tensor(tensor.name, int4, small.shape, small.ravel().tolist()))
    found = inspected(model, tmp_path)
    assert causes_in(found) == {"t": "4-bit weights have no integer kernel"}
    assert [constant.size_bytes for constant in found.dequantized] == [32]


@pytest.mark.parametrize("behind", ["Relu(@)", "Clip(@, low, high)"])
def test_a_clipped_output_that_others_read_is_named(behind: str, tmp_path: Path) -> None:
    model = conv(behind=behind, plain=BOUNDS if "Clip" in behind else {}, zero_point=0, scale=6 / 255).model
    model.graph.output.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None))
    op = behind.partition("(")[0]
    assert causes_in(inspected(model, tmp_path))["t"].startswith(f"the output of {op} 'r' behind it is also a graph")


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_constant_is_named(tmp_path: Path) -> None:
    model = Wrapped("Add(x, c)", constants={"c": Constant((4, 1, 1))}, activation="s8").model
    assert causes_in(inspected(model, tmp_path)) == {
        "t": "s8 Add: on x86 onnxruntime makes signed activations unsigned, but the constant at input 1 is not changed,"
        " so types differ; use u8 activations"
    }


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_constant_that_is_computed_from_others_is_named(tmp_path: Path) -> None:
    values = {k: v for name in "xct" for k, v in parameters(name, "s8").items()}
    values |= {"f": floats(4), "shape": np.array([4, 1, 1])}
    body = f"{pair('x', 'x_d')} c = Reshape(f, shape) {pair('c', 'c_d')} t = Add(x_d, c_d) {pair('t', 'y')}"
    found = inspected(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, values), tmp_path)
    assert "the constant at input 1 is not changed" in causes_in(found)["t"]


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_activation_with_several_readers_is_named(tmp_path: Path) -> None:
    values = {k: v for name in "xab" for k, v in parameters(name, "s8").items()}
    body = f"{pair('x', 'x_d')} a = Sigmoid(x_d) b = Sigmoid(x_d) {pair('a', 'y')} {pair('b', 'z')}"
    found = inspected(model_of("(float[4] x) => (float[4] y, float[4] z)", body, values), tmp_path)
    assert set(causes_in(found)) == {"a", "b"}
    assert "but not 'x', which has 2 readers, so types differ" in causes_in(found)["a"]


@pytest.mark.skipif(platform.machine() not in X86, reason="signed activations stay signed on other processors")
def test_a_signed_activation_that_a_node_reads_twice_has_two_readers(tmp_path: Path) -> None:
    model = model_of(
        "(float[8,8] x) => (float y)", f"{pair('x', 'x_d')} t = MatMul(x_d, x_d) y = Exp(t)", parameters("x", "s8")
    )
    assert "but not 'x', which has 2 readers" in causes_in(inspected(model, tmp_path))["t"]


def test_signed_types_are_no_cause_on_other_processors() -> None:
    wrapped = Wrapped("Add(x, c)", constants={"c": Constant((4, 1, 1))}, activation="s8")
    graph = graph_of(wrapped.model)
    node = next(node for node in graph.nodes if node.name == "t")
    assert causes_of(node, graph, Written.QUANTIZED, "aarch64") == (UNKNOWN,)
    assert causes_of(node, graph, Written.QUANTIZED, "x86_64") != (UNKNOWN,)


def test_a_relu_between_pairs_has_no_kernel_of_its_own(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8")
    model = model_of("(float[4] x) => (float[4] y)", f"{pair('x', 'x_d')} t = Relu(x_d) {pair('t', 'y')}", values)
    expected = "no integer kernel for Relu on the CPU provider: it is only absorbed directly behind an integer operator"
    assert causes_in(inspected(model, tmp_path)) == {"t": expected}


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_a_norm_is_to_be_folded_into_the_convolution_before_it(op_type: str, tmp_path: Path) -> None:
    values = {k: v for name in "xct" for k, v in parameters(name, "u8").items()} | NORM | {"w": floats(4, 4, 1, 1)}
    body = f"""{pair("x", "x_d")} c = {op_type}(x_d, w) {pair("c", "c_d")} t = BatchNormalization(c_d, g, b, m, v)
               {pair("t", "y")}"""
    found = inspected(model_of("(float[1,4,6,6] x) => (float[1,4,6,6] y)", body, values), tmp_path)
    expected = f"no integer kernel for BatchNormalization on the CPU provider: fold it into the {op_type} before"
    assert causes_in(found)["t"] == f"{expected} quantizing"


def test_an_activation_per_channel_is_named(tmp_path: Path) -> None:
    values = stored("x", Constant((4,), "u8", axis=0)) | parameters("t", "u8")
    body = f"""x_i = QuantizeLinear<axis=1>(x, x_s, x_z) x_d = DequantizeLinear<axis=1>(x_i, x_s, x_z)
               t = Transpose<perm=[0,2,3,1]>(x_d) {pair("t", "y")}"""
    found = inspected(model_of("(float[1,4,6,6] x) => (float[1,6,6,4] y)", body, values), tmp_path)
    assert causes_in(found) == {"t": "an activation is quantized per channel; activations must be per tensor"}


def test_a_scale_that_is_computed_is_named(tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8")
    body = f"""e = Exp(e_in) x_q = QuantizeLinear(x, e, x_z) x_d = DequantizeLinear(x_q, e, x_z)
               t = MaxPool<kernel_shape=[2,2]>(x_d) {pair("t", "y")}"""
    found = inspected(model_of("(float[1,4,6,6] x, float e_in) => (float[1,4,5,5] y)", body, values), tmp_path)
    assert causes_in(found) == {"t": "a scale or zero point before or behind it is not a constant"}


@pytest.mark.parametrize(
    ("call", "constant", "cause"),
    [
        ("Conv(x, w_d)", Constant((8, 8, 1)), "only the weight is quantized, and Conv has no weight-only kernel"),
        ("MatMul(x, w_d)", Constant((8, 8), "s16"), "the weight-only kernel takes weights of 8 bits and fewer"),
        ("Gemm<transB=1>(x, w_d)", Constant((8, 8)), "the weight-only kernel takes Gemm with transB = 0 only"),
        ("MatMul(x, w_d)", Constant((8, 8), axis=0), "per-channel axis of MatMul must be the last, it is 0"),
    ],
)
def test_a_quantized_weight_alone_is_dequantized_for_a_cause(
    call: str, constant: Constant, cause: str, tmp_path: Path
) -> None:
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    given = "float[1,8,8] x" if call.startswith("Conv") else "float[8,8] x"
    body = f"w_d = DequantizeLinear{axis}(w_q, w_s, w_z) y = {call}"
    found = inspected(model_of(f"({given}) => (float y)", body, stored("w", constant)), tmp_path)
    assert causes_in(found)["y"].startswith(cause)
    assert len(found.dequantized) == 1


REREAD = {
    "Reshape": ("Reshape(@, shape)", (4, 16)),
    "Slice": ("Slice(@, first, eight)", (9, 8)),
    "Squeeze": ("Squeeze(@, first)", (1, 8, 8)),
    "Unsqueeze": ("Unsqueeze(@, first)", (8, 8)),
    "Cast": ("Cast<to=1>(@)", (8, 8)),
}


def reread(weight: str, call: str, constant: Constant, *, scale_type: str = "float32") -> onnx.ModelProto:
    """A product of which the weight is moved behind its DequantizeLinear."""
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", constant)
    values |= {"shape": np.array([8, 8]), "first": np.array([0]), "eight": np.array([8])}
    values["w_s"] = np.asarray(values["w_s"], scale_type)
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear{axis}(w_q, w_s, w_z) w_t = {weight.replace("@", "w_d")}
               t = {call} {pair("t", "y")}"""
    return model_of("(float[8,8] x) => (float y)", body, values)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("op_type", REREAD)
def test_what_is_between_a_weight_and_its_dequantizer_is_named(op_type: str, axis: int | None, tmp_path: Path) -> None:
    weight, shape = REREAD[op_type]
    scale_type = "float16" if op_type == "Cast" else "float32"
    model = reread(weight, "MatMul(x_d, w_t)", Constant(shape, axis=axis), scale_type=scale_type)
    cause = (
        f"{op_type} is between input 1 and its DequantizeLinear, which must come last: quantize what {op_type} gives"
    )
    found = inspected(model, tmp_path)
    assert causes_in(found) == {"t": cause}
    assert node_of(found).runs is Runs.FLOAT


@pytest.mark.skipif(not FROM_1_32, reason="1.28 aborts when it opens such a file")
@pytest.mark.parametrize(("axis", "n_causes"), [(0, 1), (1, 2)])
def test_a_transpose_is_named_behind_a_weight_per_channel(axis: int, n_causes: int, tmp_path: Path) -> None:
    model = reread("Transpose(@)", "MatMul(x_d, w_t)", Constant((8, 8), axis=axis))
    causes = node_of(inspected(model, tmp_path)).causes
    assert causes[0].startswith("Transpose is between input 1 and its DequantizeLinear")
    assert causes[1:] == (
        ("the weight of MatMul is per channel on axis 0, output channels are on axis 1",) * (n_causes - 1)
    )


def test_a_transpose_that_gemm_takes_as_its_own_is_no_cause(tmp_path: Path) -> None:
    model = reread("Transpose(@)", "Gemm(x_d, w_t)", Constant((6, 8), axis=1))
    cause = "the weight of Gemm is per channel on axis 0, output channels are on axis 1"
    assert causes_in(inspected(model, tmp_path)) == {"t": cause}


@pytest.mark.parametrize("op_type", ["Transpose", "Reshape"])
def test_what_is_between_a_dequantized_weight_and_a_float_product_is_named(op_type: str, tmp_path: Path) -> None:
    arguments = "w_d" if op_type == "Transpose" else "w_d, shape"
    body = f"w_d = DequantizeLinear(w_q, w_s, w_z) w_t = {op_type}({arguments}) y = Gemm(x, w_t)"
    values = stored("w", Constant((8, 8))) | {"shape": np.array([8, 8])}
    found = inspected(model_of("(float[8,8] x) => (float y)", body, values), tmp_path)
    assert set(causes_in(found)) == {"y"}
    assert causes_in(found)["y"].startswith(f"{op_type} is between input 1 and its DequantizeLinear")


@pytest.mark.parametrize("activation", ["", "r = Relu(t)"])
def test_a_float_bias_that_becomes_that_of_a_gemm_is_named(activation: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | stored("w", SQUARE["w"]) | {"b": floats(8)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) m = MatMul(x_d, w_d) t = Add(m, b)
               {activation} y = Exp({"r" if activation else "t"})"""
    found = inspected(model_of("(float[4,8] x) => (float y)", body, values), tmp_path)
    assert causes_in(found) == {
        "m": "onnxruntime makes a Gemm of it and the Add behind it, whose bias is float: quantize the bias to s32 or"
        " the output of the Add"
    }


@pytest.mark.parametrize("bias", ["b", "c_d"])
def test_a_bias_that_is_quantized_by_either_is_none(bias: str, tmp_path: Path) -> None:
    values = parameters("x", "u8") | parameters("t", "u8") | stored("w", SQUARE["w"]) | stored("c", SUMS)
    end = pair("t", "y") if bias == "b" else "y = Exp(t)"
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) c_d = DequantizeLinear(c_q, c_s, c_z)
               m = MatMul(x_d, w_d) t = Add(m, {bias}) {end}"""
    found = inspected(model_of("(float[4,8] x) => (float y)", body, values | {"b": floats(8)}), tmp_path)
    assert causes_in(found) == {}
    assert node_of(found, "m").kernel == "com.microsoft:QGemm"


def test_what_no_rule_explains_is_said_to_be_unknown() -> None:
    graph = graph_of(Wrapped("Sigmoid(x)").model)
    node = next(node for node in graph.nodes if node.name == "t")
    assert causes_of(node, graph, Written.QUANTIZED, "x86_64") == (UNKNOWN,)


def test_several_causes_are_all_named(tmp_path: Path) -> None:
    model = replace(CASES["a scale of the bias that is wrong"][0], output="").model
    assert node_of(inspected(model, tmp_path), "y").causes == (
        "no output QuantizeLinear",
        "bias scale differs from input scale x weight scale by more than 1 %",
    )
