"""Scores behind attention masks, which no range covers."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import MASK, Statistics
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, clip_bounds, kind_of, original_of

__all__ = ["Why", "masked"]

_FAR = 1000.0
"""Of what a Softmax reads: the step of 8 bits over such a range is several times what halves a probability, and BERT's
exporters add -10000 to scores that don't count, those of XLNet subtract 1e30."""
_CARRYING = frozenset(
    {"Add", "Concat", "Expand", "Flatten", "Gather", "Identity", "Max", "Mul", "Neg", "Reshape", "Slice", "Split"}
    | {"Squeeze", "Sub", "Tile", "Transpose", "Unsqueeze", "Where"}
)
"""Operators that masks are made with, and put on scores with."""
_COPYING = frozenset({"Expand", "Gather", "Identity", "Tile"})
_TAKING = _CARRYING - {"Gather", "Max"}
"""Those whose constants may be masks; others are tables and bounds."""


class Why(StrEnum):
    """Why no range covers an activation; the value goes on a sentence that names it."""

    INFINITE = "it holds infinities, NaN, or the largest floats, which stand for infinities"
    MASKED = "it holds values far below all others before a softmax, as attention masks make"
    UNUSED = "it holds nothing but zeros in all samples, or nothing at all"


def masked(graph: Graph, statistics: Statistics) -> Mapping[TensorName, Why]:
    """Activations that hold infinities, the least or the largest float, and scores pushed far below the others.

    Seen in calibration, or computed from a constant that holds such values: samples need not be padded. Inputs that are
    empty or zero in all samples, as the first states of a recurrence, are as unknown.
    """
    scores = {node.inputs[0] for node in graph.nodes if node.op_type in ("Softmax", "LogSoftmax")}
    originals = {original_of(name, graph) for name in scores}
    far = {name for name, found in statistics.tensors.items() if found.minimum < -_FAR}
    seen = {name for name in far if original_of(name, graph) in originals}
    pushed = _computed_from(graph, _FAR) & _leading_to(scores, graph)
    held = {name for name in statistics.unbounded if statistics.tensors[name].n_masked}
    found = (
        dict.fromkeys((statistics.unbounded - held) | _unused(graph, statistics), Why.UNUSED)
        | dict.fromkeys(seen | (pushed & graph.float_tensors), Why.MASKED)
        | dict.fromkeys(held | (_computed_from(graph, MASK) & graph.float_tensors), Why.INFINITE)
    )
    return found | {
        node.inputs[0]: found[node.outputs[0]]  # which was not observed, as nothing is quantized before the clip
        for node in graph.nodes
        if kind_of(node) is Kind.CLIPPING and node.outputs[0] in found and node.inputs[0] not in statistics.tensors
    }


def _unused(graph: Graph, statistics: Statistics) -> set[TensorName]:
    """Inputs of the model that held nothing but zeros, as they are or cast, and what only moves them."""
    cast = [node.outputs[0] for node in graph.nodes if node.op_type == "Cast" and node.inputs[0] in graph.inputs]
    entering = [name for name in (*graph.inputs, *cast) if name in statistics.tensors]
    found = {name for name in entering if not statistics.tensors[name].limit}
    for node in graph.nodes:
        if node.inputs and node.inputs[0] in found and (kind_of(node) is Kind.SAME_RANGE or node.op_type in _COPYING):
            found.update(name for name in node.outputs if name)
    return found


def _computed_from(graph: Graph, limit: float) -> set[TensorName]:
    """What operators of masks compute from constants that hold values of this magnitude or more."""
    found: set[TensorName] = set()
    for node in graph.nodes:
        if _carries(node, limit, graph) and (
            any(name in found for name in node.inputs) or (node.op_type in _TAKING and _holds(node, limit, graph))
        ):
            found.update(name for name in node.outputs if name)
    return found


def _carries(node: Node, limit: float, graph: Graph) -> bool:
    """Whether masks of this magnitude may come through; a Clip may let them pass."""
    bounds = clip_bounds(node, graph) if node.op_type == "Clip" else None
    return node.op_type in _CARRYING or (bounds is not None and bounds[0] <= -limit)


def _holds(node: Node, limit: float, graph: Graph) -> bool:
    """Whether a float constant that a node reads holds a value of this magnitude or more."""
    constants = (graph.constant(name) for name in node.inputs if graph.is_constant(name))
    return any(
        values.dtype.kind == "f" and values.size and float(np.abs(values).max()) >= limit for values in constants
    )


def _leading_to(tensors: set[TensorName], graph: Graph) -> set[TensorName]:
    """These tensors and those that operators of masks compute them from."""
    found = set(tensors)
    for node in reversed(graph.nodes):
        if _carries(node, _FAR, graph) and any(name in found for name in node.outputs):
            found.update(node.inputs)
    return found
