"""The bodies of If, Loop and Scan as graphs of their own."""

from collections.abc import Iterable, Iterator

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.rewrite import constants_as_initializers, infer_shapes
from autoquant.model.subgraphs import bodies_of, graphs_of, named_bodies_of

__all__ = ["body_graphs", "n_body_nodes"]

_LARGE_BYTES = 4096


def body_graphs(graph: Graph, node: Node) -> Iterator[tuple[str, Graph]]:
    """The bodies of a node, with the attributes that they are: ``then_branch``, ``else_branch``, ``body``.

    Constants of the graphs around it that a body reads are its constants too, as they are for onnxruntime; all else
    that it reads from there are inputs, behind its own. Constant nodes are initializers, types are inferred.
    """
    for name, body in named_bodies_of(graph.model.graph.node[node.index]):
        captured = sorted(map(TensorName, _captured(body)))
        model = infer_shapes(constants_as_initializers(_closed(body, graph, captured)))
        yield name, Graph(model, {tensor: graph.constants[tensor] for tensor in captured if graph.is_constant(tensor)})


def n_body_nodes(graph: Graph, node: Node) -> int:
    """Nodes inside the bodies of a node, at any depth."""
    bodies = bodies_of(graph.model.graph.node[node.index])
    return sum(len(inner.node) for body in bodies for inner in graphs_of(body))


def _closed(body: onnx.GraphProto, around: Graph, captured: Iterable[TensorName]) -> Model:
    """A model that reads nothing from outside but the values of large constants."""
    model = onnx.ModelProto(
        ir_version=around.model.ir_version, opset_import=around.model.opset_import, functions=around.model.functions
    )
    model.graph.CopyFrom(body)
    outer = around.model.graph
    types = {value.name: value for value in (*outer.value_info, *outer.output, *outer.input)}
    for name in captured:
        if around.is_constant(name):
            model.graph.initializer.append(_without_values(around.constants[name]))
        else:
            model.graph.input.append(types.get(name, onnx.ValueInfoProto(name=name)))
    return model


def _without_values(constant: onnx.TensorProto) -> onnx.TensorProto:
    """Name, shape and type of a large constant; others as they are, since shapes may depend on them."""
    if constant.ByteSize() <= _LARGE_BYTES:
        return constant
    location = onnx.TensorProto.EXTERNAL
    return onnx.TensorProto(
        name=constant.name, dims=constant.dims, data_type=constant.data_type, data_location=location
    )


def _captured(graph: onnx.GraphProto) -> set[str]:
    """Tensors that a body, or one inside it, reads from outside."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {name for node in graph.node for name in node.output}
    read = {value.name for value in graph.output} | {name for node in graph.node for name in node.input if name}
    for node in graph.node:
        for body in bodies_of(node):
            read |= _captured(body)
    return read - own
