"""Attention between projections, which an operator of ONNX computes without moving heads: decision 0072."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.attentions import LOWEST, OPERANDS, Attention
from autoquant.model.excerpts import Excerpt, NewNode, excerpt, new_excerpt
from autoquant.model.graph import Graph, Node
from autoquant.model.lengths import at_lengths
from autoquant.model.opsets import ATTENTION
from autoquant.qdq.parts import Parts

__all__ = ["attention_excerpts", "write_attention"]

_Value = tuple[int, ...] | np.float32
_OF_MASKS = frozenset({"Concat", "Expand", "Max", "Shape"})
"""What is written once for all attentions with a mask."""


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
        if node.op_type not in _OF_MASKS or parts.is_new(("mask", node.output)):
            is_it = node.op_type == "Attention"
            name = found.nodes[-2].name if is_it else parts.pieces.free_node(f"{node.output}_{node.op_type}")
            parts.node(node.op_type, node.inputs, [node.output], name, **node.attributes)


def attention_excerpts(graph: Graph, attentions: Mapping[int, Attention]) -> tuple[Excerpt, Excerpt] | None:
    """The one with most scores alone, as it is and as one operator; None without any, or where it reads no floats."""
    if not attentions:
        return None
    largest = max(attentions.values(), key=lambda each: math.prod(each.shape))
    graph = graph if largest.longer is None else at_lengths(graph)[0]
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

    def widened(mask: str) -> str:
        """A mask with a row for each query and a column for each key."""
        sizes = found.sizes("scores")[2:]
        names = [str(size) if size > 0 else f"n{there}" for size, there in zip(sizes, found.shape[2:], strict=True)]
        whole = graph.free_name("_".join((mask, "of", *names)))
        if -1 not in sizes:
            return add("Expand", mask, whole, (1, 1, *sizes))
        lengths = [graph.free_name(f"{whole}_{end}") for end in ("queries", "keys")]
        for source, length in zip(inputs, lengths, strict=False):
            nodes.append(NewNode("Shape", (source,), length, {"start": 1, "end": 2}))
        ones, shape = graph.free_name(f"{whole}_ones"), graph.free_name(f"{whole}_shape")
        constants[ones] = np.ones(2, np.int64)
        nodes.append(NewNode("Concat", (ones, *lengths), shape, {"axis": 0}))
        nodes.append(NewNode("Expand", (mask, shape), whole))
        return whole

    base, (_, n_heads, _, _) = found.nodes[-2].name, found.shape
    inputs = []
    for role, name in zip(OPERANDS, names, strict=False):
        batch, length, _, size = found.sizes(role)
        joined = graph.free_name(f"{base}_{role[0].upper()}")
        inputs.append(add("Reshape", name, joined, (batch, length, n_heads * size)))
    for mask in names[len(inputs) :]:
        finite = mask if found.has_empty_rows else add("Max", mask, graph.free_name(f"{mask}_finite"), LOWEST)
        inputs.append(finite if found.has_whole_mask else widened(finite))
    joined = graph.free_name(f"{base}_joined")
    attributes = {"q_num_heads": n_heads, "kv_num_heads": n_heads, "scale": found.scale}
    nodes.append(NewNode("Attention", tuple(inputs), joined, attributes))
    add("Reshape", joined, target, found.sizes("written"))
    return nodes, constants
