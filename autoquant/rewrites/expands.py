"""Tensors that are repeated to a shape which their readers repeat them to anyway."""

from collections.abc import Mapping

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.rewrites.sources import with_sources

__all__ = ["drop_expands"]

_BROADCASTING = frozenset(
    {
        *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul"),
        *("Or", "Pow", "Sub", "Where", "Xor"),
    }
)


def drop_expands(model: Model) -> Model:
    """What an Expand reads is read by its readers, where all of them broadcast to the same shape without it.

    So exporters write norms of vectors and gates that a network expands itself.
    """
    graph, sources = graph_of(model), dict[TensorName, TensorName]()
    for node in graph.nodes:
        if node.op_type == "Expand" and node.outputs[0] not in graph.pinned and _is_idle(graph, node, sources):
            sources[node.outputs[0]] = node.inputs[0]
    return with_sources(model, sources)


def _is_idle(graph: Graph, expand: Node, sources: Mapping[TensorName, TensorName]) -> bool:
    """Whether all readers write what they do, in the same shape, where they and earlier ones read sources."""
    readers, dropped = graph.consumers.get(expand.outputs[0], ()), {**sources, expand.outputs[0]: expand.inputs[0]}
    for reader in readers:
        shapes = [graph.shape(dropped.get(name, name)) for name in reader.inputs]
        known = [shape for shape in shapes if shape is not None]
        if reader.op_type not in _BROADCASTING or len(known) < len(shapes):
            return False
        if np.broadcast_shapes(*known) != graph.shape(reader.outputs[0]):
            return False
    return bool(readers)
