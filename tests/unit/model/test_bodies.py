"""Bodies as graphs of their own."""

import numpy as np
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.bodies import body_graphs, n_body_nodes
from autoquant.model.graph import Graph
from tests.models import floats, model_of

_INNER = "then_branch = g{0} () => (float[2] d{0}) {{ d{0} = Exp({1}) }}"


def nested() -> Graph:
    """An If whose else branch holds another one, which reads ``w`` and ``x`` from the main graph."""
    first, second = _INNER.format(1, "w"), _INNER.format(2, "x").replace("then", "else")
    other = f"else_branch = g9 () => (float[2] e) {{ s = Sin(h) e = If(p) <{first}, {second}> }}"
    body = f"h = Cos(x) y = If(p) <{_INNER.format(3, 'h')}, {other}>"
    return Graph(model_of("(float[2] x, bool p) => (float[2] y)", body, {"w": floats(2)}))


def test_a_body_is_a_graph_whose_inputs_are_what_it_reads_from_outside() -> None:
    graph = nested()
    bodies = dict(body_graphs(graph, graph.nodes[1]))
    assert list(bodies) == ["then_branch", "else_branch"]
    assert bodies["then_branch"].inputs == ("h",)
    assert bodies["else_branch"].inputs == ("h", "p", "x")
    assert bodies["else_branch"].dtype(TensorName("s")) == "float32"


def test_constants_around_a_body_are_its_constants_at_any_depth() -> None:
    graph = nested()
    middle = dict(body_graphs(graph, graph.nodes[1]))["else_branch"]
    inner = dict(body_graphs(middle, middle.nodes[1]))["then_branch"]
    np.testing.assert_array_equal(inner.constant(TensorName("w")), floats(2))


def test_a_tensor_of_unknown_type_is_an_input_too() -> None:
    graph = nested()
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.value_info[:]
    untyped = Graph(model)
    assert dict(body_graphs(untyped, untyped.nodes[1]))["then_branch"].inputs == ("h",)


def test_nodes_of_bodies_are_counted_at_any_depth() -> None:
    graph = nested()
    assert [n_body_nodes(graph, node) for node in graph.nodes] == [0, 5]


def test_large_constants_around_bodies_are_not_copied() -> None:
    weight, w, s = floats(512, 512), TensorName("w"), TensorName("s")
    bodies = """then_branch = f () => (float[1,512] a) { a = MatMul(x, w) },
                else_branch = g () => (float[1,512] b) { s = MatMul(x, w) b = Sin(s) }"""
    model = model_of("(float[1,512] x, bool p) => (float[1,512] y)", f"y = If(p) <{bodies}>", {"w": weight})
    graph = Graph(model)
    first, second = (body for _, body in body_graphs(graph, graph.nodes[0]))
    assert first.model.ByteSize() + second.model.ByteSize() < 100_000 < weight.nbytes
    for body in (first, second):
        np.testing.assert_array_equal(body.constant(w), weight)
    assert (second.dtype(s), second.shape(s)) == ("float32", (1, 512))
