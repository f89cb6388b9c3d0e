import pytest
from onnx import TensorProto, helper

from autoquant.inspection.kernels import Runs, dequantized_constants, runs_as
from autoquant.model.graph import Graph
from tests.inspected import graph_of
from tests.models import floats, model_of
from tests.qdq import Constant, parameters, stored

VALUES = parameters("x", "u8") | stored("w", Constant((3, 3)))


def graph(body: str, given: str = "float[2,3] x", output: str = "float y") -> Graph:
    return graph_of(model_of(f"({given}) => ({output})", body, VALUES | {"f": floats(3, 3)}))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = MatMul(x, f)", Runs.FLOAT),
        ("y = QuantizeLinear(x, x_s, x_z)", Runs.CONVERSION),
        ("y, s, z = DynamicQuantizeLinear(x)", Runs.CONVERSION),
        ("y = com.microsoft.QLinearSigmoid(i, x_s, x_z, x_s, x_z)", Runs.INTEGER),
        ("q = QuantizeLinear(x, x_s, x_z) y = Transpose(q)", Runs.INTEGER),
        ("q = QuantizeLinear(x, x_s, x_z) t = Transpose(q) y = Reshape(t, s)", Runs.INTEGER),
        ("q = QuantizeLinear(x, x_s, x_z) c = Clip(q, , x_z) y = Transpose(c)", Runs.INTEGER),
        ("c = Clip(x) y = Transpose(c)", Runs.FLOAT),
        ("y = Gather(w_q, i)", Runs.INTEGER),
        ("y = Transpose(i)", Runs.FLOAT),
        ("q, s, z = DynamicQuantizeLinear(x) y = MatMulInteger(q, w_q, z, w_z)", Runs.DYNAMIC),
        ("y = com.microsoft.DynamicQuantizeMatMul(x, w_q, w_s, w_z)", Runs.DYNAMIC),
        ("y = com.microsoft.MatMulNBits<K=3, N=3>(x, w_q, w_s)", Runs.WEIGHT_ONLY),
    ],
)
def test_a_kernel_computes_on(body: str, expected: Runs) -> None:
    found = graph(body)
    assert runs_as(found.nodes[-1], found) is expected


def test_a_shape_is_neither_integer_nor_float() -> None:
    found = graph("y = Shape(x)", output="int64[2] y")
    assert runs_as(found.nodes[0], found) is Runs.OTHER


def test_constants_behind_dequantize_linear_are_found_with_their_bytes() -> None:
    found = graph("w_d = DequantizeLinear(w_q, w_s, w_z) y = MatMul(x, w_d)")
    (constant,) = dequantized_constants(found)
    assert (constant.tensor, constant.size_bytes, constant.readers) == ("w_q", 9, ("y",))


@pytest.mark.parametrize(("dtype", "size_bytes"), [("UINT4", 5), ("INT16", 18), ("FLOAT8E4M3FN", 9)])
def test_the_bytes_of_a_constant_are_those_of_its_type(dtype: str, size_bytes: int) -> None:
    model = model_of("(float[2,3] x) => (float[2,3] y)", "d = DequantizeLinear(w, s) y = MatMul(x, d)", {"s": 0.1})
    model.graph.initializer.append(helper.make_tensor("w", getattr(TensorProto, dtype), [3, 3], [1] * 9))
    (constant,) = dequantized_constants(Graph(model))
    assert constant.size_bytes == size_bytes


def test_an_activation_behind_dequantize_linear_is_no_constant() -> None:
    found = graph("q = QuantizeLinear(x, x_s, x_z) y = DequantizeLinear(q, x_s, x_z)")
    assert list(dequantized_constants(found)) == []
