"""GRUs of a single step, as networks that are given sound or signals frame by frame have them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import is_float_constant
from autoquant.rewrites.edits import Edit, Parts, of_each_node

__all__ = ["multiply_step"]

_OPSET = 13
"""Before it sizes of Split are no input."""
_LEAST_WEIGHTS = 1 << 19
"""Of both matrices: with fewer the nodes between the products cost what integers save."""
_N_INPUTS = 6
"""Sequence, matrices for it and for the state, biases, lengths, state."""
_DEFAULTS = {"activations": ([], [b"Sigmoid", b"Tanh"]), "clip": (0.0,), "direction": (b"forward",), "layout": (0,)}
"""What attributes may say; the first is what they say where they are missing."""
_Linear = tuple[TensorName, TensorName]
"""Matrix, with a row for each output, and biases."""


@of_each_node(_OPSET)
def multiply_step(edit: Edit, node: Node) -> None:
    """A GRU of one step from a state that is given becomes products, which have integer kernels where a GRU has none.

    As ONNX defines it, https://onnx.ai/onnx/operators/onnx__GRU.html.
    """
    if node.op_type == "GRU" and _is_default(node) and _has_state(edit.graph, node):
        n_rows = _rows(edit.graph, node)
        if n_rows is not None:
            edit.replaced[node.index] = _Step(Parts(edit, node), n_rows, edit.graph.constant(node.inputs[2])).nodes()


def _is_default(node: Node) -> bool:
    return all(node.attributes.get(name, known[0]) in known for name, known in _DEFAULTS.items())


def _has_state(graph: Graph, node: Node) -> bool:
    """Whether constants are all that it reads beside the sequence and a state, which are computed."""
    if len(node.inputs) != _N_INPUTS or node.inputs[4] or not node.inputs[5]:
        return False
    constants = [name for name in node.inputs[1:4] if name]
    computed = [node.inputs[0], node.inputs[5]]
    return not any(map(graph.is_constant, computed)) and all(is_float_constant(name, graph) for name in constants)


def _rows(graph: Graph, node: Node) -> int | None:
    """Of the batch; None where there are more steps, sizes are not known or matrices are small."""
    n_steps, n_rows, _ = graph.sizes(node.inputs[0]) or (None,) * 3
    n_weights = sum(graph.constant(name).size for name in node.inputs[1:3])
    return n_rows if n_steps == 1 and n_weights >= _LEAST_WEIGHTS else None


@dataclass(frozen=True, slots=True)
class _Step:
    """What the nodes are made of.

    Attributes:
        parts: In place of the GRU.
        n_rows: Of the batch.
        kept: Matrix for the state; shape (1, 3 * state, state).
    """

    parts: Parts
    n_rows: int
    kept: npt.NDArray[np.generic]

    def nodes(self) -> list[onnx.NodeProto]:
        """All of them."""
        given, *kept = self._linears()
        inputs, rows = self.parts.node.inputs, (self.n_rows, -1)
        read = self._product(self._shaped(inputs[0], rows, "sequence"), given, "read")
        state = self._next(read, self._shaped(inputs[5], rows, "state"), kept)
        for output, n_axes in zip(self.parts.node.outputs, (2, 1), strict=False):
            if output:
                self._shaped(state, (*[1] * n_axes, *rows), f"output{n_axes}", output=output)
        return self.parts.nodes

    @property
    def _n_kept(self) -> int:
        return int(self.kept.shape[-1])

    @property
    def _resets_behind(self) -> bool:
        return bool(self.parts.node.attributes.get("linear_before_reset", 0))

    def _linears(self) -> list[_Linear]:
        """For what is read, and for the state; two for that where it is reset before the last of the products."""
        graph, (_, read, _, biases, *_) = self.parts.edit.graph, self.parts.node.inputs
        of_both = graph.constant(biases)[0] if biases else np.zeros(6 * self._n_kept, np.float32)
        of_read, of_kept = np.split(of_both, 2)
        found = [self._linear(graph.constant(read)[0], of_read, "read")]
        if self._resets_behind:
            return [*found, self._linear(self.kept[0], of_kept, "kept")]
        gates = 2 * self._n_kept
        found.append(self._linear(self.kept[0, :gates], of_kept[:gates], "kept"))
        return [*found, self._linear(self.kept[0, gates:], of_kept[gates:], "again")]

    def _next(self, read: TensorName, state: TensorName, kept: list[_Linear]) -> TensorName:
        """The state behind the step, ``n + z (h - n)``."""
        add, thirds = self.parts.add, (2, 1)
        read_gates, read_new = self._pieces(read, thirds, "read")
        product, again = self._product(state, kept[0], "kept"), TensorName("")
        if self._resets_behind:
            product, again = self._pieces(product, thirds, "kept")
        gates = add("Sigmoid", [add("Add", [read_gates, product], part="sums")], part="gates")
        update, reset = self._pieces(gates, (1, 1), "gates")
        left = add("Mul", [reset, again or state], part="reset")
        inside = left if again else self._product(left, kept[1], "again")
        new = add("Tanh", [add("Add", [read_new, inside], part="inside")], part="new")
        changed = add("Mul", [update, add("Sub", [state, new], part="change")], part="changed")
        return add("Add", [new, changed], part="next")

    def _linear(self, matrix: npt.NDArray[np.generic], biases: npt.NDArray[np.generic], part: str) -> _Linear:
        return self.parts.constant(f"{part}_matrix", matrix), self.parts.constant(f"{part}_biases", biases)

    def _product(self, rows: TensorName, linear: _Linear, part: str) -> TensorName:
        return self.parts.add("Gemm", [rows, *linear], part=part, transB=1)

    def _shaped(
        self, tensor: TensorName, shape: tuple[int, ...], part: str, *, output: TensorName | None = None
    ) -> TensorName:
        wanted = self.parts.constant(f"{part}_shape", np.array(shape, np.int64))
        return self.parts.add("Reshape", [tensor, wanted], part=part, output=output)

    def _pieces(self, tensor: TensorName, n_each: tuple[int, int], part: str) -> list[TensorName]:
        """So many times the state along the last axis."""
        name = f"{self.parts.node.name}_{part}_split"
        pieces = [self.parts.edit.names.new(f"{name}{i}") for i in range(len(n_each))]
        wanted = self.parts.constant(f"{part}_sizes", np.array(n_each) * self._n_kept)
        self.parts.nodes.append(helper.make_node("Split", [tensor, wanted], pieces, name=name, axis=1))
        return pieces
