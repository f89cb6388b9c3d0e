"""Floats that say how large tensors are."""

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node

__all__ = ["is_size"]

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


def is_size(tensor: TensorName, graph: Graph) -> bool:
    """Whether a tensor is a size or position, whatever else it is: rounding it would change the shapes of others.

    Some way on from it leads, through arithmetic and casts alone, to an input that says how large something shall be.
    """
    seen, left = {tensor}, [tensor]
    while left:
        name = left.pop()
        for reader in graph.consumers.get(name, ()):
            if _is_size_of(name, reader):
                return True
            if reader.op_type in _ARITHMETIC:
                left += [out for out in reader.outputs if out and out not in seen]
                seen.update(reader.outputs)
    return False


def _is_size_of(tensor: TensorName, reader: Node) -> bool:
    return any(reader.inputs[i] == tensor for i in _SIZES.get(reader.op_type, ()) if i < len(reader.inputs))
