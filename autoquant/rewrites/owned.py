"""Constants that operators read beside outputs of the model and bodies of If, Loop and Scan."""

from collections.abc import Iterator

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.kept import graph_of
from autoquant.model.ops import Kind, is_float_constant, kind_of
from autoquant.model.subgraphs import bodies_of, graphs_of
from autoquant.rewrites.edits import Edit

__all__ = ["own_constants"]


def own_constants(model: Model) -> Model:
    """Operators that may be quantized read copies, so that what becomes of a constant has a name of its own.

    Overrides are said by name, and what outputs and bodies read stays as it is.
    """
    edit, copies = Edit(graph_of(model)), dict[TensorName, TensorName]()
    hidden = {tensor.name for node in model.graph.node for tensor in _constants_in_bodies(node)}
    pinned = {name for name in edit.graph.pinned - hidden if is_float_constant(name, edit.graph)}
    for node in edit.graph.nodes:
        names = pinned.intersection(node.inputs) if kind_of(node) is not Kind.FLOAT else ()
        if not names:
            continue
        for name in sorted(names):
            copies[name] = copies.get(name) or edit.constant(f"{name}_copy", edit.graph.constant(name))
        proto = onnx.NodeProto()
        proto.CopyFrom(model.graph.node[node.index])
        proto.input[:] = [copies.get(name, name) for name in node.inputs]
        edit.replaced[node.index] = [proto]
    return edit.model()


def _constants_in_bodies(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Behind those of its own a body sees no others of the same names."""
    return (tensor for body in bodies_of(node) for graph in graphs_of(body) for tensor in graph.initializer)
