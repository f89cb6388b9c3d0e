"""Nodes that only say another shape, one of which takes back what others before it said."""

from collections.abc import Iterator

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.sources import with_sources

__all__ = ["drop_views"]

_VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_OPPOSITES = {"Squeeze": "Unsqueeze", "Unsqueeze": "Squeeze"}


def drop_views(model: Model) -> Model:
    """What is written in a shape that it had before, with nothing but other shapes between, is read as it was then.

    A Squeeze between two Convs, such as there is where a layer is written for one sample, keeps onnxruntime from
    leaving images in its own layout from one to the other, although nothing is copied for it.
    """
    graph = Graph(model)
    views = [node for node in graph.nodes if node.op_type in _VIEWS and node.outputs[0] not in graph.pinned]
    sources = {node.outputs[0]: _before(graph, node) for node in views}
    return with_sources(model, {name: source for name, source in sources.items() if source is not None})


def _before(graph: Graph, node: Node) -> TensorName | None:
    """The first tensor that is the same; None where there is none."""
    shape, found = graph.shape(node.outputs[0]), None
    for view in _behind_one_another(graph, node):
        source = view.inputs[0]
        if (shape is not None and graph.shape(source) == shape) or _is_undone(graph, view, node):
            found = source
    return found


def _behind_one_another(graph: Graph, node: Node) -> Iterator[Node]:
    """The node and views before it, from the last to the first."""
    view: Node | None = node
    while view is not None and view.op_type in _VIEWS:
        yield view
        view = graph.producer.get(view.inputs[0])


def _is_undone(graph: Graph, first: Node, last: Node) -> bool:
    """Whether of two views in a row the second drops the axes that the first adds, or the other way round."""
    if first.outputs[0] != last.inputs[0] or last.op_type != _OPPOSITES.get(first.op_type):
        return False
    most = (first.inputs[0], last.outputs[0]) if first.op_type == "Squeeze" else first.outputs
    n_axes = max(map(graph.rank, most))
    axes = [axes_of(graph, node, n_axes) for node in (first, last)]
    return axes[0] is not None and axes[1] is not None and sorted(axes[0]) == sorted(axes[1])
