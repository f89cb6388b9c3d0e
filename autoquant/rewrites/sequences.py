"""Products of the steps of a sequence, which a Loop goes through."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.subgraphs import bodies_of, read_by
from autoquant.rewrites.edits import Edit, of_each_node
from autoquant.rewrites.invariants import N_COUNTED, constant_states

__all__ = ["multiply_sequences"]

_MATRIX = 2


@of_each_node()
def multiply_sequences(edit: Edit, node: Node) -> None:
    """What each step of a Loop multiplies with a constant matrix, of all steps at once, before the Loop.

    ``MatMul(Gather(sequence, step), w)`` becomes ``Gather(MatMul(sequence, w), step)``: rows of a product are products
    of rows. So Keras writes LSTMs and GRUs whose steps are masked. Of a table, which a decoder looks its last word up
    in, nothing is multiplied: few rows of it are read.
    """
    if node.op_type == "Loop":
        proto = edit.graph.copy_of(node)
        steps = _Steps(edit.graph, proto)
        products = [each for each in steps.body.node if steps.is_product(each)]
        before = [_multiplied(edit, steps, each) for each in products]
        if before:
            _drop_unread(steps.body)
            edit.replaced[node.index] = [*before, proto]


@dataclass(slots=True)
class _Steps:
    """What the body of a Loop reads of sequences.

    Attributes:
        graph: Of the model.
        proto: A copy of the Loop.
        body: Its body.
    """

    graph: Graph
    proto: onnx.NodeProto
    body: onnx.GraphProto = field(init=False)
    _states: Mapping[str, str] = field(init=False)
    _made: Mapping[str, onnx.NodeProto] = field(init=False)

    def __post_init__(self) -> None:
        (self.body,) = bodies_of(self.proto)
        self._states = constant_states(self.proto, self.body)
        self._made = {name: node for node in self.body.node for name in node.output if name}

    def is_product(self, node: onnx.NodeProto) -> bool:
        """Of a step of a sequence from outside with a constant matrix."""
        step = self.step(node)
        if step is None or step.op_type != "Gather" or not _is_plain(node):
            return False
        sequence, weight = self.outside(step.input[0]), self.outside(node.input[1])
        if sequence is None or self.graph.is_constant(sequence) or self.graph.rank(sequence) == 1:
            return False
        is_matrix = weight is not None and self.graph.is_constant(weight) and self.graph.rank(weight) == _MATRIX
        is_first = all(a.name != "axis" or a.i == 0 for a in step.attribute)
        return is_matrix and is_first and self._counts(step.input[1])

    def step(self, product: onnx.NodeProto) -> onnx.NodeProto | None:
        """What computes the rows."""
        return self._made.get(product.input[0])

    def outside(self, name: str) -> TensorName | None:
        """What a tensor is called around the Loop; None for one of the body."""
        own = {value.name for value in self.body.input} | {tensor.name for tensor in self.body.initializer}
        if name in self._states:
            return TensorName(self._states[name])
        return None if name in own or name in self._made else TensorName(name)

    def _counts(self, name: str) -> bool:
        """Whether it is the number of the step, or a state that grows with each."""
        inputs = [value.name for value in self.body.input]
        if name not in inputs:
            return False
        place = inputs.index(name)
        if place == 0:
            return True
        grown = self._made.get(self.body.output[place - N_COUNTED + 1].name)
        while grown is not None and grown.op_type == "Identity":
            grown = self._made.get(grown.input[0])
        return grown is not None and grown.op_type == "Add" and name in grown.input


def _is_plain(node: onnx.NodeProto) -> bool:
    """Whether it is a product as it stands, and a bias that there may be: onnxruntime makes a Gemm of both."""
    usual = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
    is_usual = all(helper.get_attribute_value(a) == usual.get(a.name) for a in node.attribute)
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and is_usual)


def _multiplied(edit: Edit, steps: _Steps, product: onnx.NodeProto) -> onnx.NodeProto:
    """The product of all steps; that of one becomes a Gather of it, and an Add where there is a bias."""
    step = steps.step(product)
    assert step is not None
    whole = edit.names.new(f"{steps.proto.name}_{product.output[0]}_of_all")
    read = [steps.outside(name) or "" for name in (step.input[0], product.input[1])]
    written, bias = product.output[0], next(iter(product.input[2:]), "")
    row = edit.names.new(f"{written}_row") if bias else written
    product.CopyFrom(helper.make_node("Gather", [whole, step.input[1]], [row], name=product.name, axis=0))
    if bias:
        place = next(i for i, node in enumerate(steps.body.node) if row in node.output)
        added = helper.make_node("Add", [row, bias], [written], name=f"{product.name}_bias")
        steps.body.node.insert(place + 1, added)
    return helper.make_node("MatMul", read, [whole], name=whole)


def _drop_unread(body: onnx.GraphProto) -> None:
    """Steps of which all products are read instead."""
    read = {value.name for value in body.output} | {name for node in body.node for name in read_by(node)}
    for i in reversed(range(len(body.node))):
        if body.node[i].op_type == "Gather" and body.node[i].output[0] not in read:
            del body.node[i]
