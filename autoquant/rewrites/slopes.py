"""PRelu that exporters of TensorFlow write with other operators, as one that others know.

Its argument stays untouched, and is given back where there is nothing to do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph, Node
from autoquant.rewrites.edits import Edit, of_each_node

__all__ = ["fuse_prelu"]


@dataclass(frozen=True, slots=True)
class _Negative:
    """What is below 0 of a tensor, and 0 elsewhere, times a factor.

    Attributes:
        source: The tensor.
        factor: Shape that broadcasts with it.
        nodes: That compute it; nothing else reads what is between them.
    """

    source: TensorName
    factor: npt.NDArray[np.float32]
    nodes: tuple[Node, ...]


@of_each_node()
def fuse_prelu(edit: Edit, node: Node) -> None:
    """``Relu(x) + a (x - |x|)`` becomes a PRelu with slopes ``2 a``, ``Relu(x) + a Relu(-x)`` one with slopes ``-a``.

    Graphs of TensorFlow have no such operator. Behind a Relu there is nothing below 0, and the Relu alone is left. What
    PRelu is best written with is for others.
    """
    graph = edit.graph
    found = next(_matches(graph, node), None) if node.op_type == "Add" else None
    if found is None or not _is_as_wide(graph, found, node.outputs[0]):
        return
    relu = _relu_before(graph, found, node)
    if relu is None:
        slope = edit.constant(f"{node.name}_slope", found.factor)
        made = helper.make_node("PRelu", [found.source, slope], list(node.outputs), name=node.name)
    else:
        made = helper.make_node("Relu", list(relu.inputs), list(node.outputs), name=relu.name)
        edit.replaced[relu.index] = ()
    edit.replaced.update({each.index: () for each in found.nodes})
    edit.replaced[node.index] = (made,)


def _relu_before(graph: Graph, found: _Negative, add: Node) -> Node | None:
    """A Relu before all of it, which then does nothing; None where there is none, or others read what it writes."""
    relu = graph.producer.get(found.source)
    if relu is None or relu.op_type != "Relu" or found.source in graph.pinned:
        return None
    own = {add.index, *(node.index for node in found.nodes)}
    return relu if all(reader.index in own for reader in graph.consumers[found.source]) else None


def _matches(graph: Graph, add: Node) -> Iterator[_Negative]:
    for positive, other in (add.inputs, add.inputs[::-1]):
        relu, negative = graph.producer.get(positive), _negative(graph, other)
        if relu is None or relu.op_type != "Relu" or negative is None:
            continue
        if positive == negative.source:  # onnxruntime makes one Relu of two in a row
            yield negative
        if relu.inputs[0] != negative.source:
            continue
        gone = () if graph.only_reader(positive) is None else (relu,)
        yield _Negative(negative.source, negative.factor, (*negative.nodes, *gone))


def _negative(graph: Graph, tensor: TensorName) -> _Negative | None:
    """Of a tensor that the sum alone reads."""
    node = graph.producer.get(tensor)
    if node is None or graph.only_reader(tensor) is None:
        return None
    if node.op_type == "Mul" and sum(map(graph.is_constant, node.inputs)) == 1:
        read, constant = sorted(node.inputs, key=graph.is_constant)
        found = _negative(graph, read)
        if found is None:
            return None
        factor = found.factor * graph.constant(constant).astype(np.float32, copy=False)
        return _Negative(found.source, np.asarray(factor), (*found.nodes, node))
    made = [graph.producer.get(name) for name in node.inputs]
    if node.op_type == "Sub" and made[1] is not None and made[1].op_type == "Abs":
        source, absolute = node.inputs
        is_of_both = made[1].inputs[0] == source and graph.only_reader(absolute) is not None
        return _Negative(source, np.array(2, np.float32), (made[1], node)) if is_of_both else None
    if node.op_type == "Relu" and made[0] is not None and made[0].op_type == "Neg":
        is_alone = graph.only_reader(node.inputs[0]) is not None
        return _Negative(made[0].inputs[0], np.array(-1, np.float32), (made[0], node)) if is_alone else None
    return None


def _is_as_wide(graph: Graph, found: _Negative, output: TensorName) -> bool:
    """Whether slopes broadcast with what PRelu reads, as they have to, and do not widen it."""
    sizes, shape = graph.sizes(found.source) or (), found.factor.shape
    if found.source not in graph.float_tensors or len(shape) > len(sizes) or graph.rank(output) != len(sizes):
        return False
    return all(size in (1, known) for size, known in zip(shape[::-1], sizes[::-1], strict=False))
