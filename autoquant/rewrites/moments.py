"""Layer norms that are written by their moments, as TensorFlow, JAX and norms over channels have them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.copies import Model, opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.norms import squares
from autoquant.model.ops import clip_bounds
from autoquant.rewrites.edits import Edit, Parts
from autoquant.rewrites.moves import axes_of
from autoquant.rewrites.unread import drop_unread

__all__ = ["fuse_moments"]

_OPSET = 17
"""From it on there is a LayerNormalization."""
_LINES = 3
"""Axes where a GlobalAveragePool is over the last one alone, as tf2onnx writes such a mean."""
_CHANNELS = 1
_MOST_TERMS = 4
_Vector = npt.NDArray[np.float32]


def fuse_moments(model: Model) -> Model:
    """A layer norm over the last axis or channels that onnxruntime does not fuse becomes a LayerNormalization.

    TensorFlow and Keras compute ``x * k + (bias - mean * k)`` where ``k = scale / sqrt(variance + epsilon)``, JAX
    ``(x - mean) * k + bias``, Flax a variance that is the mean square less the squared mean, and over channels nothing
    is fused at all: there the operator lies between Transposes.
    """
    if opset_of(model) < _OPSET:
        return model
    edit = Edit(graph_of(model))
    for node in edit.graph.nodes:
        found = _norm(edit.graph, node) if node.op_type in ("Add", "Mul", "Sub") else None
        if found is not None:
            edit.replaced[node.index] = _written(Parts(edit, node), found)
    return drop_unread(edit.model()) if edit.replaced else model


@dataclass(frozen=True, slots=True)
class _Norm:
    """Of what is normalised along an axis, with vectors of as many elements as that has."""

    source: TensorName
    axis: int
    scale: _Vector
    bias: _Vector
    epsilon: float


@dataclass(frozen=True, slots=True)
class _Mean:
    """Along an axis, counted from the front."""

    source: TensorName
    axis: int


@dataclass(frozen=True, slots=True)
class _Variance:
    """Around a mean, with what is added to it, and whether it is a mean of squared deviations."""

    mean: _Mean
    epsilon: float
    is_of_deviations: bool


@dataclass(frozen=True, slots=True)
class _Term:
    """Of a sum: a tensor and whether it is subtracted."""

    name: TensorName
    is_negative: bool


def _written(parts: Parts, norm: _Norm) -> list[onnx.NodeProto]:
    n_axes, output = parts.edit.graph.rank(norm.source), parts.node.outputs[0]
    vectors = [parts.constant("scale", norm.scale), parts.constant("bias", norm.bias)]
    if norm.axis == n_axes - 1:
        parts.add("LayerNormalization", [norm.source, *vectors], output=output, axis=-1, epsilon=norm.epsilon)
        return parts.nodes
    last = [i for i in range(n_axes) if i != norm.axis] + [norm.axis]
    moved = parts.add("Transpose", [norm.source], part="to_last", perm=last)
    normed = parts.add("LayerNormalization", [moved, *vectors], axis=-1, epsilon=norm.epsilon)
    back = [last.index(i) for i in range(n_axes)]
    parts.add("Transpose", [normed], part="from_last", output=output, perm=back)
    return parts.nodes


def _norm(graph: Graph, node: Node) -> _Norm | None:
    terms = _terms(graph, node.outputs[0])
    biases = [term for term in terms if graph.is_constant(term.name)]
    products = [term for term in terms if term not in biases]
    if len(terms) > _MOST_TERMS or len(biases) > 1 or not 1 <= len(products) <= 2:
        return None
    for first in _products(graph, products[0]):
        for second in _products(graph, products[1]) if len(products) > 1 else (None,):
            mean, factor = _centred(graph, first, second)
            found = None if mean is None else _factored(graph, factor, first[0])
            if mean is None or found is None or found[1].mean != mean or _is_fused(graph, factor, found[1]):
                continue
            if graph.rank(node.outputs[0]) in (0, graph.rank(mean.source)):
                bias = np.zeros(1, np.float32) if not biases else _signed(graph, biases[0])
                return _fitting(graph, mean, found[0], found[1].epsilon, bias)
    return None


def _is_fused(graph: Graph, factor: TensorName, variance: _Variance) -> bool:
    """By onnxruntime: over the last axis, divided by the root of squared deviations, then multiplied by a vector."""
    is_last = variance.mean.axis == graph.rank(variance.mean.source) - 1
    return is_last and variance.is_of_deviations and graph.is_constant(factor)


def _terms(graph: Graph, name: TensorName) -> list[_Term]:
    """What a tensor is the sum of, as far as nothing else reads the sums between; some more than are in a norm."""
    found, sums = list[_Term](), [_Term(name, is_negative=False)]
    while sums and len(found) + len(sums) <= _MOST_TERMS:
        term = sums.pop()
        node = graph.producer.get(term.name)
        is_own = node is not None and (term.name == name or graph.only_reader(term.name) is not None)
        if node is None or not is_own or node.op_type not in ("Add", "Neg", "Sub"):
            found.append(term)
            continue
        signs = [node.op_type == "Neg" or (node.op_type == "Sub" and i == 1) for i in range(len(node.inputs))]
        sums += [_Term(read, term.is_negative != turns) for read, turns in zip(node.inputs, signs, strict=True)][::-1]
    return found + sums


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


def _centred(
    graph: Graph, first: tuple[_Term, TensorName], second: tuple[_Term, TensorName] | None
) -> tuple[_Mean | None, TensorName]:
    """The mean that is subtracted from its source, and by what the difference is multiplied."""
    value, factor = first
    if second is None:
        node = graph.producer.get(value.name)
        is_divided = node is not None and node.op_type == "Div" and graph.is_constant(factor)
        centred = graph.producer.get(node.inputs[0]) if node is not None and is_divided else node
        return (_deviation(graph, centred) if not value.is_negative else None), factor
    other, same = second
    source, taken = (other.name, value.name) if value.is_negative else (value.name, other.name)
    mean = _mean(graph, taken) if factor == same and value.is_negative != other.is_negative else None
    return (mean if mean is not None and mean.source == source else None), factor


def _factored(graph: Graph, factor: TensorName, value: _Term) -> tuple[_Vector, _Variance] | None:
    """Scale and variance, where a factor, or a vector and what a term is divided by, is of a variance."""
    node, divided = graph.producer.get(factor), graph.producer.get(value.name)
    scale, reciprocal = TensorName(""), factor
    if graph.is_constant(factor) and divided is not None and divided.op_type == "Div":
        scale, root = factor, divided.inputs[1]
    elif node is not None and node.op_type == "Div" and graph.is_constant(node.inputs[0]):
        scale, root = node.inputs
    else:
        if node is not None and node.op_type == "Mul":
            constants = [name for name in node.inputs if graph.is_constant(name)]
            others = [name for name in node.inputs if not graph.is_constant(name)]
            if len(constants) != 1:
                return None
            scale, reciprocal = constants[0], others[0]
        root = TensorName("")
    variance = _variance(graph, _under_root(graph, root) or _under_reciprocal(graph, reciprocal))
    vector = np.asarray(graph.constant(scale), np.float32) if scale else np.ones(1, np.float32)
    return None if variance is None else (vector, variance)


def _fitting(graph: Graph, mean: _Mean, scale: _Vector, epsilon: float, bias: _Vector) -> _Norm | None:
    """None where a scale or bias is another one for each place, or the size of the axis is not known."""
    sizes = graph.sizes(mean.source) or ()
    size = sizes[mean.axis]
    if not size or mean.source not in graph.float_tensors:
        return None
    for value in (scale, bias):
        shape = (1,) * (len(sizes) - value.ndim) + value.shape
        if len(shape) != len(sizes) or value.size != shape[mean.axis] or value.size not in (1, size):
            return None
    vectors = [np.broadcast_to(value.reshape(-1), size).copy() for value in (scale, bias)]
    return _Norm(mean.source, mean.axis, vectors[0], vectors[1], epsilon)


def _variance(graph: Graph, total: TensorName) -> _Variance | None:
    """Of which a tensor is the sum with a number; None where it is none."""
    node = graph.producer.get(total)
    if node is None or node.op_type != "Add":
        return None
    constants = [graph.constant(name) for name in node.inputs if graph.is_constant(name)]
    others = [name for name in node.inputs if not graph.is_constant(name)]
    if len(constants) != 1 or constants[0].size != 1:
        return None
    deviated = _deviated(graph, others[0])
    mean = deviated or _spread(graph, others[0])
    return None if mean is None else _Variance(mean, float(constants[0].item()), is_of_deviations=deviated is not None)


def _deviated(graph: Graph, name: TensorName) -> _Mean | None:
    """The mean from which a tensor is the mean squared deviation."""
    over = _mean(graph, name)
    mean = None if over is None else _deviation(graph, _squared(graph, over.source), is_either=True)
    return mean if over is not None and mean is not None and over.axis == mean.axis else None


def _spread(graph: Graph, name: TensorName) -> _Mean | None:
    """The mean whose square is subtracted from the mean square, what is below zero clipped or not."""
    node = graph.producer.get(name)
    while node is not None and node.op_type in ("Clip", "Relu") and clip_bounds(node, graph) == (0.0, math.inf):
        node = graph.producer.get(node.inputs[0])
    if node is None or node.op_type != "Sub":
        return None
    over, less = _mean(graph, node.inputs[0]), graph.producer.get(node.inputs[1])
    square = None if over is None else graph.producer.get(over.source)
    if over is None or square is None or less is None or not squares(graph, square) or not squares(graph, less):
        return None
    mean = _mean(graph, less.inputs[0])
    return mean if mean == _Mean(square.inputs[0], over.axis) else None


def _squared(graph: Graph, name: TensorName) -> Node | None:
    """What makes the tensor that another one is the square of."""
    node = graph.producer.get(name)
    return graph.producer.get(node.inputs[0]) if node is not None and squares(graph, node) else None


def _deviation(graph: Graph, node: Node | None, *, is_either: bool = False) -> _Mean | None:
    """The mean that a node subtracts from its source, or the other way round if that doesn't matter."""
    if node is None or node.op_type != "Sub":
        return None
    for value, taken in (node.inputs, node.inputs[::-1])[: 1 + is_either]:
        mean = _mean(graph, taken)
        if mean is not None and mean.source == value:
            return mean
    return None


def _under_reciprocal(graph: Graph, name: TensorName) -> TensorName:
    """What a tensor is the reciprocal root of; empty where it is none."""
    node = graph.producer.get(name)
    if node is not None and node.op_type == "Pow":
        return node.inputs[0] if _is_number(graph, node.inputs[1], -0.5) else TensorName("")
    is_reciprocal = node is not None and (
        node.op_type == "Reciprocal" or (node.op_type == "Div" and _is_number(graph, node.inputs[0], 1.0))
    )
    return _under_root(graph, node.inputs[-1]) if node is not None and is_reciprocal else TensorName("")


def _under_root(graph: Graph, name: TensorName) -> TensorName:
    node = graph.producer.get(name)
    return node.inputs[0] if node is not None and node.op_type == "Sqrt" else TensorName("")


def _is_number(graph: Graph, name: TensorName, value: float) -> bool:
    return graph.is_constant(name) and graph.constant(name).size == 1 and float(graph.constant(name).item()) == value


def _mean(graph: Graph, name: TensorName) -> _Mean | None:
    """What a tensor is the mean of, along the last axis or over channels; None where it is none."""
    node = graph.producer.get(name)
    n_axes = 0 if node is None else graph.rank(node.inputs[0])
    if node is None or not n_axes:
        return None
    if node.op_type == "GlobalAveragePool":
        return _Mean(node.inputs[0], n_axes - 1) if n_axes == _LINES else None
    axes = axes_of(graph, node, n_axes) if node.op_type == "ReduceMean" and node.attributes.get("keepdims", 1) else None
    if axes is None or len(axes) != 1 or axes[0] not in (_CHANNELS, n_axes - 1):
        return None
    return _Mean(node.inputs[0], axes[0])
