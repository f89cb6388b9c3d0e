"""Layer norms that are written by their moments: multiplied out, as TensorFlow has them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from onnx import helper

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.edits import Edit, Parts
from autoquant.model.graph import Graph, Node
from autoquant.model.norms import is_over_last
from autoquant.model.unread import drop_unread

__all__ = ["fuse_moments"]

_OPSET = 17
"""From it on there is a LayerNormalization."""
_LINES = 3
"""Axes where a GlobalAveragePool is over the last one alone, as tf2onnx writes such a mean."""
_MOST_TERMS = 4


def fuse_moments(model: Model) -> Model:
    """A layer norm over the last axis that is multiplied out becomes a LayerNormalization.

    TensorFlow and Keras compute ``x * k + (bias - mean * k)`` where ``k = scale / sqrt(variance + epsilon)``, JAX
    ``(x - mean) * k + bias``: onnxruntime fuses neither.
    """
    if opset_of(model) < _OPSET:
        return model
    edit = Edit(Graph(model))
    for node in edit.graph.nodes:
        found = _norm(edit.graph, node) if node.op_type in ("Add", "Mul", "Sub") else None
        if found is not None:
            parts = Parts(edit, node)
            read = [found.source, parts.constant("scale", found.scale), parts.constant("bias", found.bias)]
            proto = helper.make_node("LayerNormalization", read, [node.outputs[0]], node.name)
            proto.attribute.extend([helper.make_attribute("axis", -1), helper.make_attribute("epsilon", found.epsilon)])
            edit.replaced[node.index] = (proto,)
    return drop_unread(edit.model()) if edit.replaced else model


@dataclass(frozen=True, slots=True)
class _Norm:
    """Of what is normalised, with vectors of as many elements as its last axis has."""

    source: TensorName
    scale: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    epsilon: float


@dataclass(frozen=True, slots=True)
class _Term:
    """Of a sum: a tensor and whether it is subtracted."""

    name: TensorName
    is_negative: bool


def _norm(graph: Graph, node: Node) -> _Norm | None:
    terms = list(_terms(graph, node.outputs[0]))
    biases = [term for term in terms if graph.is_constant(term.name)]
    products = [term for term in terms if term not in biases]
    if len(terms) > _MOST_TERMS or len(biases) > 1 or not 1 <= len(products) <= 2:
        return None
    for first in _products(graph, products[0]):
        for second in _products(graph, products[1]) if len(products) > 1 else (None,):
            found = _of_products(graph, first, second)
            if found is not None:
                source, factor = found
                size = (graph.sizes(source) or (None,))[-1]
                bias = np.zeros(1, np.float32) if not biases else _signed(graph, biases[0])
                return None if size is None else _scaled(graph, source, factor, bias, size)
    return None


def _terms(graph: Graph, name: TensorName, *, is_negative: bool = False, is_first: bool = True) -> Iterator[_Term]:
    """What a tensor is the sum of, as far as nothing else reads the sums between."""
    node = graph.producer.get(name)
    is_own = node is not None and (is_first or graph.only_reader(name) is not None)
    if node is None or not is_own or node.op_type not in ("Add", "Neg", "Sub"):
        yield _Term(name, is_negative)
        return
    for i, read in enumerate(node.inputs):
        turns = node.op_type == "Neg" or (node.op_type == "Sub" and i == 1)
        yield from _terms(graph, read, is_negative=is_negative != turns, is_first=False)


def _signed(graph: Graph, term: _Term) -> npt.NDArray[np.float32]:
    value = graph.constant(term.name)
    return np.asarray(-value if term.is_negative else value, np.float32)


def _products(graph: Graph, term: _Term) -> Iterator[tuple[_Term, TensorName]]:
    """The factors of a term, either one first, which then has the sign."""
    node = graph.producer.get(term.name)
    if node is not None and node.op_type == "Mul":
        for value, factor in (node.inputs, node.inputs[::-1]):
            negated = graph.producer.get(value)
            if negated is not None and negated.op_type == "Neg":
                yield _Term(negated.inputs[0], not term.is_negative), factor
            else:
                yield _Term(value, term.is_negative), factor


def _of_products(
    graph: Graph, first: tuple[_Term, TensorName], second: tuple[_Term, TensorName] | None
) -> tuple[TensorName, TensorName] | None:
    """What has its mean subtracted, and the factor; None where that is not so."""
    (value, factor), source = first, None
    if second is None:
        centred = graph.producer.get(value.name)
        if centred is not None and centred.op_type == "Sub" and not value.is_negative:
            source, mean = centred.inputs
            return (source, factor) if _mean_source(graph, mean) == source else None
        return None
    other, same = second
    if factor != same or value.is_negative == other.is_negative:
        return None
    source, mean = (other.name, value.name) if value.is_negative else (value.name, other.name)
    return (source, factor) if _mean_source(graph, mean) == source else None


def _scaled(
    graph: Graph, source: TensorName, factor: TensorName, bias: npt.NDArray[np.float32], size: int
) -> _Norm | None:
    """The norm, where the factor is a vector divided by the root of the variance and an epsilon."""
    scale, root = np.ones(1, np.float32), factor
    product = graph.producer.get(factor)
    if product is not None and product.op_type == "Mul":
        constants = [name for name in product.inputs if graph.is_constant(name)]
        others = [name for name in product.inputs if not graph.is_constant(name)]
        if len(constants) != 1 or len(others) != 1:
            return None
        scale, root = np.asarray(graph.constant(constants[0]), np.float32), others[0]
    epsilon = _epsilon(graph, root, source)
    vectors = [_vector(value, size) for value in (scale, bias)]
    if epsilon is None or vectors[0] is None or vectors[1] is None or source not in graph.float_tensors:
        return None
    return _Norm(source, vectors[0], vectors[1], epsilon)


def _vector(value: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.float32] | None:
    """As many elements as the last axis has; None where there are others for each place."""
    is_last = value.size in (1, size) and value.size == max(value.shape[-1:], default=1)
    return np.broadcast_to(value.reshape(-1), size).copy() if is_last else None


def _epsilon(graph: Graph, root: TensorName, source: TensorName) -> float | None:
    """What is added to the variance of the source, of whose root a tensor is the reciprocal."""
    total = graph.producer.get(_under_root(graph, root))
    if total is None or total.op_type != "Add":
        return None
    constants = [graph.constant(name) for name in total.inputs if graph.is_constant(name)]
    variances = [name for name in total.inputs if not graph.is_constant(name)]
    if len(constants) != 1 or constants[0].size != 1 or len(variances) != 1:
        return None
    square = graph.producer.get(_mean_source(graph, variances[0]) or TensorName(""))
    deviation = graph.producer.get(square.inputs[0]) if square is not None and _squares(graph, square) else None
    if deviation is None or deviation.op_type != "Sub":
        return None
    pairs = (deviation.inputs, deviation.inputs[::-1])
    is_own = any(value == source and _mean_source(graph, mean) == source for value, mean in pairs)
    return float(constants[0].item()) if is_own else None


def _under_root(graph: Graph, name: TensorName) -> TensorName:
    """What a tensor is the reciprocal root of; empty where it is none."""
    node = graph.producer.get(name)
    if node is not None and node.op_type == "Pow":
        return node.inputs[0] if _is_number(graph, node.inputs[1], -0.5) else TensorName("")
    is_reciprocal = node is not None and (
        node.op_type == "Reciprocal" or (node.op_type == "Div" and _is_number(graph, node.inputs[0], 1.0))
    )
    root = graph.producer.get(node.inputs[-1]) if node is not None and is_reciprocal else None
    return root.inputs[0] if root is not None and root.op_type == "Sqrt" else TensorName("")


def _squares(graph: Graph, node: Node) -> bool:
    if node.op_type == "Mul":
        return node.inputs[0] == node.inputs[1]
    return node.op_type == "Pow" and _is_number(graph, node.inputs[1], 2.0)


def _is_number(graph: Graph, name: TensorName, value: float) -> bool:
    return graph.is_constant(name) and graph.constant(name).size == 1 and float(graph.constant(name).item()) == value


def _mean_source(graph: Graph, name: TensorName) -> TensorName | None:
    """What a tensor is the mean of along the last axis; None where it is none."""
    node = graph.producer.get(name)
    if node is None:
        return None
    is_pooled = node.op_type == "GlobalAveragePool" and graph.rank(node.inputs[0]) == _LINES
    is_reduced = node.op_type == "ReduceMean" and is_over_last(graph, node)
    return node.inputs[0] if is_pooled or is_reduced else None
