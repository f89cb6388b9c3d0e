"""Floats that say how large tensors are."""

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node

__all__ = ["is_size"]

_SIZES = {
    "CenterCropPad": {1},
    "ConstantOfShape": {0},
    "Expand": {1},
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
    """Whether a tensor counts for nothing but sizes and positions: rounding it would change the shapes of others.

    Every way on from it that does not just end leads, through arithmetic and casts, to an input that says how large
    something shall be.
    """
    seen, left, is_read = {tensor}, [tensor], False
    while left:
        name = left.pop()
        if name in graph.pinned:
            return False
        for reader in graph.consumers.get(name, ()):
            if _is_size_of(name, reader):
                is_read = True
                continue
            if reader.op_type not in _ARITHMETIC:
                return False
            left += [out for out in reader.outputs if out and out not in seen]
            seen.update(reader.outputs)
    return is_read


def _is_size_of(tensor: TensorName, reader: Node) -> bool:
    positions = {i for i, name in enumerate(reader.inputs) if name == tensor}
    return positions <= _SIZES.get(reader.op_type, set())
