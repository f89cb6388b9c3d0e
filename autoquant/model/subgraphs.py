"""Graphs inside of graphs: the bodies of If, Loop and Scan."""

from collections.abc import Iterator, Mapping

import onnx

__all__ = ["bodies_of", "graphs_of", "named_bodies_of", "nodes_in_bodies", "read_by", "rename_tensors"]


def named_bodies_of(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The bodies of a node, not what is inside them, with the names of the attributes that they are in."""
    for attribute in node.attribute:
        for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            yield attribute.name, body


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The bodies of a node, not what is inside them."""
    return (body for _, body in named_bodies_of(node))


def graphs_of(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and the bodies inside it, at any depth."""
    yield graph
    for body in (body for node in graph.node for body in bodies_of(node)):
        yield from graphs_of(body)


def nodes_in_bodies(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """Every node in the bodies of a node, at any depth."""
    return (inner for body in bodies_of(node) for graph in graphs_of(body) for inner in graph.node)


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Tensors that a node or a body of it reads, some of which may be the body's own."""
    yield from node.input
    for graph in (graph for body in bodies_of(node) for graph in graphs_of(body)):
        yield from (name for inner in graph.node for name in inner.input)
        yield from (value.name for value in graph.output)


def rename_tensors(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Call tensors otherwise in a graph, which is changed, and in the bodies inside it."""
    for part in graphs_of(graph) if new else ():
        for node in part.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
        for tensor in part.initializer:
            tensor.name = new.get(tensor.name, tensor.name)
        for value in (*part.value_info, *part.input, *part.output):
            value.name = new.get(value.name, value.name)
