"""Floats that say how large tensors are, or follow from it."""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from autoquant.domain.region import TensorName

if TYPE_CHECKING:
    from autoquant.model.graph import Node

__all__ = ["position_tensors", "size_tensors"]

_SIZES = {
    "CenterCropPad": {1},
    "ConstantOfShape": {0},
    "Expand": {1},
    "Loop": {0},
    "OneHot": {1},
    "Pad": {1, 3},
    "Range": {0, 1, 2},
    "Reshape": {1},
    "Resize": {1, 2, 3},
    "Slice": {1, 2, 3, 4},
    "Split": {1},
    "Tile": {1},
    "TopK": {1},
}
"""Positions of the inputs that are, or count or bound, dimensions of the output."""
# fmt: off
_ARITHMETIC = frozenset({
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "Div", "Equal", "Expand", "Floor", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow",
    "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Sign", "Slice",
    "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tile", "Transpose", "Unsqueeze", "Where",
})
# fmt: on
"""Operators that sizes are computed with."""
_DISCRETE = frozenset(
    {"And", "ArgMax", "ArgMin", "Compress", "Equal", "Greater", "GreaterOrEqual", "If", "IsInf", "IsNaN", "Less"}
    | {"LessOrEqual", "Loop", "NonMaxSuppression", "NonZero", "Not", "Or", "Scan", "Shape", "Size", "TopK", "Unique"}
)
"""Operators whose results another value may leave as they are; of bodies that is not known."""
_COUNTING = frozenset({"Shape", "Size"})
_GROWING = _ARITHMETIC | {"CumSum", "Einsum", "Gemm", "MatMul", "NonZero", "Range"}
"""Operators whose results grow with sizes; a table, a sine or a norm has bounds whatever it is read by."""
_SUMMING = frozenset({"CumSum", "NonZero", "ReduceSum"})
"""Of these, those whose results grow with the size of what they read."""
_COMPARING = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Sign"})
_MOVING = frozenset({"Expand", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"})
"""Of these, those of which the first input alone is in the results."""


def position_tensors(nodes: Sequence["Node"], constants: Container[TensorName]) -> frozenset[TensorName]:
    """Numbers of positions and what is computed of them: sizes and constants alone are in them, and no bounds.

    So the angles of position encodings are computed where lengths are not known. They grow with the length: a range
    that holds those of the samples does not hold those of longer ones. A share of a size does not grow with it, nor
    what a comparison gives, or a constant as often as there are positions.

    Args:
        nodes: In topological order.
        constants: Names of those.
    """
    found, bounded = set[TensorName](), set[TensorName]()
    for node in nodes:
        is_known = all(name in found or name in bounded or name in constants for name in node.inputs if name)
        if node.op_type in _COUNTING or (node.op_type in _GROWING and is_known and _grows(node, found, bounded)):
            found.update(name for name in node.outputs if name)
        elif node.op_type == "ConstantOfShape" or (node.op_type in _GROWING and is_known):
            bounded.update(name for name in node.outputs if name)
    return frozenset(found)


def _grows(node: "Node", found: Container[TensorName], bounded: Container[TensorName]) -> bool:
    """Whether results grow with what is ``found``, or with how much there is of what is ``bounded``."""
    read = [name for name in node.inputs[: 1 if node.op_type in _MOVING else None] if name]
    if node.op_type in _COMPARING or (node.op_type == "Div" and all(name in found for name in read)):
        return False
    return any(name in found or (name in bounded and node.op_type in _SUMMING) for name in read)


def size_tensors(nodes: Sequence["Node"]) -> frozenset[TensorName]:
    """What is a size or position, whatever else it is: rounding it would change the shapes of other tensors.

    Some way on from it leads, through arithmetic and casts alone, to an input that says how large something shall be;
    or through any operators but those that compare and choose, as from the layers that predict how long a sound is.

    Args:
        nodes: In topological order; those in the body of a node come after it.
    """
    found, exact = set[TensorName](), set[TensorName]()
    for node in reversed(nodes):
        sizes = {node.inputs[i] for i in _SIZES.get(node.op_type, ()) if i < len(node.inputs) and node.inputs[i]}
        read = {name for name in node.inputs if name}
        if node.op_type not in _DISCRETE and not exact.isdisjoint(node.outputs):
            exact |= read
        if node.op_type in _ARITHMETIC and not found.isdisjoint(node.outputs):
            found |= read
        exact |= sizes
        found |= sizes
    return frozenset(found | exact)
