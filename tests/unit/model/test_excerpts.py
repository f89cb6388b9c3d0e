import numpy as np
import onnx
import pytest

from autoquant.model.excerpts import excerpt
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from tests.models import feed_of, floats, model_of, op_types, outputs_of

CONSTANTS = {"w": floats(4), "one": np.ones(1, np.float32)}


def graph_of(body: str, signature: str = "(float[2,4] a, float[2,4] b) => (float[] y)") -> Graph:
    used = {name: value for name, value in CONSTANTS.items() if name in body}
    return Graph(infer_shapes(model_of(signature, body, used)))


def test_nodes_run_alone_and_what_others_read_is_an_output() -> None:
    graph = graph_of("r = Relu(a) s = Add(r, b) t = Mul(s, w) u = Neg(s) y = Sub(t, u)")
    found = excerpt(graph, graph.nodes[1:3])
    assert found is not None
    assert found.shapes == {"r": (2, 4), "b": (2, 4)}
    model = onnx.load_from_string(found.model)
    assert [output.name for output in model.graph.output] == ["s", "t"]
    feed = feed_of(model)
    s, t = outputs_of(model, feed)
    np.testing.assert_array_equal(s, feed["r"] + feed["b"])
    np.testing.assert_allclose(t, s * CONSTANTS["w"], rtol=1e-6)


def test_operators_may_be_others() -> None:
    graph = graph_of("s = Add(a, b) y = Mul(s, w)")
    found = excerpt(graph, graph.nodes, {0: "Sum"})
    assert found is not None
    assert op_types(onnx.load_from_string(found.model)) == ["Sum", "Mul"]
    assert op_types(graph.model) == ["Add", "Mul"]


def test_attributes_may_be_others() -> None:
    graph = graph_of("s = Softmax<axis = 0>(a) y = Softmax<axis = 0>(s)")
    found = excerpt(graph, graph.nodes, attributes={1: {"approximate": "tanh"}})
    assert found is not None
    nodes = onnx.load_from_string(found.model).graph.node
    assert [[(a.name, a.i, a.s) for a in node.attribute] for node in nodes] == [
        [("axis", 0, b"")],
        [("approximate", 0, b"tanh")],
    ]


@pytest.mark.parametrize("signature", ["(float[N,4] a, float[2,4] b) => (y)", "(double[2,4] a, double[2,4] b) => (y)"])
def test_there_is_none_of_unknown_shapes_and_other_types(signature: str) -> None:
    graph = graph_of(
        "y = Add(a, b)", signature.replace("(y)", "(float[] y)" if "float" in signature else "(double[] y)")
    )
    assert excerpt(graph, graph.nodes) is None
