from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.model.graph import Graph
from autoquant.model.twins import twins_of
from autoquant.runtime.session import optimize_basic
from tests.models import Array, floats, model_of

AN_IF = """If(p) <then_branch = g1 () => (float[4] t) {{ t = {}(x) }},
                  else_branch = g2 () => (float[4] e) {{ e = Neg(x) }}>"""
CONSTANTS: dict[str, Array | float] = {
    "half": 0.5,
    "half_too": 0.5,
    "third": 0.3,
    "halves": np.full(4, 0.5, np.float32),
    "halves_too": np.full(4, 0.5, np.float32),
    "square": np.array([2, 2], np.int64),
    "square_too": np.array([2, 2], np.int64),
    "line": np.array([4], np.int64),
    "many": floats(9, 1),
    "many_too": floats(9, 1),
    "yes": np.array(True),
    "yes_too": np.array(True),
    "i": np.array([0], np.int64),
    "series": np.array([4, 1, 1], np.int64),
    "w": floats(1, 4, 1),
}
BODIES: dict[str, dict[str, str]] = {
    "a = Relu(x) b = Relu(x) c = Sin(a) d = Sin(b) e = Relu(x) y = Sum(c, d, e)": {"b": "a", "d": "c", "e": "a"},
    "a = Mul(x, half) b = Mul(x, half_too) c = Sin(a) d = Cos(b) y = Sub(c, d)": {"b": "a"},
    "a = Pow(x, halves) b = Pow(x, halves_too) c = Sin(a) d = Cos(b) y = Sub(c, d)": {"b": "a"},
    "a = Reshape(x, square) b = Reshape(x, square_too) c = Sin(a) d = Cos(b) e = Sub(c, d) y = Reshape(e, line)": {
        "b": "a"
    },
    "a = Relu(x) b = Sin(x) y = Sub(a, b)": {},
    "a = Relu(x) b = Relu(a) y = Sub(a, b)": {},
    "a = LeakyRelu<alpha=0.1>(x) b = LeakyRelu<alpha=0.2>(x) y = Sub(a, b)": {},
    "a = Sub(x, half) b = Sub(a, x) c = Sub(x, a) y = Mul(b, c)": {},
    "a = Mul(x, half) b = Mul(x, third) c = Sin(a) d = Cos(b) y = Sub(c, d)": {},
    "a = Pow(x, many) b = Pow(x, many_too) c = Sin(a) d = Cos(b) e = Sub(c, d) y = ReduceMax<keepdims=0>(e, i)": {},
    "a = Where(yes, x, half) b = Where(yes_too, x, half) c = Sin(a) d = Cos(b) y = Sub(c, d)": {},
    "a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b)": {},
    f"a = {AN_IF.format('Sin')} b = {AN_IF.format('Cos')} y = Sub(a, b)": {},
    f"a = {AN_IF.format('Sin')} b = {AN_IF.format('Sin')} c = Sin(a) d = Cos(b) y = Sub(c, d)": {},
}


def a_graph(body: str) -> Graph:
    return Graph(model_of("(float[4] x, bool p) => (float[4] y)", body, CONSTANTS))


def twins(graph: Graph) -> dict[str, str]:
    return {graph.nodes[index].name: first.name for index, first in twins_of(graph).items()}


@pytest.mark.parametrize(("body", "expected"), BODIES.items())
def test_twins_compute_the_same_of_the_same_and_onnxruntime_keeps_one(
    body: str, expected: dict[str, str], tmp_path: Path
) -> None:
    graph = a_graph(body)
    assert twins(graph) == expected
    optimize_basic(graph.model.SerializeToString(), {}, tmp_path / "optimized.onnx")
    kept = onnx.load(tmp_path / "optimized.onnx").graph.node
    gone = Counter(node.op_type for node in graph.nodes if node.name in expected)
    assert Counter(node.op_type for node in graph.nodes) - Counter(node.op_type for node in kept) == gone


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("a = LSTM<hidden_size=1>(s, w, w) b, h = LSTM<hidden_size=1>(s, w, w)", {}),
        ("b, h = LSTM<hidden_size=1>(s, w, w) a = LSTM<hidden_size=1>(s, w, w)", {"a": "b"}),
    ],
)
def test_an_output_that_is_left_out_is_no_tensor(cells: str, expected: dict[str, str]) -> None:
    more = "c = LSTM<hidden_size=1>(s, w, w, , , ) d = LSTM<hidden_size=1>(s, w, w, , , h)"
    graph = a_graph(f"s = Reshape(x, series) {cells} {more} t = Sum(a, b, c, d) y = Reshape(t, line)")
    assert twins(graph) == expected
