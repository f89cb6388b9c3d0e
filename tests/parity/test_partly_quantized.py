"""Which kernels run operators that are not quantized on all sides."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic

from autoquant import inspect_model
from autoquant.inspection.kernels import Runs
from tests.inspected import inspected, node_of
from tests.models import floats, model_of, saved, weight_only_operator
from tests.qdq import IMAGE, MATRIX, SQUARE, WEIGHT, Constant, Wrapped, stored


@pytest.mark.parametrize(
    ("model", "kernel"),
    [
        (Wrapped("Gemm(x, w)", MATRIX, SQUARE, output=""), "com.microsoft:QGemm"),
        (Wrapped("MatMul(x, z)", {"x": (4, 8), "z": (8, 4)}, output=""), "com.microsoft:MatMulIntegerToFloat"),
        (Wrapped("ArgMax<keepdims=0>(x)", IMAGE, output=""), "ArgMax"),
    ],
)
def test_some_kernels_take_integers_and_give_floats(model: Wrapped, kernel: str, tmp_path: Path) -> None:
    proto = model.model
    if "ArgMax" in model.call:
        proto.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    found = node_of(inspected(proto, tmp_path), "y")
    assert (found.runs, found.kernel) == (Runs.INTEGER, kernel)


@pytest.mark.parametrize(
    ("call", "constant", "kernel"),
    [
        ("MatMul(x, w)", Constant((32, 32), "u8"), "com.microsoft:MatMulNBits"),
        ("MatMul(x, w)", Constant((32, 32), "s8", axis=1), "com.microsoft:MatMulNBits"),
        ("MatMul(x, w)", Constant((32, 32), "s8", axis=0), None),
        ("MatMul(x, w)", Constant((32, 32), "s16"), None),
        ("Gemm(x, w)", Constant((32, 32)), "com.microsoft:MatMulNBits"),
        ("Gemm<transB=1>(x, w)", Constant((32, 32)), None),
    ],
)
def test_a_product_with_a_quantized_weight_alone_runs_as_in_the_table(
    call: str, constant: Constant, kernel: str | None, tmp_path: Path
) -> None:
    model = weight_only(call, "float[4,32] x", constant)
    found = inspected(model, tmp_path)
    assert node_of(found, "y").runs == (Runs.WEIGHT_ONLY if kernel else Runs.FLOAT)
    assert len(found.dequantized) == (0 if kernel else 1)


def weight_only(call: str, given: str, constant: Constant) -> onnx.ModelProto:
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    body = f"w_d = DequantizeLinear{axis}(w_q, w_s, w_z) y = {call.replace(', w)', ', w_d)')}"
    return model_of(f"({given}) => (float y)", body, stored("w", constant))


def test_a_conv_with_a_quantized_weight_alone_dequantizes_it_at_every_inference(tmp_path: Path) -> None:
    found = inspected(weight_only("Conv(x, w)", "float[1,4,6,6] x", WEIGHT["w"]), tmp_path)
    assert node_of(found, "y").runs is Runs.FLOAT
    assert [(c.tensor, c.size_bytes, c.readers) for c in found.dequantized] == [("w_q", 4 * 4 * 9, ("y",))]


@pytest.mark.parametrize(
    ("given", "call", "constants", "kernel"),
    [
        ("float[4,8] x", "MatMul(x, w)", {"w": floats(8, 8)}, "com.microsoft:DynamicQuantizeMatMul"),
        ("float[1,4,6,6] x", "Conv(x, w)", {"w": floats(4, 4, 3, 3)}, "ConvInteger"),
        (
            "float[3,1,8] x",
            "LSTM<hidden_size=4>(x, w, r)",
            {"w": floats(1, 16, 8), "r": floats(1, 16, 4)},
            "com.microsoft:DynamicQuantizeLSTM",
        ),
    ],
)
def test_a_dynamically_quantized_operator_runs_as_in_the_table(
    given: str, call: str, constants: dict[str, np.ndarray], kernel: str, tmp_path: Path
) -> None:
    model = model_of(f"({given}) => (float y)", f"y = {call}", dict(constants))
    quantize_dynamic(saved(model, tmp_path / "float.onnx"), tmp_path / "model.onnx", weight_type=QuantType.QInt8)
    found = inspect_model(tmp_path / "model.onnx").inspection
    assert {node.kernel for node in found.nodes if node.runs is Runs.DYNAMIC} >= {kernel}
    assert found.unlike_written == ()


@pytest.mark.parametrize(("level", "is_float"), [(0, True), (1, True), (2, True), (3, True), (4, False)])
def test_of_its_levels_4_alone_rounds(level: int, is_float: bool) -> None:
    """Of MatMulNBits; a session option for what onnxruntime makes of Q/DQ leaves it as it is."""
    model = weight_only_operator(f", accuracy_level={level}")
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "4" if is_float else "0")
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = floats(4, 64)
    expected = x @ np.full((64, 32), (6 - 8) * 0.1, np.float32)
    (found,) = session.run(None, {"x": x})
    assert np.allclose(found, expected, rtol=1e-3) is is_float
