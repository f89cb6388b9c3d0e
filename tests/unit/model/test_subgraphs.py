import onnx
from onnx import helper

from autoquant.model.subgraphs import bodies_of, graphs_of, named_bodies_of


def a_graph(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [])


def a_switch(*cases: onnx.GraphProto) -> onnx.NodeProto:
    """A node with a list of bodies."""
    return helper.make_node("Switch", ["x"], ["y"], cases=cases, domain="my")


def test_bodies_are_found_with_their_attributes() -> None:
    node = helper.make_node("If", ["p"], ["y"], then_branch=a_graph("a"), else_branch=a_graph("b"))
    assert {name: body.name for name, body in named_bodies_of(node)} == {"then_branch": "a", "else_branch": "b"}
    switch = a_switch(a_graph("a"), a_graph("b"))
    assert [(name, body.name) for name, body in named_bodies_of(switch)] == [("cases", "a"), ("cases", "b")]


def test_bodies_of_a_node_are_not_those_inside_them() -> None:
    loop = helper.make_node("Loop", ["n"], ["y"], body=a_graph("outer", a_switch(a_graph("inner"))))
    assert [body.name for body in bodies_of(loop)] == ["outer"]
    assert list(bodies_of(helper.make_node("Exp", ["x"], ["y"]))) == []


def test_graphs_are_found_at_any_depth() -> None:
    loop = helper.make_node("Loop", ["n"], ["y"], body=a_graph("in_a", a_switch(a_graph("deep"))))
    graph = a_graph("main", a_switch(a_graph("a", loop), a_graph("b")))
    assert [found.name for found in graphs_of(graph)] == ["main", "a", "in_a", "deep", "b"]
