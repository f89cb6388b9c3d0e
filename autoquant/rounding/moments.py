"""Second moments of what weights are multiplied with, over calibration samples."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.feed import Feed
from autoquant.domain.region import TensorName
from autoquant.errors import DataError
from autoquant.model.activations import activation_bytes
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import weight_of
from autoquant.rounding.problem import Floats
from autoquant.rounding.products import MAX_INPUTS, inputs_of_products, layout_of
from autoquant.runtime.session import Session

__all__ = ["MAX_WEIGHTS", "Moment", "Moments", "readers_of"]

MAX_WEIGHTS = 1 << 26
"""Of a tensor: rounding holds several copies of it, which would be too much for a language model's head."""

_OP_TYPES = frozenset({"Conv", "Gemm", "MatMul"})
_PRODUCTS_PER_INPUT = 4
_MIN_PRODUCTS = 4096
"""The larger of the two is observed. On efficientnet_lite0 half as many lose 0.4 dB of 28.7; twice as many win none."""
_MOST_VALUES = _PRODUCTS_PER_INPUT * MAX_INPUTS**2
"""Of the products of one sample, which are fewer where there are very many groups; 0.6 GB."""
_PASS_BYTES = 1 << 28
"""Of the moments that one pass over the samples makes, and of the activations that it fetches at once."""


def readers_of(weight: TensorName, graph: Graph) -> tuple[Node, ...]:
    """The operators that multiply with a weight, if they all do so alike and it is not too large.

    Returns:
        None at all for the weight of a ConvTranspose or a stack of matrices.
    """
    shape, readers = graph.shape(weight), graph.consumers.get(weight, ())
    if not readers or shape is None or not all(_multiplies(node, weight, graph) for node in readers):
        return ()
    forms = {(node.op_type == "Conv", *(node.attributes.get(k, 0) for k in ("group", "transB"))) for node in readers}
    return readers if len(forms) == 1 and 0 < math.prod(shape) <= MAX_WEIGHTS else ()


def _multiplies(node: Node, weight: TensorName, graph: Graph) -> bool:
    is_matrix = node.op_type == "Conv" or len(graph.shape(weight) or ()) == 2
    only = node.inputs.count(weight) == 1
    is_float = node.inputs[0] in graph.float_tensors and graph.dtype(weight) == "float32"
    return node.op_type in _OP_TYPES and weight_of(node, graph) == weight and is_matrix and only and is_float


@dataclass(frozen=True, slots=True)
class Moment:
    """Of the inputs of products with one weight.

    Attributes:
        mean: Of ``x x^T``, positive semidefinite, shape (G, D, D), G and D as those of ``as_columns``.
        n_products: That were observed, of each part.
        is_whole: Whether every sample was run.
    """

    mean: Floats
    n_products: int
    is_whole: bool = True


@dataclass(slots=True)
class Moments:
    """Second moments by weight; those that are asked for in the order of the graph are made many in a pass.

    Attributes:
        graph: The float model.
        open_session: Opens it with these activations among its outputs.
        feeds: Calibration samples.
        seed: Of the choice among products, where there are very many.
    """

    graph: Graph
    open_session: Callable[[Sequence[TensorName]], Session]
    feeds: Sequence[Feed]
    seed: int = 0
    _held: dict[TensorName, Moment] = field(default_factory=dict)
    _n_bytes: Mapping[TensorName, int] = field(default_factory=dict)

    def of(self, weight: TensorName, goes_on: Callable[[], bool] = lambda: True) -> Moment:
        """The moment of a weight that has ``readers_of``.

        Args:
            weight: Its name.
            goes_on: Asked before each sample that is run but the first.

        Raises:
            DataError: An input is not finite, or its square not in float32.
        """
        if weight not in self._held:
            self._held = {}  # before others are made
            self._held = self._observe(list(self._weights_from(weight)), goes_on)
        found = self._held[weight]
        if not np.isfinite(found.mean).all():
            raise DataError(
                f"weight '{weight}' is multiplied with numbers that are not finite or have squares beyond float32;"
                " correct the preprocessing of the calibration samples, or round weights to the nearest integer"
            )
        return found

    def _weights_from(self, weight: TensorName) -> Iterator[TensorName]:
        """The weight and those after it in the graph, as far as one pass has the memory."""
        names = list(dict.fromkeys(node.inputs[1] for node in self.graph.nodes if len(node.inputs) > 1))
        self._n_bytes = self._n_bytes or activation_bytes(self.graph, self.feeds)
        moments = fetched = 0
        for name in names[names.index(weight) :]:
            readers = readers_of(name, self.graph)
            if not readers:
                continue
            moments += 4 * layout_of(readers[0], self.graph.shape(name) or ()).n_moments
            fetched += sum(self._n_bytes[reader.inputs[0]] for reader in readers)
            if name != weight and max(moments, fetched) > _PASS_BYTES:
                return
            yield name

    def _observe(self, weights: Sequence[TensorName], goes_on: Callable[[], bool]) -> dict[TensorName, Moment]:
        readers = {weight: readers_of(weight, self.graph) for weight in weights}
        sums = {weight: _Sum.of(self.graph.shape(weight) or (), found) for weight, found in readers.items()}
        tensors = dict.fromkeys(reader.inputs[0] for found in readers.values() for reader in found)
        fetched = [tensor for tensor in tensors if tensor not in self.graph.inputs]
        session, is_whole = self.open_session(fetched), True
        for sample, feed in enumerate(self.feeds):
            if sample and not goes_on():
                is_whole = False
                break
            # onnxruntime takes an empty list of outputs for all of them.
            values = dict(zip(fetched, session.run(fetched, feed), strict=True)) if fetched else {}
            for weight, reader in ((weight, reader) for weight, found in readers.items() for reader in found):
                tensor, rng = reader.inputs[0], np.random.default_rng((self.seed, sample, reader.index))
                array = values[tensor] if tensor in values else feed[tensor]
                n_parts = len(self.feeds) * len(readers[weight])
                sums[weight].add(array.astype(np.float32, copy=False), reader, rng, n_parts)
        return {weight: found.moment(is_whole=is_whole) for weight, found in sums.items()}


@dataclass(slots=True)
class _Sum:
    """The moment of one weight in the making."""

    shape: tuple[int, ...]
    total: Floats
    n_products: int = 0

    @classmethod
    def of(cls, shape: tuple[int, ...], readers: Sequence[Node]) -> "_Sum":
        n_groups, n_parts, size = layout_of(readers[0], shape)
        return cls(shape, np.zeros((n_groups * n_parts, size, size), np.float32))

    def add(self, values: Floats, reader: Node, rng: np.random.Generator, n_parts: int) -> None:
        """Add one sample of one reader, which are ``n_parts`` in all."""
        groups, size, _ = self.total.shape
        wanted = max(_MIN_PRODUCTS, _PRODUCTS_PER_INPUT * size)
        limit = min(-(-wanted // n_parts), _MOST_VALUES // (groups * size))
        inputs = inputs_of_products(values, reader, self.shape, rng, limit)
        with np.errstate(over="ignore", invalid="ignore"):
            self.total += inputs.swapaxes(1, 2) @ inputs
        self.n_products += inputs.shape[1]

    def moment(self, *, is_whole: bool) -> Moment:
        """Of the products that were added; not finite where one of them was not."""
        return Moment(self.total / np.float32(max(self.n_products, 1)), self.n_products, is_whole)
