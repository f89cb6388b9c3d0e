"""Attention between projections, which an operator of ONNX computes without moving heads: decision 0072."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.attentions import LOWEST, Attention
from autoquant.model.excerpts import Excerpt, NewNode, excerpt, new_excerpt
from autoquant.model.graph import Graph, Node
from autoquant.model.opsets import ATTENTION
from autoquant.qdq.parts import Parts

__all__ = ["attention_excerpts", "write_attention"]

_Value = tuple[int, ...] | np.float32


def write_attention(
    parts: Parts, graph: Graph, found: Attention, read: Callable[[TensorName, Node], str], target: str
) -> None:
    """Add the operator under the name of the product with the values, and what gives its operands their shapes.

    References:
        https://onnx.ai/onnx/operators/onnx__Attention.html
    """
    parts.need_opset(ATTENTION)
    nodes, constants = _spelled(graph, found, [read(*each) for each in found.read], target)
    for name, values in constants.items():
        parts.new_constant(name, values)
    for node in nodes:
        if node.op_type not in ("Expand", "Max") or parts.is_new(("mask", node.output)):
            is_it = node.op_type == "Attention"
            name = found.nodes[-2].name if is_it else parts.pieces.free_node(f"{node.output}_{node.op_type}")
            parts.node(node.op_type, node.inputs, [node.output], name, **node.attributes)


def attention_excerpts(graph: Graph, attentions: Mapping[int, Attention]) -> tuple[Excerpt, Excerpt] | None:
    """The one with most scores alone, as it is and as one operator; None without any, or where it reads no floats."""
    if not attentions:
        return None
    largest = max(attentions.values(), key=lambda each: math.prod(each.shape))
    plain = excerpt(graph, largest.nodes)
    if plain is None:
        return None
    names = [str(tensor) for tensor, _ in largest.read]
    nodes, constants = _spelled(graph, largest, names, largest.nodes[-1].outputs[0])
    constants |= {str(tensor): graph.constant(tensor) for tensor, _ in largest.read if graph.is_constant(tensor)}
    return plain, new_excerpt(graph, plain.shapes, nodes, constants, opset=ATTENTION)


def _spelled(
    graph: Graph, found: Attention, names: Sequence[str], target: str
) -> tuple[list[NewNode], dict[str, npt.NDArray[np.generic]]]:
    """The operator, for which heads lie beside each other, between what gives tensors other shapes.

    Args:
        graph: Of the model.
        found: What is computed.
        names: Of what ``found.read`` names.
        target: What is written.

    Returns:
        The nodes, and constants that they read.
    """
    nodes: list[NewNode] = []
    constants: dict[str, npt.NDArray[np.generic]] = {}

    def add(op_type: str, source: str, output: str, operand: _Value) -> str:
        name = graph.free_name(f"{output}_operand")
        constants[name] = np.asarray(operand)
        nodes.append(NewNode(op_type, (source, name), output))
        return output

    base, (_, n_heads, n_queries, n_keys) = found.nodes[-2].name, found.shape
    inputs = []
    for role, name, operand in zip("QKV", names, found.operands, strict=False):
        batch, length, _, size = operand.shape
        joined = graph.free_name(f"{base}_{role}")
        inputs.append(add("Reshape", name, joined, (batch, length, n_heads * size)))
    for mask in names[len(inputs) :]:
        finite = mask if found.has_empty_rows else add("Max", mask, graph.free_name(f"{mask}_finite"), LOWEST)
        whole = graph.free_name(f"{finite}_of_{n_queries}_{n_keys}")
        is_whole = found.scores.mask_sizes[2:] == (n_queries, n_keys)
        inputs.append(finite if is_whole else add("Expand", finite, whole, (1, 1, n_queries, n_keys)))
    joined = graph.free_name(f"{base}_joined")
    attributes = {"q_num_heads": n_heads, "kv_num_heads": n_heads, "scale": found.scale}
    nodes.append(NewNode("Attention", tuple(inputs), joined, attributes))
    add("Reshape", joined, target, graph.shape(found.nodes[-1].outputs[0]) or ())
    return nodes, constants
