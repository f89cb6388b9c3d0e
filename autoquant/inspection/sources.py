"""Where the Q and DQ of a node are, past what only moves values."""

from dataclasses import dataclass

from autoquant.domain.region import TensorName
from autoquant.inspection.kernels import base_op
from autoquant.model.graph import Graph, Node

__all__ = ["PASSED", "Source", "dequantizer", "moved", "source_of"]

PASSED = ("Cast", "MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators that are looked past.

onnxruntime moves Q and DQ of activations past all but Cast (QDQPropagationTransformer), and the DequantizeLinear of a
constant past no other than Transpose, which it folds.
"""


@dataclass(frozen=True, slots=True)
class Source:
    """A DequantizeLinear that an input comes from.

    Attributes:
        node: The DequantizeLinear.
        is_constant: Whether it reads a constant, or what is computed from constants alone.
        between: What changes its values or their places before the input, in that order.
    """

    node: Node
    is_constant: bool
    between: tuple[Node, ...]

    def axes(self, rank: int) -> tuple[int, ...] | None:
        """Which axis of the dequantized tensor each axis of the input is; None where that is not known."""
        if not rank or any(node.op_type != "Transpose" for node in self.between):
            return None
        axes = tuple(range(rank))
        for node in self.between:
            axes = tuple(axes[i] for i in node.attributes.get("perm", range(rank)[::-1]))
        return axes


def source_of(tensor: TensorName, graph: Graph) -> Source | None:
    """The DequantizeLinear that a tensor comes from; a Cast to another type is passed on the way to a constant only."""
    between: list[Node] = []
    node = graph.producer.get(tensor)
    while node is not None and node.op_type in (*PASSED, "Identity"):
        if not _is_idle(node, graph):
            between.insert(0, node)
        node = graph.producer.get(node.inputs[0])
    if node is None or base_op(node) != "DequantizeLinear":
        return None
    is_constant = graph.is_known(node.inputs[0])
    is_lost = not is_constant and any(passed.op_type == "Cast" for passed in between)
    return None if is_lost else Source(node, is_constant, tuple(between))


def dequantizer(tensor: TensorName, graph: Graph) -> Node | None:
    """The node of that source."""
    source = source_of(tensor, graph)
    return source.node if source is not None else None


def moved(tensor: TensorName, graph: Graph) -> TensorName:
    """What becomes of a tensor that only operators read past which onnxruntime moves a QuantizeLinear, one by one."""
    reader = graph.only_reader(tensor)
    while reader is not None and reader.op_type in PASSED and reader.op_type != "Cast" and reader.inputs[0] == tensor:
        tensor = reader.outputs[0]
        reader = graph.only_reader(tensor)
    return tensor


def _is_idle(node: Node, graph: Graph) -> bool:
    if node.op_type == "Cast":
        return graph.dtype(node.inputs[0]) == graph.dtype(node.outputs[0])
    return node.op_type == "Identity"
