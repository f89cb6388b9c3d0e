"""Files are inspected as if the processor's kernels saturated, whatever it does."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.inspection.inspection import Remark
from tests.inspected import FLOAT_PRODUCTS, inspected_as_on
from tests.models import Array, model_of

CONSTANTS: Mapping[str, Array | float] = {"s": 0.1, "z": np.array(0, np.uint8), "wz": np.array(0, np.int8)}
BODIES = {
    "QLinearMatMul": ("(uint8[2,8] x) => (uint8[2,40] y)", "y = QLinearMatMul(x, s, z, w, s, wz, s, z)"),
    "MatMulInteger": ("(uint8[2,8] x) => (int32[2,40] y)", "y = MatMulInteger(x, w)"),
    **FLOAT_PRODUCTS,
    "QLinearConv": ("(uint8[1,8,2,2] x) => (uint8[1,40,2,2] y)", "y = QLinearConv(x, s, z, w, s, wz, s, z)"),
    "QDQ": (
        "(float[2,8] x) => (float[2,40] y)",
        """x_q = QuantizeLinear(x, s, z) x_d = DequantizeLinear(x_q, s, z) w_d = DequantizeLinear(w, s, wz)
           y = MatMul(x_d, w_d) y_q = QuantizeLinear(y, s, z) end = DequantizeLinear(y_q, s, z)""",
    ),
}


def weight(first: int, second: int, kind: str = "") -> np.ndarray:
    """Eight inputs that pairs of numbers are multiplied with, and 40 outputs, so that it is no small constant."""
    matrix = np.tile(np.array([first, second], np.int8), (40, 4))
    return matrix[..., None, None] if kind == "QLinearConv" else np.ascontiguousarray(matrix.T)


def remarks_of(model: onnx.ModelProto, folder: Path, *, is_saturating: bool = True) -> tuple[Remark, ...]:
    return inspected_as_on("x86_64", model, folder, is_saturating=is_saturating).remarks


def model_with(kind: str, w: np.ndarray) -> onnx.ModelProto:
    signature, body = BODIES[kind]
    if kind == "QDQ":
        signature = signature.replace(" y)", " end)")
    return model_of(signature, body, {**CONSTANTS, "w": w})


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(("first", "second"), [(67, 66), (-67, -66), (127, 127)])
def test_pairs_that_leave_16_bits_are_remarked_upon(kind: str, first: int, second: int, tmp_path: Path) -> None:
    (remark,) = remarks_of(model_with(kind, weight(first, second, kind)), tmp_path)
    assert remark.name == "y"
    assert f"two neighbours sum up to {abs(first + second)}, 128 fits" in remark.text


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize(("first", "second"), [(64, 64), (127, -127), (-64, -64), (66, 66)])
def test_pairs_that_fit_or_nearly_do_are_not(kind: str, first: int, second: int, tmp_path: Path) -> None:
    assert remarks_of(model_with(kind, weight(first, second, kind)), tmp_path) == ()


def test_nothing_is_said_where_kernels_are_exact(tmp_path: Path) -> None:
    model = model_with("QLinearMatMul", weight(127, 127))
    assert remarks_of(model, tmp_path, is_saturating=False) == ()


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMulInteger(x, w)",
        "y = MatMulInteger(x, w, wz)",
    ],
)
def test_signed_activations_cannot_saturate(body: str, tmp_path: Path) -> None:
    constants = {**CONSTANTS, "w": weight(127, 127)}
    (remark,) = remarks_of(model_of("(int8[2,8] x) => (int32[2,40] y)", body, constants), tmp_path)
    assert remark.text.startswith("reads s8 activations")


def test_unsigned_weights_cannot_saturate(tmp_path: Path) -> None:
    constants = {**CONSTANTS, "w": weight(127, 127).astype(np.uint8)}
    assert remarks_of(model_of(*BODIES["MatMulInteger"], constants), tmp_path) == ()


def test_an_integer_convolution_of_the_file_is_exact(tmp_path: Path) -> None:
    constants = {**CONSTANTS, "w": weight(127, 127, "QLinearConv")}
    model = model_of("(uint8[1,8,2,2] x) => (int32[1,40,2,2] y)", "y = ConvInteger(x, w)", constants)
    assert all(remark.text.startswith("ConvInteger") for remark in remarks_of(model, tmp_path))


def test_weights_that_onnxruntime_quantizes_when_it_opens_the_file_count(tmp_path: Path) -> None:
    signature, body = BODIES["QDQ"]
    body = f"w = QuantizeLinear(w_float, s, wz) {body}"
    constants = {**CONSTANTS, "w_float": weight(127, 127).astype(np.float32) / np.float32(10)}
    (remark,) = remarks_of(model_of(signature.replace(" y)", " end)"), body, constants), tmp_path)
    assert "sum up to 254" in remark.text


def test_all_nodes_are_one_row_with_the_largest_sum(tmp_path: Path) -> None:
    """The second one is inside a body, and reads a weight from outside."""
    body = """a = MatMulInteger(x, w) b = If(c) <then_branch = t () => (int32[2,40] u) { u = MatMulInteger(x, v) },
              else_branch = e () => (int32[2,40] o) { o = Identity(a) }> y = Identity(b)"""
    constants = {**CONSTANTS, "w": weight(70, 70), "v": weight(100, 100)}
    model = model_of("(uint8[2,8] x, bool c) => (int32[2,40] y)", body, constants)
    for node in model.graph.node[1].attribute[0].g.node:
        node.name = "inner"
    found = remarks_of(model, tmp_path)
    assert [remark.name for remark in found] == ["a", "b/then_branch/inner"]
    assert all("sum up to 200" in remark.text for remark in found)
