from autoquant.model.copies import copy_of
from autoquant.model.graph import Graph
from autoquant.model.names import NewNames, has_named_nodes, has_repeated_names, name_nodes
from autoquant.model.optimized import SUFFIX
from tests.models import a_convnet, a_mlp, model_of


def test_naming_leaves_its_argument_untouched_and_gives_it_back_where_all_have_names() -> None:
    model = a_mlp()
    assert name_nodes(model) is model
    model.graph.node[0].name = ""
    original = copy_of(model)
    assert has_named_nodes(name_nodes(model))
    assert model == original


def test_unnamed_and_equally_named_nodes_get_unique_names_and_others_keep_theirs() -> None:
    model = a_convnet()
    for i, name in enumerate(["", "twin", "twin", "", "Conv_0", "own"]):
        model.graph.node[i].name = name
    names = [node.name for node in name_nodes(model).graph.node]
    assert len(set(names)) == len(names)
    assert all(names)
    assert names[:6] == ["a", "twin", "twin_2", "b_relu", "Conv_0", "own"]
    assert names == [node.name for node in name_nodes(model).graph.node]
    assert (has_named_nodes(model), has_named_nodes(name_nodes(model))) == (False, True)


def test_nodes_of_bodies_get_names_too() -> None:
    then, other = (f"{k}_branch = {k} () => (float[2] {k}_y) {{ {k}_y = Exp(x) }}" for k in ("then", "else"))
    model = model_of("(float[2] x, bool p) => (float[2] y)", f"y = If(p) <{then}, {other}>")
    assert not has_named_nodes(model)
    assert has_named_nodes(name_nodes(model))


def test_no_name_ends_as_what_onnxruntime_appends() -> None:
    model = a_convnet()
    for i, name in enumerate(["a_nhwc", "a_nhwc", "b_token_7", "c_token", "c_token", "own"]):
        model.graph.node[i].name = name
    names = [node.name for node in name_nodes(model).graph.node]
    assert len(set(names)) == len(names)
    assert not any(SUFFIX.search(name) for name in names)
    assert (names[3], names[5]) == ("c_token", "own")


def test_names_are_repeated_within_one_graph_alone() -> None:
    then, other = (f"{k}_branch = {k} () => (float[2] {k}_y) {{ {k}_y = Exp(x) }}" for k in ("then", "else"))
    model = model_of("(float[2] x, bool p) => (float[2] y)", f"z = If(p) <{then}, {other}> y = Exp(z)")
    for attribute in model.graph.node[0].attribute:
        attribute.g.node[0].name = "twin"
    model.graph.node[1].name = "twin"
    assert not has_repeated_names(model)
    model.graph.node[0].name = "twin"
    assert has_repeated_names(model)


def test_a_new_name_is_given_once_and_is_no_tensors() -> None:
    names = NewNames(Graph(a_mlp()))
    assert [names.new(name) for name in ("h", "fresh", "fresh", "w0")] == ["h_", "fresh", "fresh_", "w0_"]
