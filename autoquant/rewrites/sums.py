"""Linear functions of a step of a sequence and of the state before it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.graph import Node
from autoquant.rewrites.loops import Loop

__all__ = ["Sum", "Sums"]

_Array = npt.NDArray[Any]
_MATRIX = 2
_BOUNDS = 3
"""Inputs of a Slice that say what is taken, without the steps."""
_MANY = np.iinfo(np.int32).max
"""More samples than there are."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Products with matrices and a bias; None for those that are not in it.

    Attributes:
        of_input: Matrix of (elements of a step, written ones).
        of_state: Matrix of (elements of the state, written ones).
        bias: Of one element or as many as are written.
    """

    of_input: _Array | None = None
    of_state: _Array | None = None
    bias: _Array | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Elements of a step, of the state and of what is written; 0 for what is not in it."""
        matrices = [matrix for matrix in (self.of_input, self.of_state) if matrix is not None]
        n_inputs, n_states = (0 if matrix is None else len(matrix) for matrix in (self.of_input, self.of_state))
        return n_inputs, n_states, matrices[0].shape[1] if matrices else 0

    def __add__(self, other: "Sum") -> "Sum":
        pairs = zip(self._parts, other._parts, strict=True)
        return Sum(*(b if a is None else a if b is None else a + b for a, b in pairs))

    def columns(self, start: int, end: int) -> "Sum":
        """Of what is written so many."""
        return Sum(*(part if part is None or part.shape[-1] == 1 else part[..., start:end] for part in self._parts))

    @property
    def _parts(self) -> tuple[_Array | None, ...]:
        return self.of_input, self.of_state, self.bias


@dataclass(slots=True)
class Sums:
    """Finds them in the body of a Loop.

    Attributes:
        loop: Of it.
        hidden: What the body calls the state.
        sequence: The tensor around whose slice along the first axis each step reads; None before one is found.
    """

    loop: Loop
    hidden: TensorName
    sequence: TensorName | None = None
    _found: dict[TensorName, Sum | None] = field(default_factory=dict)

    def of(self, name: TensorName) -> Sum | None:
        """What a tensor of the body is computed of; None where that is something else."""
        name = self.loop.behind(name)
        if name not in self._found:
            self._found[name] = self._computed(name)
        return self._found[name]

    def _computed(self, name: TensorName) -> Sum | None:
        value = self.loop.constant(name)
        if value is not None:
            is_row = value.ndim <= _MATRIX and value.size == (value.shape or (1,))[-1]
            return Sum(bias=value.reshape(-1)) if is_row else None
        node = self.loop.body.producer.get(name)
        if node is None:
            return None
        match node.op_type:
            case "Add":
                return self._added(*node.inputs)
            case "MatMul":
                return self._product(node.inputs[0], self.loop.constant(node.inputs[1]))
            case "Gemm":
                return self._gemm(node)
            case "Split":
                return self._part(node, node.outputs.index(name))
            case "Slice":
                return self._cut(node)
        return None

    def _added(self, first: TensorName, second: TensorName) -> Sum | None:
        one, other = self.of(first), self.of(second)
        return None if one is None or other is None else one + other

    def _gemm(self, node: Node) -> Sum | None:
        given = node.attributes
        if given.get("transA", 0) or given.get("alpha", 1.0) != 1 or given.get("beta", 1.0) != 1:
            return None
        matrix = self.loop.constant(node.inputs[1])
        product = self._product(node.inputs[0], matrix.T if matrix is not None and given.get("transB", 0) else matrix)
        added = self.of(node.inputs[2]) if len(node.inputs) > _MATRIX and node.inputs[2] else Sum()
        return None if product is None or added is None else product + added

    def _product(self, read: TensorName, matrix: _Array | None) -> Sum | None:
        read = self.loop.behind(read)
        if matrix is None or matrix.ndim != _MATRIX:
            return None
        if read == self.hidden:
            return Sum(of_state=matrix)
        if self._is_step(read):
            return Sum(of_input=matrix)
        node = self.loop.body.producer.get(read)
        return self._joined(node, matrix) if node is not None and node.op_type == "Concat" else None

    def _joined(self, node: Node, matrix: _Array) -> Sum | None:
        """Of a step and the state, one beside the other."""
        if node.attributes["axis"] not in (-1, 1) or len(node.inputs) != _MATRIX:
            return None
        first, second = map(self.loop.behind, node.inputs)
        n_states = (self.loop.body.sizes(self.hidden) or (None,))[-1]
        if n_states is None or self.hidden not in (first, second):
            return None
        n_first = n_states if first == self.hidden else len(matrix) - n_states
        one, other = self._product(first, matrix[:n_first]), self._product(second, matrix[n_first:])
        return None if one is None or other is None else one + other

    def _part(self, node: Node, place: int) -> Sum | None:
        """Of columns."""
        whole = self.of(node.inputs[0])
        n_written = 0 if whole is None else whole.sizes[-1]
        if whole is None or node.attributes.get("axis", 0) not in (-1, 1) or n_written % len(node.outputs):
            return None
        n_each = n_written // len(node.outputs)
        sizes = self.loop.constant(node.inputs[1]) if len(node.inputs) > 1 else None
        is_even = len(node.inputs) == 1 or (sizes is not None and bool((sizes == n_each).all()))
        return whole.columns(place * n_each, (place + 1) * n_each) if is_even else None

    def _cut(self, node: Node) -> Sum | None:
        """The same by a Slice, which may name the axis of samples too."""
        whole, given = self.of(node.inputs[0]), [self.loop.constant(name) for name in node.inputs[1:]]
        bounds = [value.ravel().tolist() for value in given if value is not None]
        if whole is None or len(bounds) < len(given) or len(bounds) not in (_BOUNDS, _BOUNDS + 1):
            return None
        cuts = {axis: slice(*cut) for *cut, axis in zip(*bounds[:2], *bounds[3:], bounds[2], strict=True)}
        columns = cuts.pop(1, cuts.pop(-1, slice(None)))
        start, end, step = columns.indices(whole.sizes[-1])
        is_whole = all(cut.indices(_MANY) == (0, _MANY, 1) for cut in cuts.values())
        return whole.columns(start, end) if is_whole and step == 1 and start < end else None

    def _is_step(self, name: TensorName) -> bool:
        """Whether a tensor is the slice of the sequence for this step."""
        node = self.loop.body.producer.get(name)
        if node is None or node.op_type != "Gather" or node.attributes.get("axis", 0):
            return False
        sequence, index = self.loop.outside(node.inputs[0]), self.loop.behind(node.inputs[1])
        if sequence is None or self.sequence not in (None, sequence) or self.loop.steps_ahead(index) != 0:
            return False
        self.sequence = sequence
        return True
