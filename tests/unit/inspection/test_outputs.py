import numpy as np
import pytest
from onnx import TensorProto, helper

from autoquant.inspection.outputs import output_causes
from autoquant.model.graph import Graph
from tests.inspected import graph_of
from tests.models import Array, model_of
from tests.qdq import Wrapped


def causes(wrapped: Wrapped) -> list[str]:
    graph = graph_of(wrapped.model)
    return list(output_causes(next(node for node in graph.nodes if node.name in ("t", "y")), graph))


def test_an_output_that_is_quantized_is_no_cause() -> None:
    assert causes(Wrapped("Sigmoid(x)")) == []


@pytest.mark.parametrize(("call", "expected"), [("Sigmoid(x)", ["no output QuantizeLinear"]), ("MatMul(x, x)", [])])
def test_products_may_write_floats(call: str, expected: list[str]) -> None:
    assert causes(Wrapped(call, {"x": (4, 4)}, output="")) == expected


@pytest.mark.parametrize(("activation", "lowest"), [("u8", 0), ("s8", -128), ("u16", 0), ("s16", -32768)])
def test_a_relu_is_redundant_at_the_minimum_of_its_type(activation: str, lowest: int) -> None:
    wrapped = {"behind": "Relu(@)", "activation": activation}
    assert causes(Wrapped("Sigmoid(x)", zero_point=lowest, **wrapped)) == []  # type: ignore[arg-type]
    (cause,) = causes(Wrapped("Sigmoid(x)", zero_point=lowest + 1, **wrapped))  # type: ignore[arg-type]
    assert cause.endswith(f"zero point {lowest + 1} is not the type's minimum {lowest}")


@pytest.mark.parametrize("dtype", [TensorProto.UINT4, TensorProto.INT4, TensorProto.FLOAT8E4M3FN])
def test_nothing_is_said_of_a_relu_before_a_type_that_no_kernel_writes(dtype: int) -> None:
    body = "t = Sigmoid(x) r = Relu(t) q = QuantizeLinear(r, s, z) y = DequantizeLinear(q, s, z)"
    model = model_of("(float[4] x) => (float[4] y)", body, {"s": 0.1})
    model.graph.initializer.append(helper.make_tensor("z", dtype, [], [0]))
    graph = Graph(model)
    assert list(output_causes(graph.nodes[0], graph)) == []


@pytest.mark.parametrize(
    ("clip", "expected"),
    [
        ("Clip(t, low, high)", ""),
        ("Clip(t, low)", ""),
        ("Clip(t)", ""),
        ("Clip(t, low, small)", "its bounds 0 and 3 lie inside the output's range 0 to 6.375"),
        ("Clip(t, low, bound)", "a bound is not constant"),
    ],
)
def test_a_clip_is_redundant_where_its_bounds_are_constant_and_not_inside_the_range(clip: str, expected: str) -> None:
    body = f"t = Sigmoid(x) r = {clip} q = QuantizeLinear(r, s, z) y = DequantizeLinear(q, s, z)"
    constants: dict[str, Array | float] = {
        "low": 0.0,
        "high": 6.375,
        "small": 3.0,
        "s": 0.025,
        "z": np.array(0, np.uint8),
    }
    graph = graph_of(model_of("(float[4] x, float bound) => (float[4] y)", body, constants))
    found = list(output_causes(graph.nodes[0], graph))
    assert found == ([f"Clip 'r' behind it is not absorbed: {expected}"] if expected else [])


def test_what_a_body_reads_behind_a_relu_is_named() -> None:
    bodies = "then_branch = f () => (float[4] a) { a = Exp(r) }, else_branch = g () => (float[4] b) { b = Sin(d) }"
    body = f"t = Sigmoid(x) r = Relu(t) q = QuantizeLinear(r, s, z) d = DequantizeLinear(q, s, z) y = If(c) <{bodies}>"
    model = model_of("(float[4] x, bool c) => (float[4] y)", body, {"s": 0.1, "z": np.array(0, np.uint8)})
    graph = graph_of(model)
    expected = "the output of Relu 'r' behind it is read inside a body of If, Loop or Scan"
    assert list(output_causes(graph.nodes[0], graph)) == [expected]
