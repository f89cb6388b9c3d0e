"""Outputs of integers that are rounded floats."""

from pathlib import Path

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.io import load_any, load_skeleton, output_dtypes
from autoquant.model.ops import LINEAR, VIEWS
from autoquant.model.rewrite import infer_shapes, inline_functions

__all__ = ["number_outputs", "number_outputs_of"]

_KEEPING = frozenset({*VIEWS, "Clip", "Identity", "Slice", "Transpose"})
"""Operators that put out values of their first input, or their limits."""
_SMOOTH = frozenset(
    {
        *("Abs", "Add", "BatchNormalization", "Ceil", "Concat", "DepthToSpace", "Div", "Exp", "Floor", "HardSigmoid"),
        *("HardSwish", "LeakyRelu", "Log", "Max", "MaxPool", "Min", "Mul", "Neg", "PRelu", "Pad", "Pow", "Reciprocal"),
        *("Relu", "Resize", "Round", "Sigmoid", "SpaceToDepth", "Split", "Sqrt", "Sub", "Sum", "Tanh", "Upsample"),
    }
)
"""Operators that make numbers of numbers, and of labels something that tells these apart still."""
_MEANS = frozenset({*LINEAR, "AveragePool", "GlobalAveragePool", "InstanceNormalization", "LayerNormalization"})
"""Operators whose outputs are numbers whatever their inputs are."""


def number_outputs(model: Model) -> frozenset[str]:
    """Outputs of integers that are floats before a Cast, as pixels and samples of sound: numbers, not labels.

    None where an output is of floats, which judges by itself. Behind comparisons, choices and rows that were looked up
    are labels, also where they became floats before.
    """
    dtypes = output_dtypes(model)
    integers = [name for name, dtype in dtypes.items() if "int" in dtype]
    if not integers or any("float" in dtype for dtype in dtypes.values()):
        return frozenset()
    graph = Graph(infer_shapes(inline_functions(model)))
    return frozenset(name for name in integers if _is_rounded(graph, TensorName(name)))


def number_outputs_of(path: Path) -> frozenset[str]:
    """The same of a file.

    Raises:
        ModelError: It cannot be read.
    """
    if any("float" in dtype for dtype in output_dtypes(load_skeleton(path)).values()):
        return frozenset()
    return number_outputs(load_any(path))


def _is_rounded(graph: Graph, tensor: TensorName) -> bool:
    cast = graph.producer.get(tensor)
    while cast is not None and (cast.op_type in _KEEPING or _casts(graph, cast, "int")):
        cast = graph.producer.get(cast.inputs[0])
    return cast is not None and _casts(graph, cast, "float") and _is_number(graph, cast.inputs[0])


def _is_number(graph: Graph, tensor: TensorName) -> bool:
    """Whether a float is computed of floats, by what makes numbers alone, up to the inputs of the graph."""
    waiting, seen = [tensor], set[TensorName]()
    while waiting:
        name = waiting.pop()
        node = graph.producer.get(name)
        if name in seen or graph.is_constant(name):
            continue
        seen.add(name)
        if node is None:
            if "float" not in (graph.dtype(name) or ""):
                return False
        elif node.op_type in _KEEPING:
            waiting.append(node.inputs[0])
        elif node.op_type in _SMOOTH or _casts(graph, node, "float"):
            waiting.extend(filter(None, node.inputs))
        elif node.op_type not in _MEANS:
            return False
    return True


def _casts(graph: Graph, node: Node, kind: str) -> bool:
    """Whether it is a Cast of this kind of numbers."""
    return node.op_type == "Cast" and kind in (graph.dtype(node.inputs[0]) or "")
