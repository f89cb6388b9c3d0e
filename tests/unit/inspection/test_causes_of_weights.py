"""Causes that lie in a weight or between it and its DequantizeLinear."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.kernels import Runs
from tests.inspected import FROM_1_32, causes_in, inspected, node_of
from tests.models import model_of
from tests.qdq import MATRIX, SQUARE, Constant, Wrapped, pair, parameters, stored


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
