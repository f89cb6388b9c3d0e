"""Names of nodes, and of tensors that are new."""

from dataclasses import dataclass, field

import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, copy_of
from autoquant.model.graph import Graph
from autoquant.model.optimized import SUFFIX
from autoquant.model.subgraphs import graphs_of

__all__ = ["NewNames", "has_named_nodes", "has_repeated_names", "name_nodes"]


@dataclass(frozen=True, slots=True)
class NewNames:
    """Names of new tensors, each given once.

    Attributes:
        graph: What they are added to.
    """

    graph: Graph
    _given: set[TensorName] = field(default_factory=set)

    def new(self, wanted: str) -> TensorName:
        """The name, with underscores behind it until no tensor has it."""
        name = self.graph.free_name(wanted, self._given)
        self._given.add(name)
        return name


def has_named_nodes(model: Model) -> bool:
    """Whether every node has a name that is unique in its graph."""
    return all(_is_named(graph) for graph in graphs_of(model.graph))


def has_repeated_names(model: Model) -> bool:
    """Whether two nodes of one graph have one name."""
    named = ([node.name for node in graph.node if node.name] for graph in graphs_of(model.graph))
    return any(len(set(names)) < len(names) for names in named)


def name_nodes(model: Model) -> Model:
    """Every node with a name that is unique in its graph, and no end as onnxruntime appends; one that is so stays.

    Where a node has none it is called as its first output, which stays whatever a quantizer puts around it; in bodies
    after its operator.
    """
    nodes = (node for graph in graphs_of(model.graph) for node in graph.node)
    if has_named_nodes(model) and not any(SUFFIX.search(node.name) for node in nodes):
        return model
    copy = copy_of(model)
    for graph in graphs_of(copy.graph):
        _name(graph, by_output=graph is copy.graph)
    return copy


def _is_named(graph: onnx.GraphProto) -> bool:
    return len({node.name for node in graph.node} - {""}) == len(graph.node)


def _name(graph: onnx.GraphProto, *, by_output: bool) -> None:
    taken = {node.name for node in graph.node}
    seen = {""}
    for i, node in enumerate(graph.node):
        if node.name in seen or SUFFIX.search(node.name):
            own = node.name or (next(iter(node.output), "") if by_output else "")
            name = f"{own}_" if SUFFIX.search(own) else own or f"{node.op_type}_{i}"
            while name in taken or SUFFIX.search(name):
                name = f"{name}_" if SUFFIX.search(f"{name}_{i}") else f"{name}_{i}"
            node.name = name
            taken.add(name)
        seen.add(node.name)
