import numpy as np
import onnx

from autoquant.model.copies import copy_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of, keeping_the_last_graph
from autoquant.rewrites.edits import Edit, Parts, of_each_node, without_unused
from tests.models import constants_of, floats, model_of, op_types, outputs_of


def a_root() -> onnx.ModelProto:
    return model_of("(float[2] x) => (float[2] y)", "t = Abs(x) y = Sqrt(t)", {"y_half": 0.5})


def test_nodes_come_in_place_of_one_under_its_name_and_the_argument_stays() -> None:
    model = a_root()
    model.graph.node[1].name = "root"
    original, edit = copy_of(model), Edit(Graph(model))
    node = edit.graph.nodes[1]
    parts = Parts(edit, node)
    half = parts.constant("half", np.array(0.5, np.float32))
    parts.add("Pow", [parts.add("Relu", node.inputs, part="relu"), half], output=node.outputs[0])
    edit.replaced[node.index] = parts.nodes
    made = edit.model()
    assert model == original
    assert [each.name for each in made.graph.node][1:] == ["root_relu", "root"]
    assert made.graph.node[1].output == ["root_relu_out"]
    assert {name: values.shape for name, values in constants_of(made).items()} == {"root_half": ()}
    feed = {"x": np.array([4.0, -9.0], np.float32)}
    np.testing.assert_allclose(outputs_of(made, feed)[0], [2, 3], rtol=1e-6)


def test_a_constant_gets_a_name_that_no_tensor_has() -> None:
    edit = Edit(Graph(a_root()))
    assert [edit.constant(wanted, [1.0]) for wanted in ("y", "y_half", "z", "z")] == ["y_", "y_half_", "z", "z_"]


def test_nodes_are_claimed_once_and_all_or_none() -> None:
    edit = Edit(Graph(a_root()))
    first, second = edit.graph.nodes
    assert [edit.claim(first), edit.claim(second, first), edit.claim(second)] == [True, False, True]


def test_without_changes_the_model_itself_is_given_back() -> None:
    model = a_root()
    assert Edit(Graph(model)).model() is model


@of_each_node(13)
def drop_abs(edit: Edit, node: Node) -> None:
    """No absolute values."""
    if node.op_type == "Abs":
        root = edit.graph.copy_of(edit.graph.nodes[1])
        root.input[0] = node.inputs[0]
        edit.replaced |= {node.index: (), 1: (root,)}


def test_what_replaces_a_node_becomes_a_rewrite_of_models_under_its_name() -> None:
    model = a_root()
    original = copy_of(model)
    assert op_types(drop_abs(model)) == ["Sqrt"]
    assert model == original
    assert (getattr(drop_abs, "__name__", None), drop_abs.__doc__) == ("drop_abs", "No absolute values.")


def test_a_model_where_nothing_is_replaced_is_given_back_and_its_graph_is_kept() -> None:
    model = model_of("(float[2] x) => (float[2] y)", "y = Sqrt(x)")
    with keeping_the_last_graph():
        graph = graph_of(model)
        assert drop_abs(model) is model
        assert graph_of(model) is graph


def test_a_model_of_an_older_opset_is_given_back() -> None:
    model = model_of("(float[2] x) => (float[2] y)", "t = Abs(x) y = Sqrt(t)", opset=12)
    assert drop_abs(model) is model


def test_initializers_that_nothing_reads_are_dropped_and_those_of_subgraphs_are_kept() -> None:
    model = model_of(
        "(float[2] x, bool p) => (float[2] y)",
        """y = If(p) <then_branch = g1 () => (float[2] a) { a = Add(x, inner) },
                      else_branch = g2 () => (float[2] b2) { b2 = Relu(x) }>""",
        {"inner": floats(2), "unread": floats(2)},
    )
    assert constants_of(without_unused(model)).keys() == {"inner"}
