"""Nodes and constants that come in place of others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, copy_of, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.names import NewNames
from autoquant.model.subgraphs import read_by

__all__ = ["Edit", "Parts", "of_each_node", "without_unused"]


@dataclass(slots=True)
class Edit:
    """What changes in a model, which itself stays as it is.

    Attributes:
        graph: Of the model.
        names: Of new tensors.
        replaced: What comes in place of a node, by its index.
        constants: New ones.
    """

    graph: Graph
    names: NewNames = field(init=False)
    replaced: dict[int, Sequence[onnx.NodeProto]] = field(default_factory=dict)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    _claimed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.names = NewNames(self.graph)

    def constant(self, wanted: str, values: npt.ArrayLike) -> TensorName:
        """A new one; its name, with underscores behind what is wanted until no tensor has it."""
        name = self.names.new(wanted)
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def claim(self, *nodes: Node) -> bool:
        """Whether none of the nodes was claimed before; they are from now on."""
        indices = {node.index for node in nodes}
        if indices & self._claimed:
            return False
        self._claimed |= indices
        return True

    def model(self) -> Model:
        """With other nodes, and without constants that nothing reads any more; as it is where nothing is replaced.

        A new name that a node has which stays gets an underscore.
        """
        if not self.replaced:
            return self.graph.model
        copy = copy_of(self.graph.model)
        del copy.graph.node[:]
        old = self.graph.model.graph.node
        taken = {proto.name for i, proto in enumerate(old) if i not in self.replaced}
        for i, proto in enumerate(old):
            copy.graph.node.extend(self.replaced.get(i, (proto,)))
            for made in copy.graph.node[len(copy.graph.node) - len(self.replaced[i]) :] if i in self.replaced else ():
                while made.name and made.name in taken:
                    made.name += "_"
        copy.graph.initializer.extend(self.constants)
        return without_unused(copy)


@dataclass(slots=True)
class Parts:
    """Nodes in place of one, which are called after it.

    Attributes:
        edit: Of the model.
        node: That is replaced once ``edit`` is told so.
        nodes: So far.
    """

    edit: Edit
    node: Node
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        *,
        part: str = "",
        output: TensorName | None = None,
        **attributes: Any,
    ) -> TensorName:
        """Another node; what it writes.

        Args:
            op_type: Of it.
            inputs: Of it.
            part: What it is called behind the name of the replaced one.
            output: By default a new tensor that is called after it.
            attributes: Of it.
        """
        name = f"{self.node.name}_{part}" if part else self.node.name
        written = output or self.edit.names.new(f"{name}_out")
        self.nodes.append(helper.make_node(op_type, inputs, [written], name=name, **attributes))
        return written

    def constant(self, called: str, values: npt.ArrayLike) -> TensorName:
        """A new one, by what it is called behind the name of the replaced node."""
        return self.edit.constant(f"{self.node.name}_{called}", values)


def of_each_node(opset: int = 0) -> Callable[[Callable[[Edit, Node], None]], Callable[[Model], Model]]:
    """What replaces a node, or leaves it, becomes a rewrite of models, which goes through their nodes in order.

    Args:
        opset: Models of older ones stay as they are.
    """

    def rewrite_of(write: Callable[[Edit, Node], None]) -> Callable[[Model], Model]:
        @wraps(write)
        def rewrite(model: Model) -> Model:
            if opset_of(model) < opset:
                return model
            edit = Edit(graph_of(model))
            for node in edit.graph.nodes:
                write(edit, node)
            return edit.model()

        return rewrite

    return rewrite_of


def without_unused(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same object without initializers that nothing reads, and types of tensors that are gone."""
    made = {name for node in model.graph.node for name in node.output} | {t.name for t in model.graph.initializer}
    for i in reversed(range(len(model.graph.value_info))):
        if model.graph.value_info[i].name not in made:
            del model.graph.value_info[i]
    used = {name for node in model.graph.node for name in read_by(node)}
    used.update(value.name for value in model.graph.output)
    for i in reversed(range(len(model.graph.initializer))):  # each that is kept anew would be copied
        if model.graph.initializer[i].name not in used:
            del model.graph.initializer[i]
    return model
