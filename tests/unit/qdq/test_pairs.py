import numpy as np
import onnx
import pytest

from autoquant.domain.region import NodeName, TensorName
from autoquant.qdq.pairs import Pairs
from autoquant.qdq.parts import Parts, Pieces
from autoquant.qdq.planner import Planner
from tests.graphs import OP_TYPES, U8S8_TENSOR, case_of
from tests.models import model_of

C, R, X, Y = (TensorName(name) for name in "crxy")


def pairs_of(body: str, *quantized: str) -> Pairs:
    """Of a model whose input ``x`` and output ``y`` are 4 floats, with some of its nodes on integers."""
    case = case_of(model_of("(float[1,4] x) => (float[1,4] y)", body))
    planner = Planner(case.graph, OP_TYPES, case.ranges)
    plan = planner.plan({NodeName(name): U8S8_TENSOR for name in quantized})
    return Pairs(case.graph, planner, plan, Parts(Pieces(case.graph)))


def nodes_in(pairs: Pairs) -> list[onnx.NodeProto]:
    return list(onnx.load_from_string(pairs.parts.skeleton).graph.node)


def test_a_pair_is_written_once_however_many_read_it() -> None:
    pairs = pairs_of("r = Sigmoid(x) c = Sigmoid(x) y = Add(r, c)", "r", "c")
    first, second, _ = pairs.graph.nodes
    assert pairs.read(X, first) == pairs.read(X, second) == nodes_in(pairs)[1].output[0]
    assert [node.op_type for node in nodes_in(pairs)] == ["QuantizeLinear", "DequantizeLinear"]
    assert pairs.read_integers(X, second) == nodes_in(pairs)[0].output[0]


def test_who_runs_on_floats_reads_a_tensor_as_it_is() -> None:
    pairs = pairs_of("r = Sigmoid(x) c = Tanh(x) y = Add(r, c)", "r")
    assert pairs.read(X, pairs.graph.nodes[1]) == X
    assert pairs.read(TensorName(""), pairs.graph.nodes[1]) == ""
    assert nodes_in(pairs) == []


def test_an_output_of_the_model_keeps_its_name_behind_its_pair() -> None:
    pairs = pairs_of("y = Sigmoid(x)", "y")
    before = pairs.written(Y)
    assert before != Y
    pairs.quantize_written(Y)
    quantize, dequantize = nodes_in(pairs)
    assert (quantize.input[0], dequantize.output[0]) == (before, Y)


def test_what_absorbs_a_relu_writes_what_that_wrote() -> None:
    pairs = pairs_of("c = Add(x, x) r = Relu(c) y = Sigmoid(r)", "c", "r", "y")
    assert (pairs.written(C), pairs.written(R)) == (R, R)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize(("shape", "axis"), [((), []), ((3,), [0])])
def test_a_new_constant_has_zero_points_of_its_type(
    dtype: type[np.int32 | np.uint8], shape: tuple[int, ...], axis: list[int]
) -> None:
    pairs = pairs_of("y = Sigmoid(x)")
    values, scale = np.full(shape, 7, dtype), np.full(shape, 0.5, np.float32)
    target = pairs.new_constant("b", values, scale)
    (node,) = nodes_in(pairs)
    assert (list(node.output), [attribute.i for attribute in node.attribute]) == ([target], axis)
    found = [onnx.numpy_helper.to_array(each) for each in onnx.load_from_string(pairs.parts.skeleton).graph.initializer]
    for array, expected in zip(found, (values, scale, np.zeros(shape, dtype)), strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
