from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.region import NodeName, TensorName
from autoquant.domain.scheme import DType, Operators, Scheme
from autoquant.domain.statistics import CalibrationRange
from autoquant.model.graph import Graph
from autoquant.model.ops import Kind, activations, kind_of
from autoquant.qdq.plan import QuantKey
from autoquant.qdq.planner import Planner
from tests.graphs import OP_TYPES, U8S8_CHANNEL, U8S8_TENSOR, U16S8, case_of, models, run, scheme
from tests.models import Array, floats, model_of

IMAGE = "float[1,4,6,6]"
SQUARE = "float[4,4]"
A, R, T, X, Y = (TensorName(name) for name in "artxy")


def graph_of(signature: str, body: str, constants: dict[str, Array | float] | None = None) -> Graph:
    return Graph(model_of(signature, body, constants))


# Decisions


def test_a_node_without_a_scheme_stays_float() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Sigmoid(x)"))
    plan = Planner(case.graph, OP_TYPES, case.ranges).plan({})
    assert (plan.integer, plan.produced, plan.entries) == (set(), {}, {})


def test_an_operator_without_an_integer_kernel_on_the_target_stays_float() -> None:
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Tanh(x)"))
    plan = Planner(case.graph, OP_TYPES, case.ranges).plan({NodeName("y"): U8S8_TENSOR})
    assert plan.integer == set()
    plan = Planner(case.graph, OP_TYPES | {"Tanh"}, case.ranges).plan({NodeName("y"): U8S8_TENSOR})
    assert plan.integer == {0}


def test_what_reads_or_writes_a_tensor_without_bounds_stays_float() -> None:
    body = "s = MatMul(x, x) m = Add(s, mask) t = Transpose(m) p = Softmax(t) y = MatMul(p, x)"
    case = case_of(model_of(f"({SQUARE} x, {SQUARE} mask) => ({SQUARE} y)", body))
    scheme_of = dict.fromkeys((node.name for node in case.graph.nodes), U8S8_TENSOR)
    names = {"mask", "m", "t"}
    planner = Planner(case.graph, OP_TYPES, case.ranges, unbounded={TensorName(name) for name in names})
    plan = planner.plan(scheme_of)
    assert plan.integer == {0, 4}
    assert names.isdisjoint(plan.produced)
    assert names.isdisjoint(name for name, _ in plan.entries)


def test_the_linear_scheme_quantizes_only_operators_with_weights_and_what_they_absorb() -> None:
    body = "a = Conv(x, w) r = Relu(a) s = Sigmoid(r) y = Conv(s, w)"
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, {"w": floats(4, 4, 1, 1)}))
    plan = case.quantized(scheme("u8:tensor:asym", "s8:channel:sym", Operators.LINEAR)).plan
    assert plan.integer == {0, 3}
    assert plan.absorbed == {1: 0}
    assert set(plan.produced) == {"r", "y"}
    assert set(plan.entries) == {("x", DType.U8), ("s", DType.U8)}


@pytest.mark.parametrize(
    "body",
    [
        "a = Conv(x, w) r = Relu(a) y = Add(a, r)",
        "a = Conv(x, w) m = MaxPool<kernel_shape=[1,1]>(a) r = Relu(m) y = LeakyRelu(r)",
        "r = Relu(x) y = LeakyRelu(r)",
        "a = Tanh(x) r = Relu(a) y = LeakyRelu(r)",
    ],
    ids=["another reader", "behind an operator that moves values", "graph input", "behind floats"],
)
def test_a_relu_stays_where_its_producer_cannot_absorb_it(body: str) -> None:
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, {"w": floats(4, 4, 1, 1)}))
    plan = case.quantized(U8S8_TENSOR).plan
    assert plan.absorbed == {}
    assert R not in plan.produced


def test_a_relu_of_another_type_than_its_producer_stays() -> None:
    body = "a = Conv(x, w) r = Relu(a) y = LeakyRelu(r)"
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, {"w": floats(4, 4, 1, 1)}))
    assert case.quantized(U8S8_TENSOR, {"r": U16S8}).plan.absorbed == {}


def test_a_relu_whose_input_is_a_graph_output_stays() -> None:
    body = "a = Conv(x, w) y = Relu(a)"
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} a, {IMAGE} y)", body, {"w": floats(4, 4, 1, 1)}))
    assert case.quantized(U8S8_TENSOR).plan.absorbed == {}


def test_what_only_a_kept_relu_reads_has_the_range_of_the_relu() -> None:
    """As onnxruntime's quantizer does it: values that the Relu drops need no integers."""
    body = "a = Conv(x, w) r = Relu(a) y = LeakyRelu(r)"
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, {"w": floats(4, 4, 1, 1)}))
    symmetric = scheme("s8:tensor:sym", "s8:tensor:sym")
    plan = case.quantized(symmetric).plan
    assert plan.produced[A] == plan.entries[R, DType.S8] == QuantKey(R, symmetric.activation, symmetric.ranges)


def test_a_power_of_two_makes_relu_redundant_but_no_clip_at_six() -> None:
    body = "a = Sigmoid(x) r = Relu(a) c = Add(x, r) y = Clip(c, zero, six)"
    model = model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"zero": 0.0, "six": 6.0})
    case = case_of(model, {"x": np.full((4, 4), 9, np.float32)})
    powers = case.quantized(scheme("u8:tensor:asym:pow2", "s8:tensor:sym:pow2")).plan
    assert powers.absorbed == {1: 0}
    assert case.quantized(U8S8_TENSOR).plan.absorbed == {1: 0, 3: 2}


def test_two_clips_in_a_row_are_both_absorbed_by_one_producer() -> None:
    body = "a = Conv(x, w) r = Relu(a) c = Clip(r, low, high) y = LeakyRelu(c)"
    constants: dict[str, Array | float] = {"w": floats(4, 4, 1, 1), "low": 0.0, "high": 1.0}
    case = case_of(model_of(f"({IMAGE} x) => ({IMAGE} y)", body, constants))
    plan = case.quantized(U8S8_TENSOR).plan
    assert plan.absorbed == {1: 0, 2: 0}
    assert set(plan.produced) == {"c", "y"}


@pytest.mark.parametrize("activation", ["u8:tensor:asym", "s8:tensor:asym"])
def test_a_softmax_covers_zero_to_one(activation: str) -> None:
    """The kernel multiplies by floor(1 / scale)."""
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", "y = Softmax(x)"), {"x": 30 * np.eye(4, dtype=np.float32)})
    ours = case.quantized(scheme(activation, "s8:tensor:sym"))
    params = ours.builder.planner.params(ours.plan.produced[TensorName("y")])
    assert params.zero_point == params.dtype.lowest
    np.testing.assert_allclose(params.scale, 1 / 255, rtol=2e-7)
    np.testing.assert_allclose(run(ours.model, case.feed)[0], np.eye(4), atol=2e-7)


CANCELLING = {"x": np.indices((1, 4, 6, 6)).sum(axis=0).astype(np.float32) % 2 * 2 - 1}
"""An image of which the mean is 0."""


@pytest.mark.parametrize("activation", ["u8:tensor:asym", "s8:tensor:asym", "s8:tensor:sym", "u8:tensor:asym:pow2"])
@pytest.mark.parametrize("pool", [True, False], ids=["integers", "float"])
@pytest.mark.parametrize("behind", ["Transpose(p)", "Flatten(p)", "Relu(p)"])
def test_a_mean_that_is_tiny_beside_its_image_takes_no_finer_steps_than_its_kernel_knows(
    behind: str, pool: bool, activation: str
) -> None:
    """onnxruntime runs it on integers between DQ and Q whatever is asked."""
    body = f"s = LeakyRelu<alpha=1.0>(x) e = Add(s, tiny) p = GlobalAveragePool(e) b = {behind} y = LeakyRelu(b)"
    dims = "1,4" if "Flatten" in behind else "1,4,1,1"
    case = case_of(model_of(f"({IMAGE} x) => (float[{dims}] y)", body, {"tiny": 1e-6}), CANCELLING)
    taken = scheme(activation, "s8:tensor:sym")
    ours = case.quantized(taken, {} if pool else {"p": None})
    np.testing.assert_allclose(run(ours.model, case.feed)[0], 0, atol=1 / 36)


@pytest.mark.parametrize(("dims", "least"), [("H,W", 2 / 128), ("H,6", 2 / (128 * 6))])
def test_the_range_of_a_mean_over_a_size_that_is_not_known_is_wide_enough_for_a_pixel(dims: str, least: float) -> None:
    graph = graph_of(f"(float[1,4,{dims}] x) => (float[1,4,1,1] y)", "y = GlobalAveragePool(x)")
    seen = {"x": CalibrationRange(-1, 1), "y": CalibrationRange(0, 1e-6)}
    planner = Planner(graph, OP_TYPES, lambda tensor, *_: seen[tensor])
    found = planner.range_of(QuantKey(Y, U8S8_TENSOR.activation, U8S8_TENSOR.ranges))
    assert found.low == 0
    assert found.high == pytest.approx(least)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_a_mean_that_is_tiny_runs_in_images_of_any_size(size: int) -> None:
    body = "s = LeakyRelu<alpha=1.0>(x) e = Add(s, tiny) p = GlobalAveragePool(e) y = LeakyRelu(p)"
    image = np.tile(np.array([[1, -1], [-1, 1]], np.float32), (1, 4, 20, 20))
    case = case_of(model_of("(float[1,4,H,W] x) => (float[1,4,1,1] y)", body, {"tiny": 1e-6}), {"x": image})
    ours = case.quantized(U8S8_TENSOR)
    found = run(ours.model, {"x": image[:, :, :size, :size]})[0]
    assert found.shape == (1, 4, 1, 1)
    assert np.abs(found).max() <= 1 / 32  # what larger images had was observed


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-0.1, 0.2, (-0.1, 0.2)), (0.3, 0.4, (0.3, 0.4)), (-1e-6, 1e-6, (-1e-6, 1 / 288 - 1e-6)), (0, 0, (0, 1 / 288))],
)
def test_the_range_of_a_mean_is_wide_enough_for_a_sixteenth_of_what_an_integer_more_adds(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    graph = graph_of(f"({IMAGE} x) => (float[1,4,1,1] y)", "y = GlobalAveragePool(x)")
    seen = {"x": CalibrationRange(-1, 1), "y": CalibrationRange(low, high)}
    planner = Planner(graph, OP_TYPES, lambda tensor, *_: seen[tensor])
    found = planner.range_of(QuantKey(Y, U8S8_TENSOR.activation, U8S8_TENSOR.ranges))
    np.testing.assert_allclose((found.low, found.high), expected, rtol=1e-6)


def test_operators_that_move_values_share_the_range_of_what_they_move() -> None:
    body = "a = Sigmoid(x) t = Transpose(a) p = Flatten(t) y = LeakyRelu(p)"
    plan = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body)).quantized(U8S8_TENSOR).plan
    assert {plan.produced[TensorName(name)].root for name in "atp"} == {"a"}


def test_an_operator_that_moves_floats_stays_float() -> None:
    body = "a = Tanh(x) t = Transpose(a) y = Sigmoid(t)"
    plan = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body)).quantized(U8S8_TENSOR).plan
    assert plan.integer == {2}
    assert set(plan.entries) == {(T, DType.U8)}


def test_an_operator_that_moves_integers_of_another_type_stays_float() -> None:
    body = "a = Sigmoid(x) t = Transpose(a) y = Sigmoid(t)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body))
    plan = case.quantized(U8S8_TENSOR, {"t": U16S8}).plan
    assert plan.integer == {0, 2}
    assert plan.entries[T, DType.U8].root == T


def test_floats_behind_a_gemm_reach_it_through_operators_that_move_values() -> None:
    body = "g = Gemm(x, w) t = Transpose(g) y = Sigmoid(t) z = Tanh(t)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body, {"w": floats(4, 4)}))
    plan = case.quantized(U8S8_TENSOR).plan
    assert plan.integer == {0, 2}
    assert set(plan.produced) == {"y"}
    assert set(plan.entries) == {(X, DType.U8), (T, DType.U8)}


@pytest.mark.parametrize(("taken", "written"), [(U8S8_TENSOR, set()), (U16S8, {"m"})], ids=["8 bits", "16 bits"])
def test_a_product_of_16_bits_is_quantized_before_a_constant_is_added(taken: Scheme, written: set[str]) -> None:
    body = "m = MatMul(x, x) y = Add(m, b)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y)", body, {"b": floats(4)}))
    assert set(case.quantized(taken, {"y": None}).plan.produced) == written


def test_a_tensor_is_converted_for_readers_of_another_type_only() -> None:
    body = "a = Sigmoid(x) y = Sigmoid(a) z = Sigmoid(a)"
    case = case_of(model_of(f"({SQUARE} x) => ({SQUARE} y, {SQUARE} z)", body))
    plan = case.quantized(U8S8_TENSOR, {"z": U16S8}).plan
    _, y, z = case.graph.nodes
    own, converted = plan.key_for(y, A), plan.key_for(z, A)
    assert own is plan.produced[A]
    assert converted == QuantKey(A, U16S8.activation, U16S8.ranges)


@given(models(), st.randoms(use_true_random=False))
def test_every_integer_node_reads_each_activation_in_the_type_of_its_scheme(
    model: onnx.ModelProto, random: Random
) -> None:
    case = case_of(model)
    taken: list[Scheme | None] = [U8S8_CHANNEL, U16S8, None]
    mix = {node.name: random.choice(taken) for node in case.graph.nodes}
    plan = case.quantized(None, mix).plan
    assert not plan.integer & set(plan.absorbed)
    for index in plan.integer:
        node, expected = case.graph.nodes[index], plan.schemes[index].activation.dtype
        for name in activations(node, case.graph):
            key = plan.key_for(node, name) if not case.graph.is_constant(name) else None
            assert key is None or key.format.dtype is expected
            assert key is not None or case.graph.is_constant(name)
    assert all(kind_of(case.graph.nodes[index]) is Kind.CLIPPING for index in plan.absorbed)
