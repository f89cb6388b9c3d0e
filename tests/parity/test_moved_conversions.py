"""Past which operators onnxruntime moves QuantizeLinear and DequantizeLinear."""

from pathlib import Path

import onnx
import pytest

from autoquant.inspection.kernels import Runs
from tests.inspected import inspected, node_of
from tests.models import model_of
from tests.qdq import Constant, ints, pair, parameters, stored

MOVES = {
    "Transpose": ("Transpose(@)", (4, 8)),
    "Reshape": ("Reshape(@, shape)", (4, 8)),
    "Slice": ("Slice(@, first, eight)", (9, 4)),
    "Squeeze": ("Squeeze(@, first)", (1, 8, 4)),
    "Unsqueeze": ("Unsqueeze(@, first)", (8, 4)),
    "MaxPool": ("MaxPool<kernel_shape=[1,1]>(@)", (1, 1, 8, 4)),
    "Gather": ("Gather(@, rows)", (9, 4)),
    "Flatten": ("Flatten(@)", (8, 2, 2)),
}


def moved(middle: str, end: str, opset: int) -> onnx.ModelProto:
    """A product with what is moved behind its DequantizeLinear; ``@`` is that."""
    values = {k: v for name in "xzt" for k, v in parameters(name, "u8").items()}
    values |= {"shape": ints(8, 4), "first": ints(0), "eight": ints(8), "rows": ints(*range(8))}
    call, shape = MOVES[middle]
    body = f"{pair('x', 'x_d')} {pair('z', 'z_d')} m = {call.replace('@', 'z_d')} t = MatMul(x_d, m) {end}"
    return model_of(f"(float[4,8] x, float[{','.join(map(str, shape))}] z) => (float y)", body, values, opset=opset)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize(("end", "kernel"), [("y = Exp(t)", "MatMulIntegerToFloat"), (pair("t", "y"), "QLinearMatMul")])
@pytest.mark.parametrize("middle", MOVES)
def test_the_dequantizer_of_an_activation_is_moved_past_some_operators(
    middle: str, end: str, kernel: str, opset: int, tmp_path: Path
) -> None:
    found = node_of(inspected(moved(middle, end, opset), tmp_path))
    is_moved = middle not in ("Gather", "Flatten")
    assert found.runs is (Runs.INTEGER if is_moved else Runs.FLOAT)
    assert not is_moved or (str(found.kernel).endswith(kernel) and found.causes == ())


BACK = {
    "Transpose": "t = Transpose(m)",
    "Reshape": "t = Reshape(m, flat)",
    "Slice": "t = Slice(m, first, one)",
    "Squeeze": "u = Unsqueeze(m, first) t = Squeeze(u, first)",
    "Unsqueeze": "t = Unsqueeze(m, first)",
    "MaxPool": "t = MaxPool<kernel_shape=[1,1]>(m)",
    "Gather": "t = Gather(m, first)",
    "Flatten": "t = Flatten(m)",
}


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("call", ["Sigmoid(x_d)", "Conv(x_d, w_d)"])
@pytest.mark.parametrize("behind", BACK)
def test_the_quantizer_of_an_activation_is_moved_before_some_operators(
    behind: str, call: str, opset: int, tmp_path: Path
) -> None:
    values = {k: v for name in "xt" for k, v in parameters(name, "u8").items()} | stored("w", Constant((4, 4, 1, 1)))
    values |= {"flat": ints(-1), "first": ints(0), "one": ints(1)}
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear(w_q, w_s, w_z) m = {call} {BACK[behind]} {pair("t", "y")}"""
    found = node_of(inspected(model_of("(float[1,4,6,6] x) => (float y)", body, values, opset=opset), tmp_path), "m")
    is_moved = behind not in ("Gather", "Flatten")
    assert found.runs is (Runs.INTEGER if is_moved else Runs.FLOAT)
    assert not is_moved or found.causes == ()


@pytest.mark.parametrize(
    ("call", "weight", "constant", "kernel"),
    [
        ("MatMul(x_d, w_t)", "Transpose(@)", Constant((8, 8)), "QLinearMatMul"),
        ("Gemm(x_d, w_t)", "Transpose(@)", Constant((8, 8)), "QGemm"),
        ("Gemm(x_d, w_t)", "Transpose(@)", Constant((8, 8), axis=0), "QGemm"),
        ("MatMul(x_d, w_t)", "Reshape(@, square)", Constant((4, 16)), None),
        ("Gemm(x_d, w_t)", "Reshape(@, square)", Constant((4, 16)), None),
        ("Add(x_d, w_t)", "Transpose(@)", Constant((8, 8), "u8"), "QLinearAdd"),
        ("Add(x_d, w_t)", "Reshape(@, square)", Constant((4, 16), "u8"), None),
    ],
)
def test_the_dequantizer_of_a_constant_is_moved_past_a_transpose_alone(
    call: str, weight: str, constant: Constant, kernel: str | None, tmp_path: Path
) -> None:
    axis = "" if constant.axis is None else f"<axis={constant.axis}>"
    values = {k: v for name in "xt" for k, v in parameters(name, "u8").items()} | stored("w", constant)
    body = f"""{pair("x", "x_d")} w_d = DequantizeLinear{axis}(w_q, w_s, w_z) w_t = {weight.replace("@", "w_d")}
               t = {call} {pair("t", "y")}"""
    model = model_of("(float[8,8] x) => (float y)", body, values | {"square": ints(8, 8)})
    found = inspected(model, tmp_path)
    assert node_of(found).runs is (Runs.INTEGER if kernel else Runs.FLOAT)
    assert node_of(found).is_as_written is bool(kernel)
    assert not kernel or str(node_of(found).kernel).endswith(kernel)
    assert node_of(found, "w_t").is_as_written
