"""Loops that go through a sequence from its first step to its last."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from onnx import helper
from onnx.reference import ReferenceEvaluator

from autoquant.domain.region import TensorName
from autoquant.model.bodies import body_graphs
from autoquant.model.graph import Graph, Node

__all__ = ["Loop", "State"]

_PASSING = ("Cast", "Identity")
_TAKING = ("Slice", "Split", "Squeeze")
"""What weights of several kinds, that an exporter has in one tensor, are taken out of it by."""
_N_BEFORE, _N_AFTER = 2, 1
"""Inputs of a Loop and of its body before the states, and what a body writes before them."""
_LATEST = {"Less": 1, "LessOrEqual": 2}
"""Steps beyond the present one that may be compared with their number so that the last step alone is the end."""


@dataclass(frozen=True, slots=True)
class State:
    """What a step gives to the next one.

    Attributes:
        read: What the body calls it before the step.
        written: And behind it.
        first: Of the graph around: before the first step.
        last: Behind the last one; empty where that is left out.
    """

    read: TensorName
    written: TensorName
    first: TensorName
    last: TensorName


@dataclass(frozen=True)
class Loop:
    """A Loop and its body.

    Attributes:
        around: The graph that it is in.
        node: The Loop.
    """

    around: Graph
    node: Node

    @cached_property
    def body(self) -> Graph:
        """With the constants of the graph around that it reads as its own."""
        ((_, body),) = body_graphs(self.around, self.node)
        return body

    @cached_property
    def states(self) -> list[State]:
        """In their order."""
        outputs = [*self.node.outputs, *[TensorName("")] * len(self.body.outputs)]
        return [
            State(self.body.inputs[_N_BEFORE + i], self.behind(self.body.outputs[_N_AFTER + i]), first, outputs[i])
            for i, first in enumerate(self.node.inputs[_N_BEFORE:])
        ]

    @property
    def collected(self) -> Iterator[tuple[TensorName, TensorName]]:
        """What each step writes, and the tensor around in which all steps are joined along a first axis."""
        n = len(self.states)
        for name, outer in zip(self.body.outputs[_N_AFTER + n :], self.node.outputs[n:], strict=False):
            yield self.behind(name), outer

    def behind(self, name: TensorName) -> TensorName:
        """What a tensor of the body is another name of."""
        while (node := self.body.producer.get(name)) is not None and node.op_type == "Identity":
            name = node.inputs[0]
        return name

    def outside(self, name: TensorName) -> TensorName | None:
        """The tensor around that one of the body is at every step; None where it may be another one at each."""
        name = self.behind(name)
        if name in self.body.producer or name in self.body.inputs[:_N_BEFORE]:
            return None
        for state in self.states:
            if state.read == name:
                return state.first if state.written == name else None
        return name if self.around.has_tensor(name) else None

    def constant(self, name: TensorName) -> npt.NDArray[np.generic] | None:
        """The value of a tensor of the body; None where it is no constant, and not taken out of one."""
        if self.body.is_constant(name):
            return self.body.constant(name)
        node = self.body.producer.get(name)
        if node is not None and node.op_type in _TAKING:
            return self._taken(node, name)
        outer = self.outside(name)
        return self.around.constant(outer) if outer is not None and self.around.is_constant(outer) else None

    def _taken(self, node: Node, name: TensorName) -> npt.NDArray[np.generic] | None:
        found = {each: self.constant(each) for each in node.inputs if each}
        values = {str(each): value for each, value in found.items() if value is not None}
        if len(values) < len(found):
            return None
        inputs = [helper.make_tensor_value_info(each, 0, None) for each in values]
        output = helper.make_tensor_value_info(name, 0, None)
        graph = helper.make_graph([self.body.copy_of(node)], "taken", inputs, [output])
        model = helper.make_model(graph, opset_imports=self.around.model.opset_import)
        (taken,) = ReferenceEvaluator(model).run(None, values)
        return np.asarray(taken)

    def steps_ahead(self, name: TensorName) -> int | None:
        """How far beyond the number of the present step, which is 0 at first, a counter is; None for what is none."""
        node = self.body.producer.get(name)
        if name == self.body.inputs[0]:
            return 0
        if node is None:
            return self._steps_of_state(name)
        if node.op_type in _PASSING:
            return self.steps_ahead(node.inputs[0])
        if node.op_type != "Add":
            return None
        for counted, added in (node.inputs, node.inputs[::-1]):
            more = self._integer(added)
            ahead = None if more is None else self.steps_ahead(counted)
            if more is not None and ahead is not None:
                return ahead + more
        return None

    def _steps_of_state(self, name: TensorName) -> int | None:
        for state in self.states:
            step = self.body.producer.get(state.written)
            if state.read == name and step is not None and step.op_type == "Add" and name in step.inputs:
                (added,) = [each for each in step.inputs if each != name] or [name]
                start = self.around.constant(state.first) if self.around.is_constant(state.first) else None
                if self._integer(added) == 1 and start is not None and start.size == 1 and start.dtype.kind == "i":
                    return int(start.item())
        return None

    def _integer(self, name: TensorName) -> int | None:
        value = self.constant(name)
        return int(value.item()) if value is not None and value.size == 1 and value.dtype.kind == "i" else None

    def goes_through(self, sequence: TensorName) -> bool:
        """Whether there is a step for each slice of a tensor of the graph around, along its first axis."""
        trips, sizes = self.node.inputs[0], self.around.sizes(sequence)
        if not trips or not sizes or not self._goes_on_to_the_last_step:
            return False
        if self.around.is_constant(trips):
            return sizes[0] == int(self.around.constant(trips).item())
        return self._is_length(self._root(trips), sequence)

    def _is_length(self, name: TensorName, sequence: TensorName) -> bool:
        node = self.around.producer.get(name)
        is_first = False
        while node is not None and node.op_type != "Shape":
            is_first = is_first or self._takes_first(node)
            if not (node.op_type in (*_PASSING, "Squeeze") or self._takes_first(node)):
                return False
            node = self.around.producer.get(node.inputs[0])
        return is_first and node is not None and node.inputs[0] == sequence and not node.attributes.get("start", 0)

    def _takes_first(self, node: Node) -> bool:
        """Whether it takes the first of several elements."""
        constants = [self.around.constant(name) for name in node.inputs[1:] if name and self.around.is_constant(name)]
        values = [int(array.item()) for array in constants if array.size == 1]
        if node.op_type == "Gather":
            return values == [0]
        return node.op_type == "Slice" and len(node.inputs) == 1 + len(values) and values[:3] in ([0, 1], [0, 1, 0])

    def _root(self, name: TensorName) -> TensorName:
        """Of the graph around, without what changes the type alone."""
        while (node := self.around.producer.get(name)) is not None and node.op_type in _PASSING:
            name = node.inputs[0]
        return name

    @property
    def _goes_on_to_the_last_step(self) -> bool:
        """Whether no condition ends it before."""
        first = next(iter(self.node.inputs[1:2]), None)
        return (not first or self._is_true_before(first)) and self._is_true(self.body.outputs[0])

    def _is_true(self, name: TensorName) -> bool:
        """Whether what a step writes is true but for the last step."""
        if name == self.body.inputs[1]:
            return True
        value = self.constant(name)
        if value is not None:
            return bool(value.all())
        node = self.body.producer.get(name)
        if node is None:
            return False
        if node.op_type in _PASSING:
            return self._is_true(node.inputs[0])
        if node.op_type == "And":
            return all(map(self._is_true, node.inputs))
        ahead = self.steps_ahead(node.inputs[0]) if node.op_type in _LATEST else None
        return ahead is not None and ahead <= _LATEST[node.op_type] and self._is_number_of_steps(node.inputs[1])

    def _is_true_before(self, name: TensorName) -> bool:
        """The same before the first step, where there is one."""
        if self.around.is_constant(name):
            return bool(self.around.constant(name).all())
        node = self.around.producer.get(name)
        if node is None:
            return False
        if node.op_type in _PASSING:
            return self._is_true_before(node.inputs[0])
        if node.op_type == "And":
            return all(map(self._is_true_before, node.inputs))
        if node.op_type != "Less" or not self.around.is_constant(node.inputs[0]):
            return False
        is_start = not self.around.constant(node.inputs[0]).any()
        return is_start and self._root(node.inputs[1]) == self._root(self.node.inputs[0])

    def _is_number_of_steps(self, name: TensorName) -> bool:
        trips = self.node.inputs[0]
        while (node := self.body.producer.get(name)) is not None and node.op_type in _PASSING:
            name = node.inputs[0]
        value, outer = self.constant(name), self.outside(name)
        if value is not None and self.around.is_constant(trips):
            return value.size == 1 and float(value.item()) == float(self.around.constant(trips).item())
        return outer is not None and self._root(outer) == self._root(trips)
