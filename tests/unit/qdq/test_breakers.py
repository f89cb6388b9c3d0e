from collections.abc import Iterable, Mapping

import pytest

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.qdq.breakers import needs_breaker, would_pool_integers
from autoquant.qdq.plan import Plan, QuantKey
from tests.graphs import U8S8_TENSOR
from tests.models import Array, floats, model_of

IMAGE = "float[1,4,6,6]"
SQUARE = "float[4,4]"
CONSTANTS: Mapping[str, Array | float] = {
    "k": floats(4, 4, 1, 1),
    "c": floats(4, 1, 1),
    "w": floats(4, 4),
    "low": -1.0,
    "high": 1.0,
}


def planned(body: str, *, produced: Iterable[str], integer: Iterable[str], dims: str = IMAGE) -> tuple[Graph, Plan]:
    """Some tensors are quantized and some nodes run on integers."""
    graph = Graph(model_of(f"({dims} x, {dims} o) => ({dims} y)", body, CONSTANTS))
    nodes = {str(node.name): node for node in graph.nodes}
    plan = Plan({}, integer={nodes[name].index for name in integer})
    for name in map(TensorName, produced):
        plan.produced[name] = QuantKey(name, U8S8_TENSOR.activation, U8S8_TENSOR.ranges)
    return graph, plan


def breaks(body: str, *, produced: Iterable[str], integer: Iterable[str], dims: str = IMAGE) -> bool:
    """Whether the node ``n`` needs a breaker."""
    graph, plan = planned(body, produced=produced, integer=integer, dims=dims)
    return needs_breaker(next(node for node in graph.nodes if node.name == "n"), graph, plan)


@pytest.mark.parametrize(
    ("call", "dims"),
    [("Conv(x, k)", IMAGE), ("ConvTranspose(x, k)", IMAGE), ("Gemm(x, w)", SQUARE), ("MatMul(x, w)", SQUARE)],
)
def test_a_linear_operator_between_integers_would_be_quantized(call: str, dims: str) -> None:
    body = f"n = {call} y = Sigmoid(n)"
    assert breaks(body, produced="x", integer="y", dims=dims)
    assert not breaks(body, produced="", integer="y", dims=dims)
    assert not breaks(body, produced="x", integer="", dims=dims)


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("kernel_shape=[2,2]", False),
        ("kernel_shape=[2,2], dilations=[2,2]", True),
        ("kernel_shape=[2,2], strides=[2,2], pads=[1,1,0,0], ceil_mode=1, count_include_pad=1", True),
    ],
)
def test_a_mean_that_the_integer_kernel_does_not_compute_would_be_another_one(
    attributes: str, *, expected: bool
) -> None:
    body = f"n = AveragePool<{attributes}>(x) y = Sigmoid(n)"
    assert breaks(body, produced="x", integer="y") is expected
    assert not breaks(body, produced="x", integer="")
    assert not breaks(body, produced="", integer="y")


@pytest.mark.parametrize("call", ["Sigmoid(x)", "Relu(x)", "Add(x, o)", "GlobalAveragePool(x)"])
def test_other_operators_stay_float_by_themselves(call: str) -> None:
    assert not breaks(f"n = {call} y = LeakyRelu(n)", produced="xo", integer="y")


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("t = MaxPool<kernel_shape=[1,1]>(x)", True),
        ("s = Transpose<perm=[0,1,3,2]>(x) t = MaxPool<kernel_shape=[1,1]>(s)", True),
        ("t = MaxPool<kernel_shape=[1,1]>(o)", False),
        ("t = Relu(x)", False),
        ("t = Identity(x)", False),
    ],
)
def test_integers_come_through_what_only_moves_them(before: str, expected: bool) -> None:
    assert breaks(f"{before} n = Conv(t, k) y = Sigmoid(n)", produced="x", integer="y") is expected


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("t = Relu(n)", True),
        ("t = Clip(n, low, high)", True),
        ("t = MaxPool<kernel_shape=[1,1]>(n)", True),
        ("t = Add(n, c)", True),
        ("t = Mul(c, n)", True),
        ("s = Add(n, c) r = Mul(s, c) t = Relu(r)", True),
        ("t = Add(n, o)", False),
        ("t = Add(n, n)", False),
        ("t = Sub(n, c)", False),
        ("t = Sin(n)", False),
    ],
)
def test_a_quantization_is_met_behind_what_is_folded_or_lets_it_pass(behind: str, expected: bool) -> None:
    assert breaks(f"n = Conv(x, k) {behind} y = Sigmoid(t)", produced="x", integer="y") is expected


def test_the_bound_of_a_clip_is_not_what_it_lets_pass() -> None:
    body = "p = Gemm(x, w) n = MatMul(p, w) t = Clip(o, n, high) y = Sigmoid(t)"
    assert not breaks(body, produced="p", integer="y", dims=SQUARE)
    assert breaks(body.replace("Clip(o, n,", "Clip(n, o,"), produced="p", integer="y", dims=SQUARE)


def test_one_of_several_readers_is_enough() -> None:
    body = "n = Conv(x, k) s = Sin(n) r = Relu(n) q = Sigmoid(r) y = Add(s, q)"
    assert breaks(body, produced="x", integer="q")
    assert not breaks(body, produced="x", integer="y")


@pytest.mark.parametrize(("produced", "expected"), [("xo", True), ("x", False), ("o", False), ("", False)])
def test_a_product_of_two_quantized_tensors_would_be_quantized_whatever_follows(produced: str, expected: bool) -> None:
    assert breaks("n = MatMul(x, o) y = Sin(n)", produced=produced, integer="", dims=SQUARE) is expected


def test_a_bias_that_was_quantized_does_not_count() -> None:
    body = "n = Gemm(x, o, b) y = Sin(n)"
    graph = f"b = Exp(x) {body}"
    assert breaks(graph, produced="xo", integer="", dims=SQUARE)
    assert not breaks(graph, produced="xb", integer="", dims=SQUARE)


@pytest.mark.parametrize(
    ("body", "produced", "integer", "expected"),
    [
        ("g = Gemm(x, w) n = Transpose(g) y = Relu(n)", "x", "g", True),
        ("g = Gemm(x, w) n = Transpose(g) y = Relu(n)", "xg", "g", False),
        ("g = Gemm(x, w) n = Transpose(g) y = Relu(n)", "x", "gn", False),
        ("g = Gemm(x, w) n = Transpose(g) y = Relu(n)", "x", "", False),
        ("g = MatMul(x, w) n = Transpose(g) y = Relu(n)", "x", "g", False),
        ("g = Gemm(x, w, low) n = Transpose(g) y = Relu(n)", "x", "g", False),
        ("g = Gemm(x, w) n = Relu(g) y = Transpose(n)", "x", "g", False),
    ],
)
def test_operands_of_an_integer_gemm_must_not_be_transposed(
    body: str, produced: str, integer: str, expected: bool
) -> None:
    assert breaks(body, produced=produced, integer=integer, dims=SQUARE) is expected


POOL = "MaxPool<kernel_shape=[1,1]>"
TURN = "Transpose<perm=[0,1,3,2]>"


@pytest.mark.parametrize(
    ("before", "read", "expected"),
    [
        (f"n = {POOL}(x)", "n", True),
        (f"n = {TURN}(x)", "n", True),
        (f"s = {TURN}(x) n = {POOL}(s)", "n", True),
        (f"n = {POOL}(x) s = {TURN}(n)", "s", False),
        (f"n = {POOL}(o)", "n", False),
        (f"r = Relu(x) n = {POOL}(r)", "n", False),
        (f"n = {POOL}(x) r = Relu(n)", "r", False),
        (f"n = {POOL}(x)", "x", False),
        ("n = Relu(x)", "n", False),
    ],
)
def test_integers_must_not_be_moved_to_what_bodies_read(before: str, read: str, expected: bool) -> None:
    body = f"""{before} m = ReduceMax<keepdims=0>(o) b = IsNaN(m)
               y = If(b) <then_branch = t () => (float[] p) {{ p = Sigmoid({read}) }},
                          else_branch = e () => (float[] q) {{ q = If(b) <
                             then_branch = t2 () => (float[] p2) {{ p2 = Tanh({read}) }},
                             else_branch = e2 () => (float[] q2) {{ q2 = Tanh(o) }}> }}>"""
    assert breaks(body, produced="x", integer="") is expected


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (f"c = Conv(x, k) t = {POOL}(c)", True),
        (f"c = Conv(x, k) m = {POOL}(c) t = Transpose<perm=[0,1,3,2]>(m)", True),
        (f"t = {POOL}(o)", True),
        (f"t = {POOL}(x)", False),
        (f"r = Transpose<perm=[0,1,3,2]>(x) t = {POOL}(r)", False),
        (f"c = Conv(x, k) m = {POOL}(c) t = Relu(m)", False),
        ("t = Conv(x, k)", False),
        ("t = Transpose<perm=[0,1,3,2]>(o)", False),
    ],
)
def test_quantizing_would_move_before_a_pool_of_floats(before: str, expected: bool) -> None:
    graph, plan = planned(f"{before} y = Sigmoid(t)", produced="x", integer="y")
    assert would_pool_integers(TensorName("t"), graph, plan) is expected


def test_a_pool_of_integers_stays_one() -> None:
    graph, plan = planned(f"c = Conv(x, k) t = {POOL}(c) y = Sigmoid(t)", produced="", integer="ty")
    assert not would_pool_integers(TensorName("t"), graph, plan)
