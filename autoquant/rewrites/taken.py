"""Branches of If that the values of inputs choose."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, copy_of
from autoquant.model.graph import Graph, Node, draws
from autoquant.model.kept import graph_of
from autoquant.model.names import NewNames
from autoquant.model.ops import LINEAR
from autoquant.model.subgraphs import bodies_of, graphs_of, named_bodies_of, nodes_in_bodies, rename_tensors

__all__ = ["Choice", "choices_of", "conditions_of", "with_taken"]

_PRODUCTS = (*LINEAR, "GRU", "LSTM", "RNN")
"""Operators for which a branch is worth being searched."""
_MOST_NODES = 32
"""A condition that takes more is no number that says what is wanted."""
_SIZES = ("Shape", "Size")


@dataclass(frozen=True, slots=True)
class Choice:
    """An If of the main graph whose condition follows from the values of inputs.

    Attributes:
        node: It.
        nodes: That compute the condition, in their order.
        inputs: By whose values it is chosen.
    """

    node: Node
    nodes: tuple[Node, ...]
    inputs: tuple[TensorName, ...]

    @property
    def condition(self) -> TensorName:
        """The tensor."""
        return self.node.inputs[0]


def choices_of(model: Model) -> list[Choice]:
    """Those with products in their branches; where sizes of inputs alone choose, these can be fixed."""
    worth = [i for i, proto in enumerate(model.graph.node) if proto.op_type == "If" and _has_products(proto)]
    if not worth:
        return []
    graph = graph_of(model)
    found = (_choice(graph, graph.nodes[i]) for i in worth)
    return [choice for choice in found if choice is not None]


def conditions_of(model: Model, choices: Sequence[Choice]) -> Model:
    """A model of the same inputs that computes their conditions alone."""
    nodes = {node.index: model.graph.node[node.index] for choice in choices for node in choice.nodes}
    read = {name for node in nodes.values() for name in node.input}
    names = [f"{i}_of_{choice.condition}" for i, choice in enumerate(choices)]
    ends = [helper.make_node("Identity", [c.condition], [name]) for c, name in zip(choices, names, strict=True)]
    graph = onnx.GraphProto(
        name="conditions",
        node=[*(nodes[index] for index in sorted(nodes)), *ends],
        input=model.graph.input,
        output=[helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, None) for name in names],
        initializer=[tensor for tensor in model.graph.initializer if tensor.name in read],
    )
    return onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, graph=graph)


def with_taken(model: Model, taken: Mapping[int, bool]) -> Model:
    """The model with one branch in place of each of these Ifs.

    Args:
        model: Stays as it is.
        taken: Whether the condition holds, by index of the If.
    """
    copy, names, seen = copy_of(model), NewNames(graph_of(model)), _made(model.graph)
    del copy.graph.node[:]
    for i, node in enumerate(model.graph.node):
        if i not in taken:
            copy.graph.node.append(node)
            continue
        body = onnx.GraphProto()
        body.CopyFrom(dict(named_bodies_of(node))["then_branch" if taken[i] else "else_branch"])
        made = set[str]().union(*map(_made, graphs_of(body)))
        rename_tensors(body, {name: names.new(name) for name in sorted(made & seen)})
        seen |= set[str]().union(*map(_made, graphs_of(body)))
        _write_to(body, node.output)
        copy.graph.node.extend(body.node)
        copy.graph.initializer.extend(body.initializer)
        copy.graph.value_info.extend(body.value_info)
    return copy


def _choice(graph: Graph, node: Node) -> Choice | None:
    """None where sizes alone are in the condition, or much has to be computed for it."""
    nodes, values, seen = dict[int, Node](), set[TensorName](), set[tuple[TensorName, bool]]()
    waiting = [(node.inputs[0], True)]
    while waiting:
        name, is_value = waiting.pop()
        if (name, is_value) in seen:
            continue
        seen.add((name, is_value))
        producer = graph.producer.get(name)
        if producer is None:
            values |= {name} if is_value and name in graph.inputs else set()
            continue
        nodes[producer.index] = producer
        if not _is_cheap(graph.model.graph.node[producer.index]) or len(nodes) > _MOST_NODES:
            return None
        waiting += [(read, is_value and producer.op_type not in _SIZES) for read in producer.inputs if read]
    if not values:
        return None
    return Choice(node, tuple(nodes[i] for i in sorted(nodes)), tuple(n for n in graph.inputs if n in values))


def _is_cheap(proto: onnx.NodeProto) -> bool:
    return proto.op_type not in _PRODUCTS and not draws(proto) and not any(True for _ in bodies_of(proto))


def _has_products(proto: onnx.NodeProto) -> bool:
    return any(inner.op_type in _PRODUCTS for inner in nodes_in_bodies(proto))


def _made(graph: onnx.GraphProto) -> set[str]:
    """Names of tensors that a graph has itself."""
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    return given.union(*(node.output for node in graph.node)) - {""}


def _write_to(body: onnx.GraphProto, names: Sequence[str]) -> None:
    """Let a body write the outputs of its If."""
    own, new = {name for node in body.node for name in node.output}, dict[str, str]()
    for value, name in zip(body.output, names, strict=True):
        if value.name in own and value.name not in new:
            new[value.name] = name
        else:
            body.node.append(helper.make_node("Identity", [value.name], [name]))
    rename_tensors(body, new)
