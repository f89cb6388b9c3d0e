import numpy as np
import pytest

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import N_BINS, Statistics, TensorStatistics
from autoquant.model.graph import Graph
from autoquant.qdq.masks import Why, masked
from tests.models import Array, floats, model_of

BODY = "s = Add(x, x) p = Softmax(s) y = MatMul(p, w)"
CAST_BODY = "f = Cast<to=1>(x) s = Add(f, f) p = Softmax(s) y = MatMul(p, w)"


def statistics_of(minimum: float, n_masked: int, tensor: str) -> Statistics:
    counts = np.zeros(N_BINS, np.int64)
    found = TensorStatistics(minimum=minimum, maximum=1, limit=2048, counts=counts, n_zeros=1, n_masked=n_masked)
    return Statistics(tensors={TensorName(tensor): found}, digest="", n_samples=1)


@pytest.mark.parametrize(
    ("minimum", "n_masked", "tensor", "why"),
    [(-900, 0, "s", None), (-1100, 0, "s", Why.MASKED), (-5, 3, "s", Why.INFINITE), (-1100, 0, "x", None)],
)
def test_scores_far_below_the_others_are_masked(minimum: float, n_masked: int, tensor: str, why: Why | None) -> None:
    graph = Graph(model_of("(float[1,4] x) => (float[1,2] y)", BODY, {"w": floats(4, 2)}))
    found = masked(graph, statistics_of(minimum, n_masked, tensor))
    assert found == ({} if why is None else {tensor: why})


def test_scores_are_masked_in_every_shape_and_order() -> None:
    body = "s = Add(x, x) r = Reshape(s, n) t = Transpose(r) p = Softmax(t) q = Relu(s) z = Neg(s) y = MatMul(w, p)"
    constants: dict[str, Array | float] = {"n": np.array([2, 2]), "w": floats(1, 2)}
    graph = Graph(model_of("(float[1,4] x) => (float[1,2] y, float[1,4] q, float[1,4] z)", body, constants))
    tensors = {name: found for tensor in "srtqz" for name, found in statistics_of(-1100, 0, tensor).tensors.items()}
    assert masked(graph, Statistics(tensors=tensors, digest="", n_samples=1)) == dict.fromkeys("srt", Why.MASKED)


@pytest.mark.parametrize(("limit", "n_zeros", "is_unknown"), [(0.0, 8, True), (0.0, 0, True), (1.0, 8, False)])
def test_of_inputs_that_are_empty_or_zero_in_all_samples_nothing_is_known(
    limit: float, n_zeros: int, is_unknown: bool
) -> None:
    graph = Graph(model_of("(float[1,4] x) => (float[1,2] y)", BODY, {"w": floats(4, 2)}))
    counts = np.zeros(N_BINS, np.int64)
    found = TensorStatistics(minimum=0, maximum=limit, limit=limit, counts=counts, n_zeros=n_zeros)
    of_x = Statistics(tensors={TensorName("x"): found}, digest="", n_samples=1)
    assert masked(graph, of_x) == ({"x": Why.UNUSED} if is_unknown else {})
    dead = Statistics(tensors={TensorName("s"): found}, digest="", n_samples=1)
    assert masked(graph, dead) == ({"s": Why.UNUSED} if not n_zeros else {})


def test_inputs_that_are_cast_and_zero_in_all_samples_are_unknown() -> None:
    graph = Graph(model_of("(float16[1,4] x) => (float[1,2] y)", CAST_BODY, {"w": floats(4, 2)}))
    zeros = TensorStatistics(minimum=0, maximum=0, limit=0, counts=np.zeros(N_BINS, np.int64), n_zeros=8)
    assert masked(graph, Statistics(tensors={TensorName("f"): zeros}, digest="", n_samples=1)) == {"f": Why.UNUSED}


LEAST = float(np.finfo(np.float32).min)


def masks(body: str, value: float) -> frozenset[TensorName]:
    """Of what calibration saw nothing masked in."""
    constants: dict[str, Array | float] = {"one": 1.0, "c": value, "n": np.array([1, 4]), "w": floats(4, 2)}
    signature = "(float[1,4] x, float[1,4] m, bool[1,4] b) => (float[1,2] y)"
    graph = Graph(model_of(signature, f"{body} y = MatMul(p, w)", constants))
    return frozenset(masked(graph, statistics_of(-5, 0, "s")))


ADDED = "a = Sub(one, m) f = Mul(a, c) s = Add(x, f) p = Softmax(s)"


@pytest.mark.parametrize("value", [-np.inf, LEAST, -65504, -10000])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ADDED, {"f", "s"}),
        ("s = Where(b, x, c) p = Softmax(s)", {"s"}),
        ("f = Where(b, one, c) r = Reshape(f, n) s = Add(x, r) p = LogSoftmax(s)", {"f", "r", "s"}),
        ("e = Expand(c, n) f = Mul(m, e) g = Max(f, x) p = Softmax(g)", {"e", "f", "g"}),
        ("f = Mul(m, c) g = Clip(f, c) s = Add(x, g) p = Softmax(s)", {"f", "g", "s"}),
    ],
    ids=["added", "chosen", "reshaped", "expanded", "clipped beyond"],
)
def test_what_a_constant_pushes_far_below_is_masked_whether_or_not_a_sample_is(
    body: str, expected: set[str], value: float
) -> None:
    assert masks(body, value) == expected


@pytest.mark.parametrize("value", [np.inf, 1e30, 10000])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("f = Mul(m, c) s = Sub(x, f) p = Softmax(s)", {"f", "s"}),
        ("g = Neg(c) f = Mul(m, g) s = Add(x, f) p = Softmax(s)", {"g", "f", "s"}),
    ],
)
def test_what_is_far_above_may_be_subtracted(body: str, expected: set[str], value: float) -> None:
    assert masks(body, value) == expected


def test_the_walk_ends_at_the_softmax() -> None:
    assert masks(ADDED.replace("p = Softmax(s)", "q = Softmax(s) p = Mul(q, m)"), LEAST) == {"f", "s"}


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (ADDED, -900),
        ("f = Mul(m, c) s = Tanh(f) p = Softmax(s)", -10000),
        ("f = Mul(m, c) p = Relu(f)", -10000),
        ("s = Max(x, c) p = Softmax(s)", LEAST),
        ("s = Clip(x, c) p = Softmax(s)", LEAST),
        ("f = Mul(m, c) g = Clip(f, one) s = Add(x, g) p = Softmax(s)", -10000),
    ],
    ids=["near", "a function", "no Softmax", "a maximum", "a bound", "cut off"],
)
def test_other_constants_are_no_masks(body: str, value: float) -> None:
    assert masks(body, value) == frozenset()


def test_the_least_float_is_a_mask_wherever_it_leads() -> None:
    assert masks("f = Where(b, x, c) r = ReduceMax<keepdims=1>(f) p = Add(x, r)", LEAST) == {"f"}


def test_what_is_clipped_before_a_masked_tensor_is_masked_too() -> None:
    body = "s = Add(x, x) c = Clip(s, low) p = Softmax(c) y = MatMul(p, w)"
    constants: dict[str, Array | float] = {"low": -65504.0, "w": floats(4, 2)}
    graph = Graph(model_of("(float[1,4] x) => (float[1,2] y)", body, constants))
    assert masked(graph, statistics_of(-1100, 0, "c")) == dict.fromkeys("cs", Why.MASKED)


def test_float16_constants_are_compared_without_overflow() -> None:
    body = "h = Cast<to=10>(x) s = Add(h, b) p = Softmax(s) y = MatMul(p, w)"
    half = {"b": floats(4).astype(np.float16), "w": floats(4, 2).astype(np.float16)}
    graph = Graph(model_of("(float[1,4] x) => (float16[1,2] y)", body, half))
    assert masked(graph, Statistics(tensors={}, digest="", n_samples=1)) == {}
