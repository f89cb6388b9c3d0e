from pathlib import Path

import pytest

from autoquant.inspection.inspection import Inspection
from autoquant.inspection.kernels import Runs
from tests.inspected import inspected, node_of
from tests.models import floats, model_of
from tests.qdq import pair, parameters

VALUES = {k: v for name in "xtu" for k, v in parameters(name, "u8").items()} | {"w": floats(8, 8)}
X, T, U = (pair(name, f"{name}_d") for name in "xtu")
ONE, TWO = "(float[4,8] x) => (float y)", "(float[4,8] x) => (float y, float z)"


def named(found: Inspection) -> list[str]:
    phrase = "its weight is not quantized in the file"
    return [str(remark.name) for remark in found.remarks if remark.text.startswith(phrase)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{X} t = MatMul(x_d, w) {T} y = Exp(t_d)", ["t"]),
        (f"{X} t = MatMul(x_d, w) y = Exp(t)", ["t"]),
        (f"{X} t = Gemm(x_d, w) y = Exp(t)", ["t"]),
        (f"{X} m = Transpose(w) t = MatMul(x_d, m) y = Exp(t)", ["t"]),
        (f"{X} u = MatMul(x_d, w) {U} t = MatMul(u_d, w) {T} y = Exp(t_d)", ["u", "t"]),
    ],
)
def test_a_product_of_which_the_weight_was_folded_is_named(body: str, expected: list[str], tmp_path: Path) -> None:
    found = inspected(model_of(ONE, body, VALUES), tmp_path)
    assert named(found) == expected
    assert {node_of(found, name).runs for name in expected} == {Runs.FLOAT}
    assert found.unlike_written == ()


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        (ONE, f"{X} u = Sigmoid(x_d) {U} t = MatMul(u_d, w) {T} y = Exp(t_d)"),
        (TWO, f"{X} t = MatMul(x_d, w) y = Exp(t) u = Sigmoid(x_d) {U} z = Exp(u_d)"),
        ("(float[4,8] x) => (float y, uint8[4,8] x_q)", f"{X} t = MatMul(x_d, w) y = Exp(t)"),
        ("(uint8[4,8] q) => (float y)", "x_d = DequantizeLinear(q, x_s, x_z) t = MatMul(x_d, w) y = Exp(t)"),
        (ONE, "t = MatMul(x, w) y = Exp(t)"),
        (TWO, f"{X} z = Exp(x_d) y = Exp(z)"),
    ],
    ids=[
        "behind integers",
        "integers elsewhere",
        "integers are an output",
        "integers are given",
        "float",
        "no product",
    ],
)
def test_one_that_needs_its_conversion_is_not(signature: str, body: str, tmp_path: Path) -> None:
    assert named(inspected(model_of(signature, body, VALUES), tmp_path)) == []


def test_a_weight_that_onnxruntime_quantizes_itself_is_another_finding(tmp_path: Path) -> None:
    found = inspected(model_of(ONE, f"{X} t = Gemm(x_d, w) {T} y = Exp(t_d)", VALUES), tmp_path)
    assert named(found) == []
    assert [node.name for node in found.unlike_written] == ["t"]
