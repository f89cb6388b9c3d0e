"""How much memory activations take."""

import math
from collections.abc import Mapping, Sequence

from autoquant.domain.feed import Feed, shapes_of
from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.rewrite import freeze, infer_shapes

__all__ = ["activation_bytes"]

_N_LOOKED_AT = 32
"""Samples: to read all of them may take longer than there is time for."""


def activation_bytes(graph: Graph, feeds: Sequence[Feed]) -> Mapping[TensorName, int]:
    """Bytes of inputs and activations in the largest sample, as if all were float32.

    What has no shape even then, as the output of NonZero, counts as the largest activation that its node reads.

    Args:
        graph: Of a prepared model.
        feeds: Samples; some of them, evenly spread, are looked at where the shape of an input is not static.
    """
    shaped = graph if all(graph.shape(name) is not None for name in graph.inputs) else _frozen(graph, feeds)
    found = {name: 4 * math.prod(shaped.shape(name) or ()) for name in graph.inputs}
    for node in graph.nodes:
        largest = max((found.get(name, 0) for name in node.inputs), default=0)
        for name in filter(None, node.outputs):
            shape = shaped.shape(name)
            found[name] = largest if shape is None else 4 * math.prod(shape)
    return found


def _frozen(graph: Graph, feeds: Sequence[Feed]) -> Graph:
    """With the shapes of the sample that has most values, of those that are looked at."""
    shapes = max(
        map(shapes_of, feeds[:: max(1, len(feeds) // _N_LOOKED_AT)]),
        key=lambda shapes: sum(math.prod(shape) for _, shape in shapes),
        default=(),
    )
    return Graph(infer_shapes(freeze(graph.model, dict(shapes), {})))
