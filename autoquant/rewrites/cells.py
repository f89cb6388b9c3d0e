"""Cells of recurrent networks that an exporter wrote as the body of a Loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph
from autoquant.model.kept import graph_of
from autoquant.rewrites.edits import Edit, Parts
from autoquant.rewrites.loops import Loop, State
from autoquant.rewrites.sums import Sum, Sums
from autoquant.rewrites.unread import drop_unread

__all__ = ["fuse_cells"]

_OPSET = 13
"""Before it axes of Squeeze are no input."""
_SEQUENCE_RANK, _STATE_RANK = 3, 2
_Pair = tuple[TensorName, TensorName]


def fuse_cells(model: Model) -> Model:
    """A Loop over cells of an LSTM, GRU or RNN becomes that operator: its kernel is faster, an LSTM's has integers.

    tf2onnx writes the layers of Keras 3 as Loops. They go through a sequence along its first axis, and nothing but the
    hidden states of all steps and the states behind the last one is read of what they write.
    """
    if opset_of(model) < _OPSET:
        return model
    edit = Edit(graph_of(model))
    for node in edit.graph.nodes:
        if node.op_type == "Loop":
            loop = Loop(edit.graph, node)
            cell = _lstm(loop) or _gru(loop) or _rnn(loop)
            if cell is not None and _writes_no_more(loop, cell):
                edit.replaced[node.index] = _Writing(Parts(edit, node), loop, cell).nodes()
    return drop_unread(edit.model()) if edit.replaced else model


@dataclass(frozen=True, slots=True)
class _Cell:
    """An operator of ONNX.

    Attributes:
        op_type: Of it.
        sequence: That it goes through.
        states: The hidden one first.
        gates: Before their activations, in the order of the operator.
        reset: Of a GRU whose reset gate comes behind the product with the state: that product, which is in no gate.
    """

    op_type: str
    sequence: TensorName
    states: tuple[State, ...]
    gates: tuple[Sum, ...]
    reset: Sum | None = None


def _lstm(loop: Loop) -> _Cell | None:
    for cell in loop.states:
        for hidden in loop.states:
            names = _lstm_gates(loop, hidden, cell)
            if names is not None:
                sums = Sums(loop, hidden.read)
                return _complete(sums, "LSTM", (hidden, cell), [sums.of(name) for name in names])
    return None


def _lstm_gates(loop: Loop, hidden: State, cell: State) -> list[TensorName] | None:
    """What the gates for input, output and forgetting, and what is new in the cell, are computed of."""
    for output, shown in _factors(loop, hidden.written):
        for kept, new in _summands(loop, cell.written):
            for forget, before in _factors(loop, kept):
                for let_in, candidate in _factors(loop, new):
                    gates = [_activated(loop, name, "Sigmoid") for name in (let_in, output, forget)]
                    found = [name for name in (*gates, _activated(loop, candidate, "Tanh")) if name is not None]
                    is_shown = _activated(loop, shown, "Tanh") == cell.written
                    if is_shown and before == cell.read and len(found) > len(gates):
                        return found
    return None


def _gru(loop: Loop) -> _Cell | None:
    for hidden in loop.states:
        for kept, new in _summands(loop, hidden.written):
            for update, before in _factors(loop, kept):
                for rest, candidate in _factors(loop, new):
                    gate, inside = _activated(loop, update, "Sigmoid"), _activated(loop, candidate, "Tanh")
                    is_one = before == hidden.read and _is_rest_of(loop, rest, update)
                    if is_one and gate is not None and inside is not None:
                        return _reset_behind(loop, hidden, gate, inside) or _reset_before(loop, hidden, gate, inside)
    return None


def _reset_behind(loop: Loop, hidden: State, update: TensorName, inside: TensorName) -> _Cell | None:
    """A GRU that multiplies with its reset gate what is behind the product with the state.

    Args:
        loop: The Loop.
        hidden: The state.
        update: What the update gate is computed of.
        inside: What the candidate is computed of.
    """
    for given, product in _summands(loop, inside):
        for reset, inner in _factors(loop, product):
            sums, gate = Sums(loop, hidden.read), _activated(loop, reset, "Sigmoid")
            outer, of_state = sums.of(given), sums.of(inner)
            if gate is None or outer is None or of_state is None or of_state.of_state is None:
                continue
            if outer.of_state is None and of_state.of_input is None:
                gates = [sums.of(update), sums.of(gate), replace(outer, of_state=of_state.of_state)]
                cell = _complete(sums, "GRU", (hidden,), gates)
                return None if cell is None else replace(cell, reset=of_state)
    return None


def _reset_before(loop: Loop, hidden: State, update: TensorName, inside: TensorName) -> _Cell | None:
    """The same of one that multiplies the state, before the product."""
    for product in (node.outputs[0] for node in loop.body.nodes if node.op_type == "Mul"):
        for reset, state in _factors(loop, product):
            gate, sums = _activated(loop, reset, "Sigmoid"), Sums(loop, hidden.read)
            if state == hidden.read and gate not in (None, update):
                assert gate is not None
                gates, of_product = [sums.of(update), sums.of(gate)], Sums(loop, product, sums.sequence)
                return _complete(sums, "GRU", (hidden,), [*gates, of_product.of(inside)])
    return None


def _rnn(loop: Loop) -> _Cell | None:
    for hidden in loop.states:
        sums, inside = Sums(loop, hidden.read), _activated(loop, hidden.written, "Tanh")
        if inside is not None:
            return _complete(sums, "RNN", (hidden,), [sums.of(inside)])
    return None


def _complete(sums: Sums, op_type: str, states: tuple[State, ...], gates: Sequence[Sum | None]) -> _Cell | None:
    """None where a gate is computed of something else."""
    graph, sequence, found = sums.loop.around, sums.sequence, tuple(gate for gate in gates if gate is not None)
    if sequence is None or len(found) < len(gates) or len({gate.sizes for gate in found}) > 1:
        return None
    n_inputs, n_states, n_written = found[0].sizes
    is_float = sequence in graph.float_tensors and graph.rank(sequence) == _SEQUENCE_RANK
    if not (is_float and n_inputs and n_states == n_written and sums.loop.goes_through(sequence)):
        return None
    return _Cell(op_type, sequence, states, found) if _begin_whole(graph, sequence, states, n_states) else None


def _begin_whole(graph: Graph, sequence: TensorName, states: Sequence[State], n_states: int) -> bool:
    """Whether states are known not to grow at the first step; zeros may be those of one sample for all."""
    n_samples = (graph.sizes(sequence) or ())[1]
    allowed = (None, n_samples, *([1] if _are_zeros(graph, states) else []))
    firsts = [sizes for state in states if (sizes := graph.sizes(state.first)) is not None]
    return all(len(sizes) == _STATE_RANK and sizes[0] in allowed and sizes[1] in (None, n_states) for sizes in firsts)


def _writes_no_more(loop: Loop, cell: _Cell) -> bool:
    others = [state.last for state in loop.states if state not in cell.states]
    others += [outer for name, outer in loop.collected if name != cell.states[0].written]
    return not any(_is_read(loop.around, name) for name in others)


def _is_read(graph: Graph, name: TensorName) -> bool:
    return bool(name) and (name in graph.consumers or name in graph.pinned)


def _factors(loop: Loop, name: TensorName) -> Iterator[_Pair]:
    """The two, either one first, that a tensor of the body is the product of."""
    return _pairs(loop, name, "Mul")


def _summands(loop: Loop, name: TensorName) -> Iterator[_Pair]:
    return _pairs(loop, name, "Add")


def _pairs(loop: Loop, name: TensorName, op_type: str) -> Iterator[_Pair]:
    node = loop.body.producer.get(loop.behind(name))
    if node is not None and node.op_type == op_type:
        first, second = map(loop.behind, node.inputs)
        yield from ((first, second), (second, first))


def _activated(loop: Loop, name: TensorName, op_type: str) -> TensorName | None:
    """What such an activation, that a tensor of the body is, reads."""
    node = loop.body.producer.get(name)
    return loop.behind(node.inputs[0]) if node is not None and node.op_type == op_type else None


def _is_rest_of(loop: Loop, name: TensorName, gate: TensorName) -> bool:
    """Whether it is 1 less the gate."""
    node = loop.body.producer.get(name)
    if node is None or node.op_type != "Sub" or loop.behind(node.inputs[1]) != gate:
        return False
    one = loop.constant(node.inputs[0])
    return one is not None and bool((one == 1).all())


@dataclass(frozen=True, slots=True)
class _Writing:
    """Of the operator in place of a Loop."""

    parts: Parts
    loop: Loop
    cell: _Cell

    def nodes(self) -> list[onnx.NodeProto]:
        """With what gives each of its outputs the shape that the Loop's has."""
        graph, cell = self.parts.edit.graph, self.cell
        collected = [outer for _, outer in self.loop.collected if _is_read(graph, outer)]
        asked = [collected, *([state.last] if _is_read(graph, state.last) else [] for state in cell.states)]
        called = ("all", "hidden", "cell")
        outputs = [self._new(name) if names else "" for name, names in zip(called, asked, strict=False)]
        first = [*self._first_states()]
        inputs = [cell.sequence, *self._weights(), *(["", *first] if first else [])]
        node = helper.make_node(cell.op_type, inputs, outputs, self.parts.node.name)
        node.attribute.append(helper.make_attribute("hidden_size", cell.gates[0].sizes[-1]))
        if cell.reset is not None:
            node.attribute.append(helper.make_attribute("linear_before_reset", 1))
        self.parts.nodes.append(node)
        for i, names in enumerate(asked):
            axis = self.parts.constant(f"{called[i]}_direction", np.array([0 if i else 1])) if names else ""
            for j, name in enumerate(names):
                self.parts.add("Squeeze", [outputs[i], axis], part=f"{called[i]}{j or ''}", output=name)
        return self.parts.nodes

    def _new(self, called: str) -> TensorName:
        return self.parts.edit.names.new(f"{self.parts.node.name}_{called}")

    def _weights(self) -> Iterator[TensorName]:
        gates, n_states = self.cell.gates, self.cell.gates[0].sizes[-1]
        for called, matrices in (("w", [gate.of_input for gate in gates]), ("r", [gate.of_state for gate in gates])):
            rows = [matrix.T for matrix in matrices if matrix is not None]
            yield self.parts.constant(called, np.concatenate(rows)[None].astype(np.float32))
        biases = np.zeros((2 * len(gates), n_states), np.float32)
        for i, summed in [*enumerate(gates), (-1, self.cell.reset)]:
            biases[i] = 0 if summed is None or summed.bias is None else summed.bias
        yield self.parts.constant("b", biases.reshape(1, -1))

    def _first_states(self) -> Iterator[TensorName]:
        """None where all of them are zeros."""
        graph, states = self.parts.edit.graph, self.cell.states
        if not _are_zeros(graph, states):
            axis = self.parts.constant("direction", np.array([0]))
            for state in states:
                yield self.parts.add("Unsqueeze", [state.first, axis], part=f"first_{state.read}")


def _are_zeros(graph: Graph, states: Sequence[State]) -> bool:
    return all(_is_zero(graph, state.first) for state in states)


def _is_zero(graph: Graph, name: TensorName) -> bool:
    if graph.is_constant(name):
        return not graph.constant(name).any()
    node = graph.producer.get(name)
    return node is not None and node.op_type == "Expand" and _is_zero(graph, node.inputs[0])
