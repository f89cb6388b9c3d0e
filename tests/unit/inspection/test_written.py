import numpy as np
import pytest

from autoquant.inspection.written import (
    Written,
    input_quantizations,
    output_quantizations,
    quantization_of,
    weight_shape,
    written_as,
)
from autoquant.model.graph import Graph, Node
from tests.inspected import graph_of
from tests.models import floats, model_of
from tests.qdq import Constant, Wrapped, pair, parameters, stored

WEIGHT = {"w": Constant((4, 4, 3, 3), axis=0)}


def node_in(graph: Graph, name: str = "t") -> Node:
    return next(node for node in graph.nodes if node.name == name)


@pytest.mark.parametrize(
    ("wrapped", "expected"),
    [
        (Wrapped("Conv(x, w)", constants=WEIGHT), Written.QUANTIZED),
        (Wrapped("Conv(x, w)", plain={"w": floats(4, 4, 3, 3)}), Written.FLOAT),
        (Wrapped("Sigmoid(x)"), Written.QUANTIZED),
        (Wrapped("Conv(x, w)", constants=WEIGHT, behind="Relu(@)"), Written.QUANTIZED),
        (Wrapped("Gather(c, i)", {}, {"c": Constant((9, 4))}, {"i": np.array([1])}, moves=True), Written.QUANTIZED),
    ],
)
def test_a_node_is_written_as_its_surroundings_say(wrapped: Wrapped, expected: Written) -> None:
    graph = graph_of(wrapped.model)
    assert written_as(node_in(graph), graph) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Exp(x)", Written.FLOAT),
        ("w_d = DequantizeLinear(w_q, w_s, w_z) y = MatMul(x, w_d)", Written.WEIGHT_ONLY),
        ("q, s, z = DynamicQuantizeLinear(x) y = MatMulInteger(q, w_q, z, w_z)", Written.DYNAMIC),
        (
            "i, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(i, s, z)"
            " w_d = DequantizeLinear(w_q, w_s, w_z) y = MatMul(d, w_d)",
            Written.DYNAMIC,
        ),
        ("i, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(i, s, z) y = MatMul(d, d)", Written.DYNAMIC),
        ("i, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(i, s, z) y = MatMul(d, x)", Written.FLOAT),
        ("i, s, z = DynamicQuantizeLinear(x) d = DequantizeLinear(i, s, z) y = Sigmoid(d)", Written.FLOAT),
        ("y = MatMulInteger(q, w_q)", Written.OPERATOR),
        ("y = com.microsoft.MatMulNBits<K=3, N=3>(x, w_q, w_s)", Written.WEIGHT_ONLY),
    ],
)
def test_operators_of_other_formats_are_known(body: str, expected: Written) -> None:
    graph = graph_of(model_of("(float[3,3] x, uint8[3,3] q) => (float y)", body, stored("w", Constant((3, 3)))))
    assert written_as(node_in(graph, "y"), graph) is expected


def test_the_numbers_around_a_node_are_read() -> None:
    graph = graph_of(Wrapped("Conv(x, w)", constants=WEIGHT, scale=0.25, zero_point=7).model)
    inputs = input_quantizations(node_in(graph), graph)
    assert {i: (q.dtype, q.is_constant, q.is_per_channel, q.axis) for i, q in inputs.items()} == {
        0: ("uint8", False, False, 1),
        1: ("int8", True, True, 0),
    }
    (output,) = output_quantizations(node_in(graph), graph)
    np.testing.assert_array_equal([output.scale, output.zero_point], [0.25, 7])
    assert not output.is_equal(inputs[0])
    assert output.is_equal(output)
    assert weight_shape(node_in(graph), graph) == (4, 4, 3, 3)


def test_a_zero_point_that_is_left_out_is_zero() -> None:
    graph = graph_of(model_of("(float[3] x) => (uint8[3] y)", "y = QuantizeLinear(x, s)", {"s": 0.5}))
    found = quantization_of(graph.nodes[0], graph)
    assert found.dtype == "uint8"
    np.testing.assert_array_equal(found.zero_point, 0)


def test_a_scale_that_is_computed_is_not_known() -> None:
    graph = graph_of(model_of("(float[3] x, float s) => (uint8[3] y)", "y = QuantizeLinear(x, s)"))
    found = quantization_of(graph.nodes[0], graph)
    assert found.scale is None
    assert not found.is_equal(found)
    assert not found.is_per_channel


IN_BODIES = """c = Cast<to=9>(x) y = If(c) <
    then_branch = first () => (float[4] e) { e = Exp(t_d) }, else_branch = second () => (float[4] i) { i = Identity(t) }
>"""
ENDS = {name: pair(name, f"{name}_d") for name in "xt"}
VALUES = {k: v for name in "xt" for k, v in parameters(name, "u8").items()}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{ENDS['x']} t = Sigmoid(x_d) {ENDS['t']} y = Exp(t_d)", Written.QUANTIZED),
        (f"{ENDS['x']} t = Sigmoid(x_d) y = Exp(t)", Written.FLOAT),
        (f"{ENDS['x']} t = Sigmoid(x_d) {ENDS['t']} y = Mul(t, t_d)", Written.PARTLY),
        (f"{ENDS['x']} t = Sigmoid(x_d) {ENDS['t']} {IN_BODIES}", Written.PARTLY),
        (f"{ENDS['x']} z = Exp(x) t = Add(x_d, z) {ENDS['t']} y = Exp(t_d)", Written.PARTLY),
        (f"{ENDS['x']} z = Exp(x) t = Add(x_d, z) y = Exp(t)", Written.FLOAT),
        (f"{ENDS['x']} z = Exp(x) t = Add(x_d, z) {ENDS['t']} y = Mul(t, t_d)", Written.FLOAT),
        (f"t = Sigmoid(x) {ENDS['t']} y = Exp(t_d)", Written.FLOAT),
        (f"{ENDS['x']} u = Transpose(x_d) s = Sigmoid(u) t = Transpose(s) {ENDS['t']} y = Exp(t_d)", Written.QUANTIZED),
        (f"{ENDS['x']} s = Sigmoid(x_d) r = Relu(s) t = Transpose(r) {ENDS['t']} y = Exp(t_d)", Written.QUANTIZED),
        (f"{ENDS['x']} s = Sigmoid(x_d) t = Transpose(s) {ENDS['t']} y = Mul(s, t_d)", Written.FLOAT),
    ],
)
def test_a_node_without_a_weight_is_quantized_where_all_its_sides_are(body: str, expected: Written) -> None:
    graph = graph_of(model_of("(float[4] x) => (float[4] y)", body, VALUES))
    assert written_as(node_in(graph, "s" if "s = " in body else "t"), graph) is expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{ENDS['x']} t = Transpose(x_d) {ENDS['t']} y = Exp(t_d)", Written.QUANTIZED),
        (f"{ENDS['x']} u = Transpose(x_d) t = Transpose(u) {ENDS['t']} y = Exp(t_d)", Written.FLOAT),
        (f"{ENDS['x']} t = Transpose(x_d) u = Transpose(t) y = Exp(u)", Written.FLOAT),
    ],
)
def test_of_several_that_move_values_in_a_row_none_is_quantized(body: str, expected: Written) -> None:
    graph = graph_of(model_of("(float[4] x) => (float[4] y)", body, VALUES))
    assert written_as(node_in(graph), graph) is expected


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("w_t = Transpose(w_d)", Written.QUANTIZED),
        ("w_t = Reshape(w_d, shape)", Written.QUANTIZED),
        ("w_t = Transpose(w_f)", Written.FLOAT),
    ],
)
def test_a_weight_that_is_moved_behind_its_dequantizer_is_a_quantized_one(weight: str, expected: Written) -> None:
    values = VALUES | stored("w", Constant((4, 4))) | {"w_f": floats(4, 4), "shape": np.array([4, 4])}
    body = f"{ENDS['x']} w_d = DequantizeLinear(w_q, w_s, w_z) {weight} t = MatMul(x_d, w_t) {ENDS['t']} y = Exp(t_d)"
    graph = graph_of(model_of("(float[4,4] x) => (float[4,4] y)", body, values))
    assert written_as(node_in(graph), graph) is expected
    assert written_as(node_in(graph, "w_t"), graph) is Written.FLOAT


@pytest.mark.parametrize("activation", ["u = Transpose(x_d)", "u = Reshape(x_d, shape)", "u = Identity(x_d)"])
@pytest.mark.parametrize("op_type", ["MatMul", "Gemm"])
def test_a_product_of_two_quantized_activations_is_quantized_without_a_quantized_output(
    op_type: str, activation: str
) -> None:
    body = f"{ENDS['x']} {activation} t = {op_type}(x_d, u) y = Exp(t)"
    graph = graph_of(model_of("(float[4,4] x) => (float[4,4] y)", body, VALUES | {"shape": np.array([4, 4])}))
    assert written_as(node_in(graph), graph) is Written.QUANTIZED


def test_channels_are_where_a_transpose_puts_them() -> None:
    body = """w_d = DequantizeLinear<axis=-3>(w_q, w_s, w_z) w_t = Transpose<perm=[1,2,0]>(w_d) t = MatMul(x, w_t)
              y = Exp(t)"""
    values = stored("w", Constant((2, 3, 4), axis=0))
    graph = graph_of(model_of("(float[3,5,4] x) => (float[3,5,2] y)", body, values))
    assert weight_shape(node_in(graph), graph) == (3, 4, 2)
    assert input_quantizations(node_in(graph), graph)[1].axis == 2
