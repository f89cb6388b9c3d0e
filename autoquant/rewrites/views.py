"""Nodes that only say another shape, one of which takes back what others before it said, and copies of all there is."""

from collections.abc import Iterator

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import VIEWS
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.sources import with_sources

__all__ = ["drop_views"]

_STEPS = 4
"""The input of a Slice that says them."""
_OPPOSITES = {"Squeeze": "Unsqueeze", "Unsqueeze": "Squeeze"}


def drop_views(model: Model) -> Model:
    """What is written in a shape that it had before, with nothing but other shapes between, is read as it was then.

    A Squeeze between two Convs, such as there is where a layer is written for one sample, keeps onnxruntime from
    leaving images in its own layout from one to the other, although nothing is copied for it. A Slice that takes all
    copies too: exporters write it where a network cuts off channels that are no more than are wanted, and a Concat of
    one tensor where nothing was kept of earlier steps.
    """
    graph = graph_of(model)
    views = [node for node in graph.nodes if _is_view(graph, node) and node.outputs[0] not in graph.pinned]
    sources = {node.outputs[0]: _before(graph, node) for node in views}
    return with_sources(model, {name: source for name, source in sources.items() if source is not None})


def _before(graph: Graph, node: Node) -> TensorName | None:
    """The first tensor that is the same; None where there is none."""
    shape, found = graph.shape(node.outputs[0]), None
    for view in _behind_one_another(graph, node):
        source = view.inputs[0]
        is_whole = view is node and node.op_type in ("Concat", "Slice")
        if is_whole or (shape is not None and graph.shape(source) == shape) or _is_undone(graph, view, node):
            found = source
    return found


def _behind_one_another(graph: Graph, node: Node) -> Iterator[Node]:
    """The node and views before it, from the last to the first."""
    view: Node | None = node
    while view is not None and _is_view(graph, view):
        yield view
        view = graph.producer.get(view.inputs[0])


def _is_view(graph: Graph, node: Node) -> bool:
    is_concat_of_one = node.op_type == "Concat" and len(node.inputs) == 1
    return node.op_type in VIEWS or is_concat_of_one or (node.op_type == "Slice" and _takes_all(graph, node))


def _takes_all(graph: Graph, node: Node) -> bool:
    """Whether a Slice with steps of one keeps the sizes of the axes that it names, all where it names none."""
    before, behind = graph.sizes(node.inputs[0]) or (), graph.sizes(node.outputs[0]) or ()
    steps = next(iter(node.inputs[_STEPS:]), None)
    if len(before) != len(behind) or (steps and not (graph.is_constant(steps) and (graph.constant(steps) == 1).all())):
        return False
    axes = axes_of(graph, node, len(before)) or range(len(before))
    return bool(before) and all(before[axis] is not None and before[axis] == behind[axis] for axis in axes)


def _is_undone(graph: Graph, first: Node, last: Node) -> bool:
    """Whether of two views in a row the second drops the axes that the first adds, or the other way round."""
    if first.outputs[0] != last.inputs[0] or last.op_type != _OPPOSITES.get(first.op_type):
        return False
    most = (first.inputs[0], last.outputs[0]) if first.op_type == "Squeeze" else first.outputs
    n_axes = max(map(graph.rank, most))
    axes = [axes_of(graph, node, n_axes) for node in (first, last)]
    return axes[0] is not None and axes[1] is not None and sorted(axes[0]) == sorted(axes[1])
