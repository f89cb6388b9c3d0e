from collections.abc import Mapping

import numpy as np
import pytest

from autoquant.model.graph import Graph
from autoquant.rewrites.row_wise import Axes, axes_read
from tests.models import Array, floats, model_of, outputs_of, used_in

CONSTANTS: Mapping[str, Array | float] = {
    "number": np.array(0.5, np.float32),
    "row": floats(6),
    "column": floats(5, 1),
    "places": floats(3, 5, 6),
    "batch": floats(2, 1, 1, 6),
    "w": floats(6, 4),
    "deep": floats(3, 6, 4),
    "half": np.array([3]),
    "zero": np.array([0]),
    "first": np.array(0),
    "two": np.array([0, 2]),
    "one_axis": np.array([1]),
    "last_axis": np.array([3]),
    "minus": np.array([-1]),
    "empty": np.array([], np.int64),
    "all": np.array([30, 6]),
    "heads": np.array([2, 3, 5, 2, 3]),
    "scale": floats(6),
    "scales": floats(5, 6),
    "three": floats(3),
    "ones": np.ones(3, np.float32),
    "short": floats(4),
    "one_row": floats(1, 4),
    "each_row": floats(30, 1),
    "turned": floats(4, 6),
    "few": np.ones((1, 3, 5, 6), np.int64),
    "picks": np.random.default_rng(0).integers(-6, 6, (2, 3, 4, 7)),
}
X = "(float[2,3,5,6] x, float[2,3,5,6] z, bool[2,3,5,1] c, float[30,6] g, float[6,30] t)"
FEED = {
    "x": floats(2, 3, 5, 6),
    "z": floats(2, 3, 5, 6, seed=1),
    "c": floats(2, 3, 5, 1) > 0,
    "g": floats(30, 6),
    "t": floats(6, 30),
}
CASES: list[tuple[str, list[Axes | None]]] = [
    ("y = Relu(x)", [(0,), (1,), (2,), (3,)]),
    ("y = Add(x, z)", [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ("y = Mul(number, x)", [(None, 0), (None, 1), (None, 2), (None, 3)]),
    ("y = Sub(x, row)", [(0, None), (1, None), (2, None), (3, 0)]),
    ("y = Add(x, column)", [(0, None), (1, None), (2, 0), (3, None)]),
    ("y = Div(places, x)", [(None, 0), (0, 1), (1, 2), (2, 3)]),
    ("y = Max(x, batch)", [(0, 0), (1, None), (2, None), (3, 3)]),
    ("y = Where(c, x, number)", [(0, 0, None), (1, 1, None), (2, 2, None), (None, 3, None)]),
    ("y = Clip(x, , number)", [(0, None, None), (1, None, None), (2, None, None), (3, None, None)]),
    ("y = PRelu(x, row)", [(0, None), (1, None), (2, None), (3, 0)]),
    ("y = MatMul(x, w)", [(0, None), (1, None), (2, None), (None, 1)]),
    ("y = MatMul(x, deep)", [(0, None), (1, 0), (2, None), (None, 2)]),
    ("q = Transpose<perm=[0,1,3,2]>(z) y = MatMul(x, q)", [(0, 0), (1, 1), (2, None), (None, 3)]),
    ("y = MatMul(g, deep)", [(None, 0), (0, None), (None, 2)]),
    ("y = MatMul(x, row)", [None, None, None]),
    ("y = Gemm(g, w)", [(0, None), (None, 1)]),
    ("y = Gemm(g, w, short)", [(0, None, None), (None, 1, 0)]),
    ("y = Gemm(g, w, one_row)", [(0, None, None), (None, 1, 1)]),
    ("y = Gemm(g, w, each_row)", [(0, None, 0), (None, 1, None)]),
    ("y = Gemm<transA=1>(t, w)", [(1, None), (None, 1)]),
    ("y = Gemm<transB=1>(g, turned)", [(0, None), (None, 0)]),
    ("b = MatMul(x, w) y = Softmax(b)", [(0,), (1,), (2,), None]),
    ("y = Softmax<axis=1>(x)", [(0,), None, (2,), (3,)]),
    ("y, m = LayerNormalization(x, scale, scale)", [None, None, None, None]),
    ("y = LayerNormalization(x, scale, scale)", [(0, None, None), (1, None, None), (2, None, None), None]),
    ("y = LayerNormalization<axis=3>(x, scale, scale)", [(0, None, None), (1, None, None), (2, None, None), None]),
    ("y = LayerNormalization<axis=-2>(x, scales)", [(0, None), (1, None), None, None]),
    ("y = LayerNormalization(x, scales, scale)", [(0, None, None), (1, None, None), (2, 0, None), None]),
    ("y = LayerNormalization(x, batch, places)", [(0, 0, None), (1, None, 0), (2, None, 1), None]),
    ("y = BatchNormalization(x, three, three, three, ones)", [(i, *[None] * 4) if i != 1 else None for i in range(4)]),
    ("y = ReduceMean(x, minus)", [(0, None), (1, None), (2, None), None]),
    ("y = ReduceSum<keepdims=0>(x, one_axis)", [(0, None), (2, None), (3, None)]),
    ("y = ReduceMean(x, empty)", [None, None, None, None]),
    ("y = ReduceMax(x)", [None, None, None, None]),
    ("y = Transpose<perm=[0,2,1,3]>(x)", [(0,), (2,), (1,), (3,)]),
    ("y = Reshape(x, all)", [None, (3, None)]),
    ("y = Reshape(x, heads)", [(0, None), (1, None), (2, None), None, None]),
    ("y = Flatten<axis=3>(x)", [None, (3,)]),
    ("y = Unsqueeze(x, one_axis)", [(0, None), None, (1, None), (2, None), (3, None)]),
    ("y = Concat<axis=1>(x, z)", [(0, 0), None, (2, 2), (3, 3)]),
    ("y = Concat<axis=-3>(x, z)", [(0, 0), None, (2, 2), (3, 3)]),
    ("y = Slice(x, zero, half)", [None, None, None, None]),
    ("y = Slice(x, zero, half, last_axis)", [(0, *[None] * 3), (1, *[None] * 3), (2, *[None] * 3), None]),
    ("y = Gather<axis=1>(x, first)", [(0, None), (2, None), (3, None)]),
    ("y = Gather<axis=-3>(x, two)", [(0, None), None, (2, None), (3, None)]),
    ("y = Gather(x, first)", [(1, None), (2, None), (3, None)]),
    ("y = GatherElements(x, few)", [(None, 0), (1, 1), (2, 2), (3, 3)]),
    ("y = Gather<axis=1>(x, two)", [(0, None), None, (2, None), (3, None)]),
    ("y = GatherElements<axis=-1>(x, picks)", [(0, 0), (1, 1), None, (None, 3)]),
    ("y = CumSum(x, first)", [None, None, None, None]),
    ("a, b = Split<num_outputs=2>(x) y = Relu(a)", [(0,), (1,), (2,), (3,)]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_where_a_place_of_the_output_is_read(body: str, expected: list[Axes | None]) -> None:
    graph = Graph(model_of(f"{X} => (float[] y)", body, used_in(body, CONSTANTS)))
    assert [axes_read(graph, graph.nodes[-1], axis) for axis in range(len(expected))] == expected


@pytest.mark.parametrize("body", [body for body, _ in CASES])
def test_a_place_follows_from_what_is_said_to_be_read(body: str) -> None:
    """Whatever is elsewhere."""
    used = {name: np.asarray(value) for name, value in used_in(body, CONSTANTS).items()}
    fed = {name: value for name, value in used.items() if value.dtype == np.float32}
    signature = X.strip("()") + "".join(f", float[{','.join(map(str, fed[name].shape))}] {name}" for name in fed)
    constants = {name: value for name, value in used.items() if name not in fed}
    model = model_of(f"({signature}) => (float[] y)", body, constants)
    feed: dict[str, Array] = {**FEED, **fed}
    (before,), node = outputs_of(model, feed), Graph(model).nodes[-1]
    for axis in range(before.ndim):
        axes = axes_read(Graph(model), node, axis) or ()
        for name, own in zip(node.inputs, axes, strict=bool(axes)):
            if own is not None and name in feed:
                changed = feed | {name: changed_behind_the_first(feed[name], own)}
                behind = outputs_of(model, changed)[0].take(0, axis)
                np.testing.assert_allclose(behind, before.take(0, axis), rtol=1e-6)


def changed_behind_the_first(values: Array, axis: int) -> Array:
    first = np.arange(values.shape[axis]).reshape([-1 if i == axis else 1 for i in range(values.ndim)]) == 0
    other = np.logical_not(values) if values.dtype == np.bool_ else values[..., ::-1] + np.ones(1, values.dtype)
    return np.where(first, values, other)


@pytest.mark.parametrize(
    "op_type",
    [
        *("Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf"),
        *("IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Round", "Selu", "Sigmoid", "Sign", "Softplus"),
        *("Softsign", "Sqrt", "Tanh", "Cast<to=1>"),
    ],
)
def test_element_by_element_a_place_is_read_at_its_own(op_type: str) -> None:
    graph = Graph(model_of("(float[2,3] x) => (float[] y)", f"a = {op_type}(x) y = Cast<to=1>(a)"))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(2)] == [(0,), (1,)]


@pytest.mark.parametrize(
    "op_type", ["ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare", "LogSoftmax"]
)
def test_beside_the_last_axis_a_place_is_read_at_its_own(op_type: str) -> None:
    axes = "" if op_type == "LogSoftmax" else ", minus"
    model = model_of("(float[2,3] x) => (float[] y)", f"y = {op_type}(x{axes})", {"minus": np.array([-1])})
    assert [(axes_read(Graph(model), Graph(model).nodes[0], axis) or (None,))[0] for axis in range(2)] == [0, None]


def test_of_a_length_that_may_be_another_than_that_of_places_nothing_is_known() -> None:
    graph = Graph(model_of("(float[n,4] x, int64[m,4] i) => (float[] y)", "y = GatherElements<axis=1>(x, i)"))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(2)] == [None, (None, 1)]


def test_from_opset_13_on_a_softmax_is_of_one_axis() -> None:
    graph = Graph(model_of("(float[2,3,4] x) => (float[] y)", "y = Softmax(x)", opset=13))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(3)] == [(0,), (1,), None]


@pytest.mark.parametrize("softmax", ["Softmax", "Softmax<axis=1>"])
def test_before_opset_13_a_softmax_is_of_all_axes_behind_its_own(softmax: str) -> None:
    graph = Graph(model_of("(float[2,3,5] x) => (float[] y)", f"y = {softmax}(x)", opset=12))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(3)] == [(0,), None, None]


def test_scales_of_each_place_are_read_with_it() -> None:
    body = "y = BatchNormalization<spatial=0>(x, scales, scales, scales, scales)"
    graph = Graph(model_of("(float[2,5,6] x) => (float[] y)", body, used_in(body, CONSTANTS), opset=8))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(3)] == [None, None, None]


def test_of_a_bias_of_unknown_size_nothing_is_known() -> None:
    graph = Graph(model_of("(float[5,6] x, float[] b) => (float[] y)", "y = Gemm(x, w, b)", {"w": floats(6, 4)}))
    assert axes_read(graph, graph.nodes[0], 0) is None


def test_a_bias_of_open_size_may_be_one_number() -> None:
    graph = Graph(model_of("(float[5,6] x, float[n] b) => (float[] y)", "y = Gemm(x, w, b)", {"w": floats(6, 4)}))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(2)] == [(0, None, None), None]


def test_what_has_an_open_size_has_a_first_and_a_last_place() -> None:
    graph = Graph(model_of("(float[n,4] x, float[m,4] z) => (float[] y)", "y = Add(x, z)"))
    assert axes_read(graph, graph.nodes[0], 0) == (0, 0)


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(float[n,3,8] x) => (float[n,3,2,4] y)", [(0, None), (1, None), None, None]),
        ("(float[2,n,8] x) => (float[2,n,2,4] y)", [(0, None), (1, None), None, None]),
        ("(float[n,2,8] x) => (float[n,16] y)", [(0, None), None]),
        ("(float[n,8] x) => (float[4,m] y)", [None, None]),
        ("(float[n,m,8] x) => (float[k,8] y)", [None, (2, None)]),
        ("(float[4,n] x) => (float[4,m,2] y)", [None, None, None]),
        ("(float[n,4] x) => (float[2,m,4] y)", [None, None, None]),
        ("(float[n,6,4] x) => (float[m,3,4] y)", [None, None, None]),
        ("(float[n,m,8] x) => (float[n,m,2,4] y)", [None, None, None, None]),
    ],
)
def test_one_size_that_a_reshape_writes_may_be_open(signature: str, expected: list[Axes | None]) -> None:
    graph = Graph(model_of(signature.replace(" x)", " x, int64[] s)"), "y = Reshape(x, s)"))
    assert [axes_read(graph, graph.nodes[0], axis) for axis in range(len(expected))] == expected
