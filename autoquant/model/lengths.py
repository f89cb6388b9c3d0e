"""What sizes there would be if those that are not known were this or that."""

import onnx

from autoquant.model.copies import without_weights
from autoquant.model.graph import Graph
from autoquant.model.rewrite import free_dimensions, freeze, infer_shapes

__all__ = ["at_lengths"]

_LENGTHS = 32, 48
"""Of the first dimension that is not known; each further one is longer by one, so that no two are alike."""


def at_lengths(graph: Graph) -> tuple[Graph, ...]:
    """The same nodes with all sizes that follow from those of the inputs, for two choices of what is not known.

    Nothing where nothing is, nor where a dimension has no name, so that it is not known which are alike.
    """
    dims = [dim for value in graph.model.graph.input for dim in value.type.tensor_type.shape.dim]
    names = sorted(free_dimensions(graph.model))
    if not names or not all(dim.HasField("dim_value") or dim.dim_param for dim in dims):
        return ()
    return tuple(_sized(graph, {name: first + i for i, name in enumerate(names)}) for first in _LENGTHS)


def _sized(graph: Graph, dims: dict[str, int]) -> Graph:
    def frozen(skeleton: onnx.ModelProto) -> onnx.ModelProto:
        made = freeze(skeleton, {}, dims)
        del made.graph.value_info[:]
        return infer_shapes(made)

    return Graph(without_weights(graph.model, frozen))
