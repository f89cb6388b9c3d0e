"""Outputs of integers that are rounded floats."""

from collections.abc import Sequence
from pathlib import Path

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph
from autoquant.model.io import load_skeleton, output_dtypes
from autoquant.model.ops import original_of
from autoquant.model.rewrite import infer_shapes

__all__ = ["number_outputs", "number_outputs_of"]

_KEEPING_WHOLE = frozenset({"Ceil", "Clip", "Floor", "Identity", "Round"})
"""Operators that make of whole numbers such ones again."""


def number_outputs(model: Model) -> frozenset[str]:
    """Outputs of integers that are floats before a Cast, as pixels and samples of sound: numbers, not labels.

    None where an output is of floats, which judges by itself. What was a label, an index or a truth value before it
    became a float stays one.
    """
    dtypes = output_dtypes(model)
    integers = [name for name, dtype in dtypes.items() if "int" in dtype]
    if not integers or any("float" in dtype for dtype in dtypes.values()):
        return frozenset()
    graph = Graph(infer_shapes(model))
    return frozenset(name for name in integers if _is_rounded(graph, TensorName(name)))


def number_outputs_of(path: Path, types: Sequence[str]) -> frozenset[str]:
    """The same of a file, which is read where it may have some.

    Args:
        path: Of the model.
        types: What onnxruntime calls the types of its outputs.

    Raises:
        ModelError: It cannot be read.
    """
    is_float = any("float" in each or "double" in each for each in types)
    return frozenset() if is_float else number_outputs(load_skeleton(path))


def _is_rounded(graph: Graph, tensor: TensorName) -> bool:
    cast = graph.producer.get(original_of(tensor, graph))
    if cast is None or cast.op_type != "Cast":
        return False
    source = original_of(cast.inputs[0], graph)
    while source in graph.producer and graph.producer[source].op_type in _KEEPING_WHOLE:
        source = original_of(graph.producer[source].inputs[0], graph)
    before = graph.producer.get(source)
    was_float = before is None or before.op_type != "Cast" or _is_float(graph, before.inputs[0])
    return _is_float(graph, cast.inputs[0]) and was_float


def _is_float(graph: Graph, tensor: TensorName) -> bool:
    return "float" in (graph.dtype(tensor) or "")
