"""Each graph of a file beside what onnxruntime makes of it: the main one, and the bodies of If, Loop and Scan."""

from collections.abc import Iterator
from dataclasses import dataclass

from autoquant.domain.region import NodeName, TensorName
from autoquant.inspection.kernels import CONTROL, base_op
from autoquant.inspection.matching import Matching, match
from autoquant.model.bodies import body_graphs
from autoquant.model.graph import Graph, Node

__all__ = ["Scope", "scopes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One graph, given and optimised.

    Attributes:
        path: Before the names of its nodes: empty for the main graph, else like ``outer/then_branch/``.
        given: As the file has it.
        optimized: As onnxruntime runs it.
        matching: Of the two.
        around: The graph that it is a body in.
    """

    path: str
    given: Graph
    optimized: Graph
    matching: Matching
    around: "Scope | None" = None

    def place(self, name: NodeName) -> NodeName:
        """A name that says where the node is."""
        return NodeName(self.path + name)

    def place_of_constant(self, tensor: TensorName) -> TensorName:
        """A name that says where a constant of the optimised graph is: a body reads those around it too."""
        if self.around is not None and self.around.optimized.is_constant(tensor):
            return self.around.place_of_constant(tensor)
        return TensorName(self.path + tensor)

    @property
    def gone(self) -> Iterator[Node]:
        """Nodes of control flow that onnxruntime does not run as such."""
        return (node for node in self.given.nodes if base_op(node) in CONTROL and self._kernel(node) is None)

    @property
    def bodies(self) -> Iterator["Scope"]:
        """What is inside its nodes, not what is inside that."""
        for node in self.given.nodes:
            kernel = self._kernel(node)
            if kernel is None:
                continue
            optimized = dict(body_graphs(self.optimized, kernel))
            for name, given in body_graphs(self.given, node):
                yield Scope(
                    path=f"{self.place(node.name)}/{name}/",
                    given=given,
                    optimized=optimized[name],
                    matching=match(given, optimized[name]),
                    around=self,
                )

    def _kernel(self, node: Node) -> Node | None:
        """That runs the bodies of a node."""
        kernel = self.matching.kernel.get(node.index) if base_op(node) in CONTROL else None
        return kernel if kernel is not None and kernel.op_type == node.op_type else None


def scopes(given: Graph, optimized: Graph) -> Iterator[Scope]:
    """The main graph and all that is inside it, each before its bodies."""
    return _with_bodies(Scope(path="", given=given, optimized=optimized, matching=match(given, optimized)))


def _with_bodies(scope: Scope) -> Iterator[Scope]:
    yield scope
    for body in scope.bodies:
        yield from _with_bodies(body)
