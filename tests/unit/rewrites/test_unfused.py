from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.unfused import undo_fusions
from tests.models import floats, model_of, op_types, saved
from tests.rewriting import rewritten

CONV = {"w": floats(4, 3, 3, 3, scale=0.3), "b": floats(4)}
IMAGE = "(float[1,3,8,8] x) => (float[] y)"


def assert_undone(model: onnx.ModelProto, expected: list[str]) -> None:
    assert op_types(rewritten(undo_fusions, model, rtol=1e-5, atol=1e-5)) == expected


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", ""),
        ("Tanh", ""),
        ("Sigmoid", ""),
        ("LeakyRelu", ", activation_params = [0.25]"),
        ("HardSigmoid", ", activation_params = [0.125, 0.625]"),
        ("Clip", ", activation_params = [-0.5, 0.5]"),
    ],
)
@pytest.mark.parametrize("opset", [9, 21])
def test_an_activation_goes_behind_its_convolution(activation: str, parameters: str, opset: int) -> None:
    attributes = f'pads = [1,1,1,1], strides = [2,2], activation = "{activation}"{parameters}'
    model = model_of(IMAGE, f"y = com.microsoft.FusedConv<{attributes}>(x, w, b)", CONV, opset=opset)
    assert_undone(model, ["Conv", activation])


def test_what_is_added_to_a_convolution_comes_before_the_activation() -> None:
    body = 's = Conv(x, w) y = com.microsoft.FusedConv<activation = "Relu">(x, w, b, s)'
    assert_undone(model_of(IMAGE, body, CONV), ["Conv", "Conv", "Add", "Relu"])


def test_a_convolution_without_activation_is_one() -> None:
    assert_undone(model_of(IMAGE, "y = com.microsoft.FusedConv(x, w)", CONV), ["Conv"])


@pytest.mark.parametrize(
    ("attributes", "activation"),
    [('activation = "Relu"', "Relu"), ('activation = "LeakyRelu", activation_alpha = 0.25', "LeakyRelu")],
)
def test_an_activation_goes_behind_its_gemm(attributes: str, activation: str) -> None:
    constants = {"w": floats(6, 5), "b": floats(6)}
    body = f"y = com.microsoft.FusedGemm<transB = 1, alpha = 0.5, {attributes}>(x, w, b)"
    assert_undone(model_of("(float[3,5] x) => (float[] y)", body, constants), ["Gemm", activation])


@settings(max_examples=30, deadline=None)
@given(first=st.booleans(), second=st.booleans(), is_constant=st.booleans(), alpha=st.sampled_from([1.0, 0.125]))
def test_products_of_turned_matrices_are_those_of_transposed_ones(
    *, first: bool, second: bool, is_constant: bool, alpha: float
) -> None:
    a, b = ((2, 4, 3) if first else (2, 3, 4)), ((2, 5, 4) if second else (2, 4, 5))
    sizes = ",".join(map(str, a)), ",".join(map(str, b))
    inputs = f"float[{sizes[0]}] x" + ("" if is_constant else f", float[{sizes[1]}] w")
    body = f"y = com.microsoft.FusedMatMul<alpha = {alpha}, transA = {int(first)}, transB = {int(second)}>(x, w)"
    model = model_of(f"({inputs}) => (float[] y)", body, {"w": floats(*b)} if is_constant else {})
    turns = ["Transpose"] * (first + (second and not is_constant))
    assert_undone(model, [*turns, "MatMul", *(["Mul"] if alpha != 1.0 else [])])


@pytest.mark.parametrize(
    "body",
    [
        "y = com.microsoft.FusedMatMul<transBatchA = 1>(x, x)",
        'y = com.microsoft.FusedConv<activation = "Swish">(x, w, b)',
        "y = com.microsoft.BiasGelu(x, g)",
        "y = Conv(x, w, b)",
    ],
)
def test_what_is_none_of_these_or_not_known_stays(body: str) -> None:
    model = model_of(IMAGE, body, {**CONV, "g": floats(8)})
    assert undo_fusions(model) is model


def test_numbers_are_of_the_type_that_is_read() -> None:
    model = model_of(
        "(double[2,3,4] x) => (double[] y)",
        "y = com.microsoft.FusedMatMul<alpha = 0.5, transB = 1>(x, w)",
        {"w": np.ones((2, 5, 4))},
    )
    found = undo_fusions(model)
    assert op_types(found) == ["MatMul", "Mul"]
    onnx.checker.check_model(found, full_check=True)


def test_before_a_gemm_went_without_a_bias_it_stays() -> None:
    body = 'y = com.microsoft.FusedGemm<activation = "Relu">(x, w)'
    model = model_of("(float[3,5] x) => (float[] y)", body, {"w": floats(5, 6)}, opset=10)
    assert undo_fusions(model) is model


def test_a_file_that_onnxruntime_optimised_is_as_it_was(tmp_path: Path) -> None:
    body = "c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) d = Conv(r, v) l = LeakyRelu<alpha = 0.1>(d) y = Exp(l)"
    model = saved(model_of(IMAGE, body, {**CONV, "v": floats(2, 4, 3, 3)}), tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    found = onnx.load(tmp_path / "optimized.onnx")
    assert op_types(found) == ["FusedConv", "FusedConv", "Exp"]
    assert_undone(found, ["Conv", "Relu", "Conv", "LeakyRelu", "Exp"])
