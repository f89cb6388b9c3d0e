"""What is said of outputs that choose among results: a result more or less, or in another place, is another one."""

import math
from collections.abc import Collection, Iterator

from autoquant.domain.counted import enumerated
from autoquant.domain.region import TensorName
from autoquant.graph.likeness import Reference
from autoquant.model.graph import Graph, Node, subgraph_reads

__all__ = ["chosen_notes", "varying_notes"]

_CHOOSING = ("NonMaxSuppression", "TopK")
"""Operators that choose among results and put them in order."""
_COUNTING = {"Compress": slice(1, 2), "If": slice(1), "Loop": slice(None), "NonZero": slice(1), "Unique": slice(1)}
"""Operators that write more or fewer elements for other values, and of which inputs."""
_FLOATS = ("float16", "float32", "float64")


def chosen_notes(graph: Graph) -> Iterator[str]:
    """Of operators behind which results change places, and the outputs that they are in unless all are."""
    choosing = _choosing(graph)
    behind = _behind(graph, {name for node in choosing for name in node.outputs if name})
    outputs = [output.name for output in graph.model.graph.output]
    chosen = [f"'{name}'" for name in outputs if name in behind]
    if choosing:
        op_types = " and ".join(op_type for op_type in _CHOOSING if any(node.op_type == op_type for node in choosing))
        which = f", in {enumerated(chosen)}," if 0 < len(chosen) < len(outputs) else ""
        yield (
            f"SNR compares outputs element by element, so that behind {op_types}{which} a result more or less, or two"
            f" that change places, count as noise: cut the model before '{choosing[0].name}', or judge by a metric of"
            " your own"
        )


def varying_notes(graph: Graph, reference: Reference) -> Iterator[str]:
    """Of outputs whose number of elements depends on the values of the inputs, where nothing was said of it yet."""
    if _choosing(graph):
        return
    changing = _behind(graph, _sized(graph))
    given = [{name: array.shape for name, array in feed.items()} for feed in reference.feeds]
    alike = [outputs for shapes, outputs in zip(given, reference.outputs, strict=True) if shapes == given[0]]
    varying = [
        f"'{value.name}'"
        for value, *arrays in zip(graph.model.graph.output, *alike, strict=True)
        if len({array.shape for array in arrays}) > 1 and value.name in changing
    ]
    if varying:
        yield (
            f"the shape of {enumerated(varying)} depends on the values of the inputs: where a candidate's is another"
            " one nothing can be compared, and its SNR is -inf dB, or, of outputs without one, no element counts as"
            " equal; cut the model before what chooses, or judge by a metric of your own"
        )


def _choosing(graph: Graph) -> list[Node]:
    """Those whose choice a candidate can change: lengths that are put in order are the same in all of them."""
    rounded = _rounded(graph)
    return [node for node in graph.nodes if node.op_type in _CHOOSING and not rounded.isdisjoint(node.inputs)]


def _rounded(graph: Graph) -> set[TensorName]:
    """What may be another number in a candidate: floats that are given or looked up, and what is computed of them."""
    floats = {name for name in graph.inputs if graph.dtype(name) in _FLOATS}
    for node in graph.nodes:
        constants = (name for name in node.inputs if name and graph.is_constant(name))
        if any(graph.dtype(name) in _FLOATS and math.prod(graph.shape(name) or ()) > 1 for name in constants):
            floats.update(name for name in node.outputs if name in graph.float_tensors)
    return _behind(graph, floats)


def _sized(graph: Graph) -> set[TensorName]:
    """Written by nodes of which a candidate may change how many elements that is."""
    rounded, found = _rounded(graph), set[TensorName]()
    for node in graph.nodes:
        bodies = subgraph_reads(graph.model.graph.node[node.index]) if node.op_type == "Loop" else ()
        counted = {*node.inputs[_COUNTING.get(node.op_type, slice(0))], *map(TensorName, bodies)}
        if rounded & (counted | (graph.size_tensors & set(node.inputs))):
            found.update(name for name in node.outputs if name)
    return found


def _behind(graph: Graph, tensors: Collection[TensorName]) -> set[TensorName]:
    """These and all that is computed of them."""
    found = set(tensors)
    for node in graph.nodes:
        if not found.isdisjoint((*node.inputs, *subgraph_reads(graph.model.graph.node[node.index]))):
            found.update(name for name in node.outputs if name)
    return found
