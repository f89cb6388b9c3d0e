import numpy as np
import pytest
from onnx import numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from tests.models import a_convnet, a_mlp, floats, model_of

X, Y = TensorName("x"), TensorName("y")


def test_nodes_have_their_place_operator_ends_and_attributes() -> None:
    model = model_of(
        "(float[1,3,8,8] x) => (float[1,4,8,8] y)", "y = Conv<pads=[1,1,1,1]>(x, w)", {"w": floats(4, 3, 3, 3)}
    )
    (node,) = Graph(model).nodes
    assert (node.index, node.name, node.op_type, node.inputs, node.outputs) == (0, "y", "Conv", ("x", "w"), ("y",))
    assert node.attributes == {"pads": [1, 1, 1, 1]}


def test_bodies_are_no_attributes_of_a_node() -> None:
    bodies = "then_branch = g1 () => (float[4] a) { a = Relu(x) }, else_branch = g2 () => (float[4] b) { b = Neg(x) }"
    (node,) = Graph(model_of("(float[4] x, bool p) => (float[4] y)", f"y = If(p) <{bodies}>")).nodes
    assert dict(node.attributes) == {}


def test_operators_of_other_domains_bear_their_domain() -> None:
    model = model_of("(float[4] x) => (float[4] y)", "y = com.microsoft.QuickGelu(x)")
    assert [node.op_type for node in Graph(model).nodes] == ["com.microsoft:QuickGelu"]


def test_a_reader_counts_once_even_if_it_reads_a_tensor_twice() -> None:
    graph = Graph(model_of("(float[4] x) => (float[4] y)", "a = Relu(x) b = Mul(a, a) y = Add(b, a)"))
    assert [node.name for node in graph.consumers[TensorName("a")]] == ["b", "y"]
    assert graph.producer[TensorName("b")].name == "b"
    assert Y not in graph.consumers


def test_optional_inputs_that_are_left_out_are_no_tensors() -> None:
    graph = Graph(model_of("(float[4] x) => (float[4] y)", "y = Clip(x, , high)", {"high": 1.0}))
    assert graph.nodes[0].inputs == ("x", "", "high")
    assert "" not in graph.consumers


def test_constants_have_values_and_shapes_and_no_producer() -> None:
    graph = Graph(a_convnet())
    weight = TensorName("wc")
    assert graph.is_constant(weight)
    assert not graph.is_constant(X)
    np.testing.assert_array_equal(graph.constant(weight), floats(8, 8, 1, 1, scale=0.3))
    assert graph.shape(weight) == (8, 8, 1, 1)
    assert weight not in graph.producer
    assert set(graph.constants) == {"wa", "ba", "wb", "bb", "wc", "wy", "by"}


def test_a_constant_that_does_not_exist_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        Graph(a_convnet()).constant(X)


def test_every_input_output_and_initializer_is_a_tensor_of_the_graph() -> None:
    graph = Graph(a_convnet())
    assert all(graph.has_tensor(TensorName(name)) for name in ("x", "y", "a_relu", "wa"))
    assert not graph.has_tensor(TensorName("a_weight"))


def test_a_free_name_is_that_of_no_tensor_wherever_it_lives() -> None:
    body = """a = Relu(x) a_ = Sigmoid(x)
              y = If(p) <then_branch = g1 () => (float[2] d) { c = Exp(w) d = Relu(c) },
                         else_branch = g2 () => (float[2] e) { e = Identity(a) }>"""
    graph = Graph(model_of("(float[2] x, bool p) => (float[2] y)", body, {"w": floats(2)}))
    assert [graph.free_name(name) for name in ("a", "x", "w", "c", "new")] == ["a__", "x_", "w_", "c_", "new"]
    assert graph.free_name("a", ("a__", "a___")) == "a____"


def test_a_free_name_is_that_of_no_tensor_that_only_a_body_makes() -> None:
    body = """y = Loop(n, , x) <body = b (int64 i, bool go, float[2] a) => (bool still, float[2] b)
              { still = Identity(go) unread = Exp(a)
                b = If(go) <then_branch = g1 () => (float[2] d) { d = Identity(a) inner = Exp(a) },
                            else_branch = g2 () => (float[2] e) { e = Identity(a) }> }>"""
    model = model_of("(float[2] x, int64 n) => (float[2] y)", body)
    (attribute,) = model.graph.node[0].attribute
    attribute.g.initializer.append(numpy_helper.from_array(floats(2), "idle"))
    graph = Graph(model)
    wanted = ["i", "a", "unread", "inner", "idle", "new"]
    assert [graph.free_name(name) for name in wanted] == ["i_", "a_", "unread_", "inner_", "idle_", "new"]


def test_only_readers_have_no_other_reader_in_the_graph_outside_or_in_a_body() -> None:
    model = model_of(
        "(float[2] x, bool p) => (float[2] y, float[2] b)",
        """a = Relu(x) b = Sigmoid(a) c = Tanh(b) d = Exp(c) e = Exp(c)
           y = If(p) <then_branch = g1 () => (float[2] f) { f = Relu(d) },
                      else_branch = g2 () => (float[2] g) { g = Identity(x) }>""",
    )
    graph = Graph(model)
    readers = [graph.only_reader(TensorName(name)) for name in "abcd"]
    assert [reader and reader.name for reader in readers] == ["b", None, None, None]


def test_shapes_are_none_where_they_are_dynamic_or_unknown() -> None:
    graph = Graph(a_mlp())
    assert graph.shape(X) is None
    assert graph.shape(TensorName("nothing")) is None
    assert Graph(a_convnet()).shape(TensorName("a")) == (1, 8, 8, 8)


def test_float_tensors_are_activations_of_type_float32() -> None:
    model = model_of(
        "(float[4] x, int64[4] i) => (float[4] y)",
        "h = Cast<to=10>(x) j = Cast<to=1>(i) b = Greater(x, j) y = Where(b, x, c)",
        {"c": floats(4)},
    )
    assert Graph(model).float_tensors == {"x", "j", "y"}


def test_graph_outputs_and_what_nested_subgraphs_read_are_pinned() -> None:
    model = model_of(
        "(float[2] x, bool p) => (float[2] y)",
        """a = Relu(x) b = Sigmoid(x) c = Tanh(x)
           y = If(p) <then_branch = g1 () => (float[2] d) {
                          d = If(p) <then_branch = g3 () => (float[2] e) { e = Identity(a) },
                                     else_branch = g4 () => (float[2] f) { f = Identity(x) }> },
                      else_branch = g2 () => (float[2] b) { }>""",
    )
    graph = Graph(model)
    assert {"y", "a", "b", "x"} <= graph.pinned
    assert "c" not in graph.pinned
    assert graph.pinned - graph.read_in_bodies == {"y"}


def test_types_are_known_of_constants_inputs_and_what_is_inferred() -> None:
    graph = Graph(
        model_of("(float[2] x) => (float[2] y)", "s = Shape(x) y = Mul(x, w)", {"w": np.zeros(2, np.float32)})
    )
    found = {name: graph.dtype(TensorName(name)) for name in ("x", "w", "s", "y", "gone")}
    assert found == {"x": "float32", "w": "float32", "s": "int64", "y": "float32", "gone": None}


def test_what_constants_alone_lead_to_is_known() -> None:
    graph = Graph(model_of("(float[2] x) => (float[2] y)", "a = Exp(w) b = Sin(a) y = Mul(x, b)", {"w": floats(2)}))
    assert graph.constant_nodes == {0, 1}
    assert [name for name in "wabxy" if graph.is_known(TensorName(name))] == ["w", "a", "b"]


BODIES = """a = If(b) <then_branch = t () => (float[2] p) {{ p = Identity({then}) }},
                        else_branch = e () => (float[2] q) {{ q = Identity(w) }}>
            y = Mul(x, a)"""


@pytest.mark.parametrize(("then", "is_known"), [("w", True), ("x", False)])
def test_what_a_body_reads_counts_too(then: str, is_known: bool) -> None:
    constants = {"b": np.array(True), "w": floats(2)}
    graph = Graph(model_of("(float[2] x) => (float[2] y)", BODIES.format(then=then), constants))
    assert graph.is_known(TensorName("a")) is is_known


@pytest.mark.parametrize("drawn", ["a = RandomNormalLike(w) y = Mul(x, a)", BODIES])
def test_numbers_that_are_drawn_are_not_known(drawn: str) -> None:
    body = drawn.format(then="w").replace("Identity(w) }>", "RandomNormal<shape=[2]>() }>")
    graph = Graph(model_of("(float[2] x) => (float[2] y)", body, {"b": np.array(True), "w": floats(2)}))
    assert not graph.constant_nodes


def test_an_input_that_a_body_leaves_out_is_no_tensor() -> None:
    body = """y = If(b) <then_branch = t () => (float[2] p) { p = Clip(x, , high) },
                         else_branch = e () => (float[2] q) { q = Identity(x) }>"""
    graph = Graph(model_of("(float[2] x, bool b) => (float[2] y)", body, {"high": 1.0}))
    assert graph.pinned == {"x", "y", "high", "p", "q"}


def test_sizes_are_known_where_some_dimensions_are_not() -> None:
    graph = Graph(model_of("(float[N,4] x, float u) => (float[N,4] y)", "y = Relu(x)", {"w": floats(2, 3)}))
    x, u, w, gone = map(TensorName, ("x", "u", "w", "gone"))
    assert [graph.shape(name) for name in (x, u, w, gone)] == [None, (), (2, 3), None]
    assert [graph.sizes(name) for name in (x, u, w, gone)] == [(None, 4), (), (2, 3), None]
    assert [graph.rank(name) for name in (x, u, w, gone)] == [2, 0, 2, 0]


@pytest.mark.parametrize(("values", "expected"), [([1, -3, 2], 3), ([], 0), ([1, np.nan], np.nan), ([-np.inf], np.inf)])
def test_the_magnitude_of_a_constant_is_that_of_its_largest_value(values: list[float], expected: float) -> None:
    graph = Graph(model_of("(float[1] x) => (float[1] y)", "y = Relu(x)", {"w": np.array(values, np.float32)}))
    np.testing.assert_equal(graph.magnitude(TensorName("w")), expected)
