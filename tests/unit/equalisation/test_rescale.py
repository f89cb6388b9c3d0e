import numpy as np

from autoquant.equalisation.channels import trace
from autoquant.equalisation.rescale import rescaled
from autoquant.equalisation.rules import RULES
from autoquant.model.graph import Graph
from tests.models import constants_of, floats, model_of

TWO_READERS = "a = Conv(x, wa) b = Conv(a, w) c = Conv(b, w) y = Conv(c, wy)"


def a_graph(body: str, outputs: str = "float[1,4,6,6] y") -> Graph:
    constants = {name: floats(4, 4, 1, 1, seed=i) for i, name in enumerate(("w", "wa", "wy"))}
    return Graph(model_of(f"(float[1,4,6,6] x) => ({outputs})", body, constants))


def test_without_exponents_the_model_is_the_same() -> None:
    graph = a_graph(TWO_READERS)
    channels = trace(graph, RULES)
    assert rescaled(graph, channels.constants, np.zeros(channels.n, np.intp)).model == graph.model


def test_weights_are_divided_by_the_scales_of_their_outputs_and_multiplied_by_those_of_their_inputs() -> None:
    graph = a_graph("a = Conv(x, wa) b = Relu(a) y = Conv(b, wy)")
    changed = constants_of(rescaled(graph, trace(graph, RULES).constants, np.array([0, 1, -2, 0, 3])).model)
    scales = np.array([2, 0.25, 1, 8], np.float32)
    np.testing.assert_array_equal(changed["wa"], floats(4, 4, 1, 1, seed=1) / scales.reshape(4, 1, 1, 1))
    np.testing.assert_array_equal(changed["wy"], floats(4, 4, 1, 1, seed=2) * scales.reshape(1, 4, 1, 1))
    np.testing.assert_array_equal(changed["w"], floats(4, 4, 1, 1))


def test_readers_that_need_unlike_scales_get_a_copy_each() -> None:
    graph = a_graph(TWO_READERS)
    exponents = np.repeat([0, 1, 2, 4], [1, 4, 4, 4])  # of a, b and c
    changed = rescaled(graph, trace(graph, RULES).constants, exponents)
    assert [node.inputs[1] for node in changed.nodes] == ["wa", "w", "w_c", "wy"]
    for name, factor in (("w", 0.5), ("w_c", 0.25)):
        np.testing.assert_array_equal(constants_of(changed.model)[name], floats(4, 4, 1, 1) * np.float32(factor))


def test_readers_that_need_the_same_scales_go_on_sharing() -> None:
    graph = a_graph(TWO_READERS)
    exponents = np.repeat([0, 1, 2, 3], [1, 4, 4, 4])
    changed = rescaled(graph, trace(graph, RULES).constants, exponents)
    assert [node.inputs[1] for node in changed.nodes] == ["wa", "w", "w", "wy"]


def test_a_constant_that_something_else_reads_too_is_left_to_it() -> None:
    graph = a_graph("a = Conv(x, w) y = Conv(a, wy) total = ReduceSum(w) z = Identity(total)")
    changed = rescaled(graph, trace(graph, RULES).constants, np.array([0, 1, 1, 1, 1]))
    assert changed.nodes[0].inputs[1] == "w_a"
    np.testing.assert_array_equal(constants_of(changed.model)["w"], floats(4, 4, 1, 1))


def test_a_constant_that_is_a_graph_output_stays() -> None:
    graph = a_graph("a = Conv(x, w) y = Conv(a, wy)", "float[1,4,6,6] y, float[4,4,1,1] w")
    changed = rescaled(graph, trace(graph, RULES).constants, np.array([0, 1, 1, 1, 1]))
    assert changed.nodes[0].inputs[1] == "w_a"


def test_a_bias_of_one_number_without_dimensions_is_rescaled() -> None:
    constants = {"w": floats(4, 1), "c": np.array(0.5, np.float32), "v": floats(1, 3), "b": floats(3)}
    body = "h = Gemm(x, w, c) r = Relu(h) y = Gemm(r, v, b)"
    graph = Graph(model_of("(float[2,4] x) => (float[2,3] y)", body, constants))
    channels = trace(graph, RULES)
    changed = constants_of(rescaled(graph, channels.constants, np.array([0, *[1] * (channels.n - 1)])).model)
    np.testing.assert_array_equal(changed["w"], constants["w"] / 2)
    assert changed["c"].shape == ()
    assert changed["c"] == 0.25
