"""What leads to no output."""

from collections.abc import Iterator

import onnx

from autoquant.model.affine import without_unused
from autoquant.model.copies import Model, copy_of
from autoquant.model.subgraphs import bodies_of, graphs_of

__all__ = ["drop_unread"]


def drop_unread(model: Model) -> Model:
    """Without nodes of the main graph that lead to no output, and their constants: onnxruntime would run them."""
    read = {value.name for value in model.graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(model.graph.node):
        if read.intersection(filter(None, node.output)):
            kept.append(node)
            read.update(_read_by(node))
    if len(kept) == len(model.graph.node):
        return model
    copy = copy_of(model)
    del copy.graph.node[:]
    copy.graph.node.extend(reversed(kept))
    return without_unused(copy)


def _read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Tensors that a node or a body of it reads, some of which may be the body's own."""
    yield from node.input
    for graph in (graph for body in bodies_of(node) for graph in graphs_of(body)):
        yield from (name for inner in graph.node for name in inner.input)
        yield from (value.name for value in graph.output)
