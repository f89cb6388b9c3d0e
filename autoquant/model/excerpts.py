"""A few nodes of a model as a model of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.fragments import at_least
from autoquant.model.graph import Graph, Node

__all__ = ["Excerpt", "NewNode", "excerpt", "new_excerpt"]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Nodes that can be run alone.

    Attributes:
        model: Serialized ModelProto, with its constants.
        shapes: Of its inputs, which are float32, by name.
    """

    model: bytes
    shapes: Mapping[TensorName, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class NewNode:
    """One that the model does not have.

    Attributes:
        op_type: A domain may be before it, as in ``com.microsoft:QuickGelu``.
        inputs: What it reads.
        output: What it writes.
        attributes: Of it.
    """

    op_type: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


_NOTHING: Mapping[int, Any] = MappingProxyType({})


def excerpt(
    graph: Graph,
    nodes: Sequence[Node],
    op_types: Mapping[int, str] = _NOTHING,
    attributes: Mapping[int, Mapping[str, str]] = _NOTHING,
) -> Excerpt | None:
    """These nodes alone; what others read too is an output.

    Args:
        graph: Whose nodes they are.
        nodes: In topological order.
        op_types: Other operators for some of them, by index.
        attributes: All attributes of some of them, by index, instead of their own.

    Returns:
        None where the shape of an input is not known, or its type is another than float32.
    """
    inside = {node.index for node in nodes}
    made = {name for node in nodes for name in node.outputs if name}
    read = dict.fromkeys(name for node in nodes for name in node.inputs if name and name not in made)
    shapes = {name: graph.shape(name) for name in read if not graph.is_constant(name)}
    known = {name: shape for name, shape in shapes.items() if shape is not None and graph.dtype(name) == "float32"}
    if len(known) < len(shapes):
        return None
    outputs = [name for name in made if name in graph.pinned or _is_read_outside(graph, name, inside)]
    protos = [graph.copy_of(node) for node in nodes]
    for node, proto in zip(nodes, protos, strict=True):
        proto.op_type = op_types.get(node.index, proto.op_type)
        if node.index in attributes:
            proto.ClearField("attribute")
            proto.attribute.extend(helper.make_attribute(*each) for each in attributes[node.index].items())
    model = helper.make_model(
        helper.make_graph(
            protos,
            "excerpt",
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in known.items()],
            [onnx.ValueInfoProto(name=name) for name in sorted(outputs)],
            [graph.constants[name] for name in read if graph.is_constant(name)],
        ),
        opset_imports=graph.model.opset_import,
        ir_version=graph.model.ir_version,
    )
    return Excerpt(model.SerializeToString(deterministic=True), known)


def new_excerpt(
    graph: Graph,
    shapes: Mapping[TensorName, tuple[int, ...]],
    nodes: Sequence[NewNode],
    constants: Mapping[str, npt.ArrayLike],
    opset: int = 0,
) -> Excerpt:
    """New nodes alone, at the opset of a model.

    Args:
        graph: Of the model.
        shapes: Of what is fed, float32, by name.
        nodes: In topological order; what the last one writes is the output.
        constants: What they read beside it, by name.
        opset: Which ONNX's own operators are to be of at least.
    """
    protos = []
    for node in nodes:
        domain, _, op_type = node.op_type.rpartition(":")
        protos.append(helper.make_node(op_type, node.inputs, [node.output], domain=domain, **node.attributes))
    own = {known.domain for known in graph.model.opset_import}
    others = {proto.domain for proto in protos} - {"", *own}
    model = helper.make_model(
        helper.make_graph(
            protos,
            "excerpt",
            [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()],
            [onnx.ValueInfoProto(name=nodes[-1].output)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        ),
        opset_imports=[
            *at_least(graph.model.opset_import, opset),
            *(helper.make_opsetid(domain, 1) for domain in sorted(others)),
        ],
        ir_version=graph.model.ir_version,
    )
    return Excerpt(model.SerializeToString(deterministic=True), shapes)


def _is_read_outside(graph: Graph, name: TensorName, inside: set[int]) -> bool:
    readers = graph.consumers.get(name, ())
    return not readers or any(reader.index not in inside for reader in readers)
