"""Attention between projections, recognised by where values end up: decision 0072."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import VIEWS
from autoquant.model.opsets import LIKE_ATTENTION

__all__ = ["LOWEST", "Attention", "attentions_of"]

Sizes = tuple[int, ...]
_HEADS_FIRST, _TRANSPOSED = (0, 2, 1, 3), (0, 2, 3, 1)
"""Axes of what has the shape (B, S, H, D), where products want them."""
_RANK = 4
LOWEST = np.float32(-3.4e38)
"""Instead of what is lower in a mask: onnxruntime takes the least number for a place that is not there, though a row of
which all are masked so is one in which all places are alike."""


@dataclass(frozen=True, slots=True)
class _Operand:
    """Queries, keys or values before their heads are moved.

    Attributes:
        tensor: Holds them in the order (B, S, H, D), whatever its shape.
        shape: (B, S, H, D).
        factor: By which they are multiplied.
        nodes: From what reads the tensor on.
    """

    tensor: TensorName
    shape: Sizes
    factor: float
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class _Scores:
    """What a Softmax reads.

    Attributes:
        product: Of queries and keys.
        factor: By which it is multiplied.
        mask_sizes: Of what is added then.
        mask: That, and the Add; it may be missing.
        nodes: All of these.
    """

    product: Node
    factor: float
    mask_sizes: Sizes
    mask: tuple[TensorName, Node] | None
    nodes: tuple[Node, ...]


class _Masked(Enum):
    """Rows of which all places are masked."""

    ALIKE = auto()
    """All places count the same."""
    EMPTY = auto()
    """None counts."""


@dataclass(frozen=True, slots=True)
class Attention:
    """``Softmax(scale * Q K^T + mask) V`` with the moves of heads around it.

    Attributes:
        operands: Queries, keys and values.
        scores: What the Softmax reads.
        has_empty_rows: Whether rows of which all places are masked by minus infinity give 0, as onnxruntime's operator
            has it; they are alike otherwise.
        nodes: All of it in order; the last one moves the heads back, the one before multiplies with the values.
    """

    operands: tuple[_Operand, _Operand, _Operand]
    scores: _Scores
    has_empty_rows: bool
    nodes: tuple[Node, ...]

    @property
    def scale(self) -> float:
        """Of the scores."""
        return math.prod(each.factor for each in self.operands) * self.scores.factor

    @property
    def shape(self) -> Sizes:
        """Of the scores, (B, H, S, T)."""
        (batch, n_queries, n_heads, _), (_, n_keys, _, _), _ = (each.shape for each in self.operands)
        return batch, n_heads, n_queries, n_keys

    @property
    def read(self) -> tuple[tuple[TensorName, Node], ...]:
        """Queries, keys, values and the mask that there may be, and what reads them."""
        operands = ((each.tensor, each.nodes[0]) for each in self.operands)
        return (*operands, *(() if self.scores.mask is None else (self.scores.mask,)))

    @property
    def indices(self) -> frozenset[int]:
        """Of its nodes."""
        return frozenset(node.index for node in self.nodes)


def attentions_of(graph: Graph) -> Mapping[int, Attention]:
    """Those of several heads and known sizes between projections, by the index of the node that moves heads back."""
    if opset_of(graph.model) < LIKE_ATTENTION:
        return {}
    found = (_attention(graph, node) for node in graph.nodes if node.op_type == "Softmax")
    return {each.nodes[-1].index: each for each in found if each is not None}


def _attention(graph: Graph, softmax: Node) -> Attention | None:
    scores, guard = _scores(graph, softmax), _guard(graph, softmax)
    behind = _behind(graph, guard[-1] if guard else softmax)
    masked = _masked(graph, scores) if scores is not None and guard else _Masked.ALIKE
    if scores is None or behind is None or masked is None:
        return None
    product = behind[-2]
    wanted = zip((*scores.product.inputs, product.inputs[1]), (_HEADS_FIRST, _TRANSPOSED, _HEADS_FIRST), strict=True)
    queries, keys, values = (_operand(graph, tensor, order) for tensor, order in wanted)
    if queries is None or keys is None or values is None or not _fit(queries, keys, values):
        return None
    nodes = {node.index: node for each in (queries, keys, values, scores) for node in each.nodes}
    nodes |= {node.index: node for node in (softmax, *guard, *behind)}
    ordered = tuple(nodes[index] for index in sorted(nodes))
    found = Attention((queries, keys, values), scores, masked is _Masked.EMPTY, ordered)
    is_whole = _wide(graph, product.outputs[0]) == (*found.shape[:3], values.shape[3])
    return found if is_whole and 0 < np.float32(found.scale) < np.inf else None


def _fit(queries: _Operand, keys: _Operand, values: _Operand) -> bool:
    batch, _, n_heads, size = queries.shape
    _, n_keys, _, _ = keys.shape
    is_one = keys.shape == (batch, n_keys, n_heads, size) and values.shape[:3] == keys.shape[:3]
    return is_one and n_heads > 1 and values.factor == 1


def _guard(graph: Graph, softmax: Node) -> list[Node]:
    """What puts 0 in place of NaN right behind a Softmax, as PyTorch's exporters write it for masks."""
    probabilities = softmax.outputs[0]
    readers = graph.consumers.get(probabilities, ())
    if probabilities in graph.pinned or [node.op_type for node in readers] != ["IsNaN", "Where"]:
        return []
    is_nan, chosen = readers
    condition, zero, other = chosen.inputs
    is_it = condition == is_nan.outputs[0] and other == probabilities and graph.only_reader(condition) is chosen
    if not is_it or not graph.is_constant(zero) or graph.constant(zero).any():
        return []
    return [is_nan, chosen] if graph.shape(chosen.outputs[0]) == graph.shape(probabilities) else []


def _masked(graph: Graph, scores: _Scores) -> _Masked | None:
    """What a guard makes of rows of which all places are masked; None where it is not known what the mask holds.

    Nor where that is minus infinity beside numbers that onnxruntime takes for it.
    """
    if scores.mask is None:
        return _Masked.ALIKE
    mask, _ = scores.mask
    chosen = graph.producer.get(mask)
    names = chosen.inputs[1:] if chosen is not None and chosen.op_type == "Where" else (mask,)
    if not all(map(graph.is_constant, names)):
        return None
    values = np.concatenate([graph.constant(name).reshape(-1) for name in names])
    if np.isfinite(values).all():
        return _Masked.ALIKE
    return _Masked.EMPTY if ((values == -np.inf) | ((values > LOWEST) & (values < np.inf))).all() else None


def _behind(graph: Graph, softmax: Node) -> list[Node] | None:
    """What comes behind probabilities along the last axis, up to where the heads are moved back."""
    shape = graph.shape(softmax.outputs[0])
    if shape is None:
        return None
    nodes = [softmax]
    while (reader := graph.only_reader(nodes[-1].outputs[0])) is not None and reader.op_type in VIEWS:
        nodes.append(reader)
    probabilities = nodes[-1].outputs[0]
    if reader is None or reader.op_type != "MatMul" or reader.inputs[0] != probabilities:
        return None
    product, back, sizes = reader.outputs[0], graph.only_reader(reader.outputs[0]), _wide(graph, reader.outputs[0])
    if back is None or back.op_type != "Transpose" or sizes is None:
        return None
    moved, wanted = _moved(graph, product, [back]), _numbers(sizes).transpose(_HEADS_FIRST)
    is_it = _last(graph, probabilities) == shape[-1:] and np.array_equal(moved.reshape(-1), wanted.reshape(-1))
    return [*nodes[1:], reader, back] if is_it else None


def _scores(graph: Graph, softmax: Node) -> _Scores | None:
    """What leads from the product of queries and keys to a Softmax of the last axis."""
    tensor, nodes = softmax.inputs[0], []
    if softmax.attributes.get("axis", -1) not in (-1, len(graph.shape(tensor) or ()) - 1):
        return None
    while (node := _own(graph, tensor)) is not None and node.op_type in VIEWS:
        nodes.append(node)
        tensor = node.inputs[0]
    if node is None or _last(graph, tensor) != _last(graph, softmax.inputs[0]):
        return None
    if node.op_type != "Add":
        return _product(graph, tensor, _Scores(node, 1.0, (), None, tuple(nodes)))
    for source, mask in (node.inputs, node.inputs[::-1]):
        sizes = graph.shape(mask)
        fits = source != mask and graph.shape(source) == graph.shape(tensor)
        if sizes is not None and fits and graph.dtype(mask) == "float32":
            found = _product(graph, source, _Scores(node, 1.0, sizes, (mask, node), (*nodes, node)))
            if found is not None:
                return found
    return None


def _last(graph: Graph, tensor: TensorName) -> Sizes:
    return (graph.shape(tensor) or ())[-1:]


def _product(graph: Graph, tensor: TensorName, scores: _Scores) -> _Scores | None:
    """The scores with the product that leads to a tensor by factors alone."""
    factor, nodes = scores.factor, scores.nodes
    while (node := _own(graph, tensor)) is not None:
        nodes = (*nodes, node)
        if node.op_type == "MatMul":
            return replace(scores, product=node, factor=factor, nodes=nodes)
        scaled = _scaled(graph, node)
        if scaled is None:
            return None
        tensor, factor = scaled[0], factor * scaled[1]
    return None


def _operand(graph: Graph, tensor: TensorName, wanted: Sizes) -> _Operand | None:
    """What a product reads by axes in the order that is wanted, with factors and moves before it.

    As far before it as that is so: what a Reshape reads does as well as what it writes, as the operator wants another
    shape than either.
    """
    given = _wide(graph, tensor)
    if given is None or graph.dtype(tensor) != "float32":
        return None
    shape, factor, nodes, found = tuple(given[wanted.index(axis)] for axis in range(_RANK)), 1.0, [], None
    numbers = _numbers(shape).transpose(wanted).reshape(graph.shape(tensor) or ())
    while (node := _own(graph, tensor)) is not None:
        scaled = _scaled(graph, node)
        if (scaled is None and node.op_type not in (*VIEWS, "Transpose")) or graph.shape(node.inputs[0]) is None:
            break
        nodes.append(node)
        tensor, factor = (node.inputs[0], factor) if scaled is None else (scaled[0], factor * scaled[1])
        if np.array_equal(_moved(graph, tensor, nodes[::-1]), numbers):
            found = _Operand(tensor, shape, factor, tuple(nodes[::-1]))
    return found


def _moved(graph: Graph, tensor: TensorName, nodes: Sequence[Node]) -> npt.NDArray[np.int32]:
    """Where nodes that follow each other move the values of a tensor."""
    numbers = _numbers(graph.shape(tensor) or ())
    for node in nodes:
        if node.op_type == "Transpose":
            numbers = numbers.transpose(node.attributes.get("perm", range(numbers.ndim)[::-1]))
        else:
            numbers = numbers.reshape(graph.shape(node.outputs[0]) or ())
    return numbers


def _numbers(shape: Sizes) -> npt.NDArray[np.int32]:
    return np.arange(math.prod(shape), dtype=np.int32).reshape(shape)


def _wide(graph: Graph, tensor: TensorName) -> Sizes | None:
    """The shape of a tensor of matrices by batch and head; there may be no axis for a batch of one."""
    shape = graph.shape(tensor)
    return None if shape is None or len(shape) not in (_RANK - 1, _RANK) else (1,) * (_RANK - len(shape)) + shape


def _own(graph: Graph, tensor: TensorName) -> Node | None:
    """What writes a tensor that one node alone reads."""
    return None if graph.only_reader(tensor) is None else graph.producer.get(tensor)


def _scaled(graph: Graph, node: Node) -> tuple[TensorName, float] | None:
    """What a node multiplies with a number other than 0, and the number."""
    if node.op_type not in ("Mul", "Div"):
        return None
    for source, number in (node.inputs, node.inputs[::-1])[: 1 if node.op_type == "Div" else 2]:
        if graph.is_constant(number) and None is not graph.shape(source) == graph.shape(node.outputs[0]):
            values = graph.constant(number)
            if values.size == 1 and values.any():
                value = float(values.reshape(-1)[0])
                return source, value if node.op_type == "Mul" else 1 / value
    return None
