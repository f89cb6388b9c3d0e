"""Convolutions of the same tensor whose results are added."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import bias_of, has_constant_bias, is_float_constant
from autoquant.model.windows import UNPADDED
from autoquant.rewrites.edits import Edit

__all__ = ["merge_branches"]

_MAX_PASSES = 16
Floats = npt.NDArray[np.float32]


def merge_branches(model: onnx.ModelProto) -> onnx.ModelProto:
    """Convs of one tensor with the same strides whose results are added or subtracted become one.

    The smaller kernel lies in the larger one, and its groups are parts of that one's, so that the Conv takes no more
    products than both. Networks like RepVGG are trained so and often exported before their branches are merged. The
    argument stays as it is, and is given back where there is nothing to do.

    References:
        Ding et al., "RepVGG: Making VGG-style ConvNets Great Again", CVPR 2021.
    """
    for _ in range(_MAX_PASSES):
        edit = Edit(graph_of(model))
        for node in edit.graph.nodes:
            if node.op_type in ("Add", "Sub"):
                _merge(edit, node)
        if not edit.replaced:
            return model
        model = edit.model()
    return model


@dataclass(frozen=True, slots=True)
class _Branch:
    """A Conv that a sum alone reads.

    Attributes:
        node: It.
        pads: Before each axis of places.
        ends: Behind each.
        n_groups: Of its channels.
        weight: Shape (outputs, inputs of a group, ...).
        bias: Of each output.
    """

    node: Node
    pads: tuple[int, ...]
    ends: tuple[int, ...]
    n_groups: int
    weight: Floats
    bias: Floats

    def holds(self, other: "_Branch") -> bool:
        """Whether the other one can be a part of it."""
        if self.node.inputs[0] != other.node.inputs[0] or self.n_groups > other.n_groups:
            return False
        if other.n_groups % self.n_groups or len(self.weight) != len(other.weight):
            return False
        strides = [list(each.node.attributes.get("strides", [1] * len(each.pads))) for each in (self, other)]
        return strides[0] == strides[1] and all(
            inner >= 0 and behind >= 0 and inner + size + behind == whole
            for inner, behind, size, whole in zip(
                self._inner(other), np.subtract(self.ends, other.ends), other.weight.shape[2:], self.weight.shape[2:],
                strict=True,
            )
        )  # fmt: skip

    def with_other(self, other: "_Branch", sign: int) -> tuple[Floats, Floats]:
        """Weight and bias of both in one, the other one with a sign."""
        weight, ends = self.weight.copy(), [int(places) for places in np.subtract(self.ends, other.ends)]
        around = [(0, 0), *zip(self._inner(other), ends, strict=True)]
        n_read, n_written = other.weight.shape[1], len(weight)
        for i, kernel in enumerate(other.weight):
            first = i // (n_written // other.n_groups) * n_read % weight.shape[1]
            weight[i, first : first + n_read] += np.float32(sign) * np.pad(kernel, around)
        return weight, self.bias + np.float32(sign) * other.bias

    def _inner(self, other: "_Branch") -> list[int]:
        return [int(places) for places in np.subtract(self.pads, other.pads)]


def _merge(edit: Edit, node: Node) -> None:
    """The second operand into the first, or into a Conv that the first adds to something else."""
    graph, sign = edit.graph, 1 if node.op_type == "Add" else -1
    for left, right in (node.inputs, node.inputs[::-1])[: 1 if sign < 0 else 2]:
        found, inner = _branch(graph, right), graph.producer.get(left)
        if found is None or inner is None or graph.only_reader(left) is not node:
            continue
        sums = [(node, left)]
        if inner.op_type == "Add":
            sums = [(inner, name) for name in inner.inputs]
        for writes, name in sums:
            other = _branch(graph, name)
            if other is not None and other.node is not found.node and _join(edit, node, writes, other, found, sign):
                return


def _join(edit: Edit, node: Node, inner: Node, one: _Branch, other: _Branch, sign: int) -> bool:
    if one.holds(other):
        weight, bias = one.with_other(other, sign)
        kept = one
    elif sign > 0 and other.holds(one):
        weight, bias = other.with_other(one, sign)
        kept = other
    else:
        return False
    if not edit.claim(node, inner, one.node, other.node):
        return False
    proto = edit.graph.copy_of(kept.node)
    names = edit.constant(f"{kept.node.name}_weight", weight), edit.constant(f"{kept.node.name}_bias", bias)
    proto.input[:] = [kept.node.inputs[0], *names]
    proto.output[0] = one.node.outputs[0] if inner is not node else node.outputs[0]
    edit.replaced |= {other.node.index: (), node.index: (), one.node.index: (proto,)}
    if inner is not node:
        rest = edit.graph.copy_of(inner)
        rest.output[0] = node.outputs[0]
        edit.replaced[inner.index] = (rest,)
    return True


def _branch(graph: Graph, name: TensorName) -> _Branch | None:
    node, reader = graph.producer.get(name), graph.only_reader(name)
    if node is None or node.op_type != "Conv" or reader is None or reader.inputs.count(name) > 1:
        return None
    if not is_float_constant(node.inputs[1], graph) or not has_constant_bias(node, graph):
        return None
    weight, bias = graph.constant(node.inputs[1]), bias_of(node)
    n_axes = weight.ndim - 2
    pads = [int(pad) for pad in node.attributes.get("pads", [0] * (2 * n_axes))]
    is_dilated = any(step != 1 for step in node.attributes.get("dilations", ()))
    if is_dilated or node.attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED[:1]:
        return None
    added = np.zeros(len(weight), np.float32) if bias is None else np.broadcast_to(graph.constant(bias), len(weight))
    n_groups = int(node.attributes.get("group", 1))
    return _Branch(node, tuple(pads[:n_axes]), tuple(pads[n_axes:]), n_groups, weight, added)
