import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.activations import activation_bytes
from autoquant.model.graph import Graph
from tests.models import floats, model_of


def test_shapes_that_are_static_need_no_samples() -> None:
    graph = Graph(model_of("(float[2,3] x) => (float[2,5] y)", "h = Relu(x) y = MatMul(h, w)", {"w": floats(3, 5)}))
    assert activation_bytes(graph, []) == {"x": 24, "h": 24, "y": 40}


def test_shapes_that_are_dynamic_are_those_of_the_largest_sample() -> None:
    body = "h = Conv <strides=[2,2]> (x, w) y = Relu(h)"
    graph = Graph(model_of("(float[N,3,H,W] x) => (float[N,4,h,w] y)", body, {"w": floats(4, 3, 1, 1)}))
    feeds = [{"x": floats(1, 3, *size)} for size in ((8, 8), (20, 10), (100, 1))]
    values = 4 * 10 * 5
    assert activation_bytes(graph, feeds) == {"x": 4 * 600, "h": 4 * values, "y": 4 * values}


def test_shapes_that_the_model_computes_are_followed() -> None:
    body = (
        "s = Shape(x) n = Gather(s, second) m = Mul(n, two) t = Concat<axis=0>(m, rest) h = Reshape(x, t) y = Relu(h)"
    )
    constants = {"second": np.array([1]), "two": np.array([2]), "rest": np.array([-1, 4])}
    graph = Graph(model_of("(float[1,L,16] x) => (float[a,b,c] y)", body, constants))
    assert graph.shape(graph.nodes[-2].outputs[0]) is None
    found = activation_bytes(graph, [{"x": floats(1, 6, 16)}])
    assert found[TensorName("h")] == found[TensorName("y")] == 4 * 6 * 16


def test_what_has_no_shape_before_the_model_runs_counts_as_what_is_read() -> None:
    body = "f = Reshape(x, all) i = NonZero(f) k = Squeeze(i, first) g = Gather(f, k) y = Relu(g)"
    constants = {"all": np.array([-1]), "first": np.array([0])}
    graph = Graph(model_of("(float[L] x) => (float[n] y)", body, constants))
    assert activation_bytes(graph, [{"x": floats(5)}, {"x": floats(7)}])[TensorName("y")] == 4 * 7


def test_of_dynamic_shapes_and_no_samples_nothing_is_known() -> None:
    graph = Graph(model_of("(float[L] x) => (float[L] y)", "y = Relu(x)"))
    assert set(activation_bytes(graph, [])) == {"x", "y"}
