"""Norms over the last axis that are written as nodes, which onnxruntime fuses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoquant.domain.region import TensorName

if TYPE_CHECKING:
    from autoquant.model.graph import Graph, Node

__all__ = ["Norm", "find_norms", "squares"]


@dataclass(frozen=True, slots=True)
class Norm:
    """``x / Sqrt(ReduceMean(x * x) + epsilon)``, of what has its mean subtracted or not.

    Attributes:
        source: What is normalised, which two of the nodes read.
        square: Index of the Pow or Mul.
        division: Index of the Div.
        scale: Index of the Mul by a vector behind it, without which onnxruntime fuses nothing; None without one.
        nodes: Indices of all, and of the Add of a bias behind what a mean was subtracted from.
    """

    source: TensorName
    square: int
    division: int
    scale: int | None
    nodes: frozenset[int]


def find_norms(graph: "Graph") -> tuple[Norm, ...]:
    """All in the main graph."""
    return tuple(_norms(graph))


def _norms(graph: "Graph") -> Iterator[Norm]:
    for division in graph.nodes:
        chain = _root_of_mean(graph, division) if division.op_type == "Div" else []
        if chain:
            centred = _centring(graph, division.inputs[0])
            scale = _vector_behind(graph, division, "Mul")
            bias = _vector_behind(graph, scale, "Add") if scale is not None and centred else None
            yield Norm(
                source=centred[-1].inputs[0] if centred else division.inputs[0],
                square=chain[-1].index,
                division=division.index,
                scale=None if scale is None else scale.index,
                nodes=frozenset(n.index for n in (division, *chain, *centred, scale, bias) if n is not None),
            )


def _root_of_mean(graph: "Graph", division: "Node") -> "list[Node]":
    """Sqrt, Add, ReduceMean and square by which a Div divides what is squared; empty where it is anything else."""
    root = _alone(graph, division.inputs[1], "Sqrt")
    total = _alone(graph, root.inputs[0], "Add") if root is not None else None
    if root is None or total is None:
        return []
    summands = [name for name in total.inputs if not graph.is_constant(name)]
    mean = _alone(graph, summands[0], "ReduceMean") if len(summands) == 1 else None
    is_one = all(graph.constant(name).size == 1 for name in total.inputs if graph.is_constant(name))
    if mean is None or not is_one or not _is_over_last(graph, mean):
        return []
    square = graph.producer.get(mean.inputs[0])
    if square is None or graph.only_reader(square.outputs[0]) is None or not squares(graph, square):
        return []
    return [root, total, mean, square] if square.inputs[0] == division.inputs[0] else []


def _centring(graph: "Graph", tensor: TensorName) -> "list[Node]":
    """Sub and ReduceMean by which a norm reads deviations from the mean; empty where it does not."""
    sub = graph.producer.get(tensor)
    if sub is None or sub.op_type != "Sub" or len(graph.consumers[tensor]) > 2 or tensor in graph.pinned:
        return []
    mean = _alone(graph, sub.inputs[1], "ReduceMean")
    is_own = mean is not None and mean.inputs[0] == sub.inputs[0] and _is_over_last(graph, mean)
    return [sub, mean] if mean is not None and is_own else []


def _alone(graph: "Graph", tensor: TensorName, op_type: str) -> "Node | None":
    """The node of this type that makes a tensor for one reader."""
    node = graph.producer.get(tensor)
    return node if node is not None and node.op_type == op_type and graph.only_reader(tensor) is not None else None


def squares(graph: "Graph", node: "Node") -> bool:
    """Whether a node multiplies a tensor with itself."""
    if node.op_type == "Mul":
        return node.inputs[0] == node.inputs[1]
    exponent = node.inputs[1] if node.op_type == "Pow" else ""
    is_number = bool(exponent) and graph.is_constant(TensorName(exponent)) and graph.constant(node.inputs[1]).size == 1
    return is_number and float(graph.constant(node.inputs[1]).reshape(())) == 2.0


def _is_over_last(graph: "Graph", mean: "Node") -> bool:
    """Whether a ReduceMean is over the last axis alone, which it keeps."""
    axes = mean.attributes.get("axes")
    if axes is None and len(mean.inputs) > 1 and graph.is_constant(mean.inputs[1]):
        axes = graph.constant(mean.inputs[1]).ravel().tolist()
    last = (-1, graph.rank(mean.inputs[0]) - 1)
    return axes is not None and len(axes) == 1 and axes[0] in last and bool(mean.attributes.get("keepdims", 1))


def _vector_behind(graph: "Graph", node: "Node", op_type: str) -> "Node | None":
    """The only reader of a node, where it multiplies by or adds a vector."""
    reader = graph.only_reader(node.outputs[0])
    if reader is None or reader.op_type != op_type:
        return None
    others = [name for name in reader.inputs if name != node.outputs[0]]
    return reader if len(others) == 1 and graph.rank(others[0]) == 1 else None
