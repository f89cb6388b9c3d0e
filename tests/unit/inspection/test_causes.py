"""Each cause on a model where it happens: seen in the optimised graph, found in words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.causes import UNKNOWN, causes_of
from autoquant.inspection.kernels import Runs
from autoquant.inspection.written import Written
from tests.inspected import causes_in, graph_of, inspected, node_of
from tests.models import floats, model_of
from tests.qdq import IMAGE, MATRIX, SQUARE, SUMS, WEIGHT, Constant, Wrapped, pair, parameters, stored

SCALES = {"scales": np.array([1, 1, 2, 2], np.float32)}
BOUNDS = {"low": 0.0, "high": 6.0}
NORM = {k: np.abs(floats(4)) + 1 for k in "gbmv"}


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


@pytest.mark.parametrize("behind", ["Relu(@)", "Clip(@, low, high)"])
def test_a_clipped_output_that_others_read_is_named(behind: str, tmp_path: Path) -> None:
    model = conv(behind=behind, plain=BOUNDS if "Clip" in behind else {}, zero_point=0, scale=6 / 255).model
    model.graph.output.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None))
    op = behind.partition("(")[0]
    assert causes_in(inspected(model, tmp_path))["t"].startswith(f"the output of {op} 'r' behind it is also a graph")


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
