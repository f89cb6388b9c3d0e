"""Masks that hide nothing, and what attention does for rows of which they hide all."""

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import is_float_constant
from autoquant.rewrites.sources import with_sources

__all__ = ["drop_idle_masks"]


def drop_idle_masks(model: Model) -> Model:
    """An Add of zeros, and a choice of zeros where a Softmax of what nothing masks gave no number, are left out.

    PyTorch's newer exporter writes both for ``scaled_dot_product_attention`` without a mask. A Softmax has no number to
    give where a whole row is minus infinity, as masks make it, and where products of finite numbers overflow: there a
    model without the choice gives none.
    """
    graph = graph_of(model)
    found: dict[TensorName, TensorName] = {}
    for node in graph.nodes:
        source = _added_to(graph, node) or _chosen(graph, node)
        if source and node.outputs[0] not in graph.pinned:
            found[node.outputs[0]] = source
    return with_sources(model, found)


def _added_to(graph: Graph, node: Node) -> TensorName:
    """What a node adds zeros to, in the same shape; empty where it doesn't."""
    if node.op_type == "Add":
        for source, zeros in (node.inputs, node.inputs[::-1]):
            shape = graph.shape(source)
            if _is_zero(graph, zeros) and shape is not None and shape == graph.shape(node.outputs[0]):
                return source
    return TensorName("")


def _chosen(graph: Graph, node: Node) -> TensorName:
    """The Softmax that a node takes but where it is no number, which is nowhere; empty where it does other things."""
    if node.op_type != "Where":
        return TensorName("")
    condition, zero, source = node.inputs
    asked, softmax = graph.producer.get(condition), graph.producer.get(source)
    if asked is None or asked.op_type != "IsNaN" or asked.inputs[0] != source:
        return TensorName("")
    is_scalar = _is_zero(graph, zero) and graph.constant(zero).size == 1 and graph.rank(zero) <= graph.rank(source)
    is_plain = softmax is not None and softmax.op_type == "Softmax" and not _is_masked(graph, softmax.inputs[0])
    return source if is_scalar and is_plain else TensorName("")


def _is_masked(graph: Graph, scores: TensorName) -> bool:
    """Whether a tensor may be other than sums of products, scaled by constants and with small ones added."""
    node = graph.producer.get(scores)
    while node is not None and node.op_type in ("Add", "Div", "Mul"):
        free = [name for name in node.inputs if not graph.is_constant(name)]
        if len(free) != 1 or not _are_small(graph, node):
            return True
        if node.op_type == "Div" and (free[0] != node.inputs[0] or not graph.constant(node.inputs[1]).all()):
            return True
        node = graph.producer.get(free[0])
    return node is None or node.op_type != "MatMul" or not _are_small(graph, node)


def _are_small(graph: Graph, node: Node) -> bool:
    """Whether no constant that a node reads holds infinities, or what stands for them in masks."""
    return all(is_float_constant(name, graph) for name in node.inputs if graph.is_constant(name))


def _is_zero(graph: Graph, name: TensorName) -> bool:
    return graph.is_constant(name) and graph.constant(name).dtype == np.float32 and not graph.constant(name).any()
