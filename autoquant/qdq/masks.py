"""Scores behind attention masks, which no range covers."""

from autoquant.domain.region import TensorName
from autoquant.domain.statistics import Statistics
from autoquant.model.graph import Graph

__all__ = ["masked"]

_MASKED = -1000.0
"""Of what a Softmax reads: the step of 8 bits over such a range is several times what halves a probability, and BERT's
exporters add -10000 to scores that don't count."""


def masked(graph: Graph, statistics: Statistics) -> frozenset[TensorName]:
    """Activations that held minus infinity or the least float, and scores that were pushed far below the others."""
    scores = {node.inputs[0] for node in graph.nodes if node.op_type in ("Softmax", "LogSoftmax")}
    found = (name for name in scores & statistics.tensors.keys() if statistics.tensors[name].minimum < _MASKED)
    return statistics.unbounded.union(found)
