"""What decides between a candidate and the model that it was made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.around import BRANCH, OTHERWISE, Around
from autoquant.model.copies import Model, opset_of, to_bytes
from autoquant.model.graph import Graph, Node
from autoquant.model.names import NewNames
from autoquant.rewrites.taken import Choice

__all__ = ["Sizes", "Taken", "guarded"]

Sizes = Mapping[TensorName, Sequence[int | None]]
"""Of inputs, None where they take any."""
_SHAPE_HAS_ENDS, _REDUCES_TRUTHS = 15, 20
"""Opsets from which on Shape takes a part of the axes, and ReduceMin truth values."""


@dataclass(frozen=True, slots=True)
class Taken:
    """An If and what its condition is for all that a candidate is made for.

    Attributes:
        graph: In which it is.
        choice: It.
        holds: The condition.
    """

    graph: Graph
    choice: Choice
    holds: bool


def guarded(model: Model, taken: Sequence[Sequence[Taken]], sizes: Sizes) -> Around:
    """What runs a candidate where conditions are as they are taken and inputs have these sizes, and else this model.

    Args:
        model: Of the opset of candidates.
        taken: Those of its main graph, then those of the branches that are taken there, and so on.
        sizes: Which candidates have fixed, and the model has not.
    """
    deciding = _Deciding(NewNames(Graph(model)), opset_of(model))
    condition = deciding.condition(taken, sizes)
    otherwise = onnx.GraphProto()
    otherwise.CopyFrom(model.graph)
    del otherwise.input[:]
    whole, frame = (_with_branch(model, deciding, condition, each) for each in (otherwise, _empty(model.graph)))
    return Around(whole, frame)


def _with_branch(model: Model, deciding: "_Deciding", condition: str, otherwise: onnx.GraphProto) -> bytes:
    choice = helper.make_node("If", [condition], [value.name for value in model.graph.output], name=BRANCH)
    choice.attribute.append(helper.make_attribute(OTHERWISE, otherwise))
    graph = onnx.GraphProto(
        name=model.graph.name or "graph",
        node=[*deciding.nodes, choice],
        input=model.graph.input,
        output=model.graph.output,
        initializer=deciding.constants,
    )
    return to_bytes(onnx.ModelProto(opset_import=model.opset_import, graph=graph))


def _empty(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Of the same outputs, without any element but in those that have no axes."""
    found = onnx.GraphProto(name=graph.name or "graph")
    for value in graph.output:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        nothing = np.full((0,) * len(tensor.shape.dim), "" if dtype.kind == "O" else 0, dtype)
        name = f"{BRANCH}_empty_{value.name}"
        found.initializer.append(numpy_helper.from_array(nothing, name))
        found.node.append(helper.make_node("Identity", [name], [value.name]))
        found.output.append(helper.make_tensor_value_info(value.name, tensor.elem_type, None))
    return found


@dataclass(slots=True)
class _Deciding:
    """Nodes in the making.

    Attributes:
        names: Of what they write, which nothing in a branch has.
        opset: Of the model.
        nodes: Of the main graph.
        constants: That they read.
    """

    names: NewNames
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    _known: dict[str, str] = field(default_factory=dict)
    """What tensors of the graphs are called here."""

    def condition(self, taken: Sequence[Sequence[Taken]], sizes: Sizes) -> str:
        """Whether conditions are as they are taken and inputs have these sizes."""
        first, *inner = taken
        asked = [*self._asked(first), *([self._has_sizes(sizes)] if sizes else [])]
        return self._all_inside(asked, inner)

    def _all_inside(self, asked: Sequence[str], inner: Sequence[Sequence[Taken]]) -> str:
        """Those of branches are computed where these run alone: elsewhere they may fail."""
        found, *others = asked
        for other in others:
            found = self._node("And", [found, other])
        if not inner:
            return found
        around, self.nodes = self.nodes, []
        held = self._node("Identity", [self._all_inside(self._asked(inner[0]), inner[1:])])
        then, self.nodes = self._body(held), []
        no = self._node("Identity", [self._constant(np.array(False))])
        otherwise, self.nodes = self._body(no), around
        return self._node("If", [found], then_branch=then, else_branch=otherwise)

    def _body(self, output: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(output, onnx.TensorProto.BOOL, None)
        return onnx.GraphProto(name=output, node=self.nodes, output=[value])

    def _asked(self, taken: Sequence[Taken]) -> list[str]:
        """Whether each condition is as it is taken."""
        found = {each.choice.condition: each for each in taken}.values()
        for node, graph in ((node, each.graph) for each in found for node in each.choice.nodes):
            if self._known.keys().isdisjoint(node.outputs):
                self._copy(node, graph)
        conditions = [(self._known.get(each.choice.condition, each.choice.condition), each.holds) for each in found]
        return [name if holds else self._node("Not", [name]) for name, holds in conditions]

    def _has_sizes(self, sizes: Sizes) -> str:
        shapes = [self._sizes_of(name, each) for name, each in sizes.items()]
        found = shapes[0] if len(shapes) == 1 else self._node("Concat", shapes, axis=0)
        wanted = [size for each in sizes.values() for size in each if size is not None]
        equal = self._node("Equal", [found, self._integers(wanted)])
        return equal if len(wanted) == 1 else self._all(equal)

    def _sizes_of(self, name: TensorName, sizes: Sequence[int | None]) -> str:
        """Those that are fixed."""
        axes = [axis for axis, size in enumerate(sizes) if size is not None]
        if len(axes) == len(sizes):
            return self._node("Shape", [name])
        if self.opset >= _SHAPE_HAS_ENDS and axes == list(range(axes[0], axes[-1] + 1)):
            return self._node("Shape", [name], start=axes[0], end=axes[-1] + 1)
        return self._node("Gather", [self._node("Shape", [name]), self._integers(axes)])

    def _all(self, truths: str) -> str:
        if self.opset >= _REDUCES_TRUTHS:
            return self._node("ReduceMin", [truths], keepdims=0)
        numbers = self._node("Cast", [truths], to=onnx.TensorProto.INT32)
        return self._node("Cast", [self._node("ReduceMin", [numbers], keepdims=0)], to=onnx.TensorProto.BOOL)

    def _copy(self, node: Node, graph: Graph) -> None:
        proto = graph.copy_of(node)
        for name in node.inputs:
            if graph.is_constant(name) and name not in self._known:
                self._known[name] = self._constant(graph.constant(name))
        proto.input[:] = [self._known.get(name, name) for name in node.inputs]
        self._known.update({name: self._new(node.op_type) for name in node.outputs if name})
        proto.output[:] = [self._known.get(name, name) for name in node.outputs]
        self._append(proto)

    def _node(self, op_type: str, inputs: Sequence[str], **attributes: int | onnx.GraphProto) -> str:
        name = self._new(op_type)
        proto = helper.make_node(op_type, inputs, [name])
        proto.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._append(proto)
        return name

    def _append(self, proto: onnx.NodeProto) -> None:
        proto.name = next(filter(None, proto.output))
        self.nodes.append(proto)

    def _integers(self, values: Sequence[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, values: npt.NDArray[np.generic]) -> str:
        name = self._new("constant")
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def _new(self, what: str) -> TensorName:
        return self.names.new(f"{BRANCH}_{what.lower().replace(':', '_')}")
