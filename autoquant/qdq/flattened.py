"""Products between two Reshapes, as preprocessing writes them for the kernels of static schemes."""

from collections.abc import Mapping

from autoquant.model.graph import Graph, Node
from autoquant.model.ops import can_be_dynamic, gets_dimensions

__all__ = ["flattened_products"]


def flattened_products(graph: Graph) -> Mapping[int, tuple[Node, Node]]:
    """The Reshapes before and behind products that could do without them, by the product's index.

    The first one makes a matrix of all but the last dimension of what it reads, the second one gives the product these
    dimensions back, and nothing else reads what lies between. Kernels that quantize what they read take any number of
    dimensions. A product of one column keeps them, and one that gets dimensions from a vector which is added behind:
    onnxruntime would take that for its bias.
    """
    found: dict[int, tuple[Node, Node]] = {}
    taken: set[int] = set()
    for node in graph.nodes:
        pair = _reshapes(graph, node) if node.op_type != "LSTM" and can_be_dynamic(node, graph) else None
        if pair is not None and taken.isdisjoint(each.index for each in pair):
            found[node.index] = pair
            taken |= {each.index for each in pair}
    return found


def _reshapes(graph: Graph, product: Node) -> tuple[Node, Node] | None:
    flat, own = product.inputs[0], product.outputs[0]
    before, behind = graph.producer.get(flat), graph.only_reader(own)
    if before is None or behind is None or {before.op_type, behind.op_type} != {"Reshape"}:
        return None
    sizes = [graph.sizes(name) for name in (before.inputs[0], flat, own, behind.outputs[0])]
    if graph.only_reader(flat) is None or not all(sizes) or gets_dimensions(behind.outputs[0], graph):
        return None
    (*rows, n_inputs), (*_, n_read), (*_, n_outputs), back = (each or () for each in sizes)
    if n_inputs is None or n_outputs in (None, 1) or rows.count(None) > 1:  # one follows from the number of rows
        return None
    return (before, behind) if n_inputs == n_read and back == (*rows, n_outputs) else None
