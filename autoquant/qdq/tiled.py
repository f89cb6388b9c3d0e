"""Float convolutions of 3 x 3 that are computed tile by tile with fewer products: decision 0053.

onnxruntime's own kernels of convolutions add all products; those of many channels take longer than what transforms
their windows and tiles.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.model.copies import opset_of
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import bias_of, has_constant_bias, is_float_constant
from autoquant.model.windows import UNPADDED
from autoquant.model.winograd import (
    TILE,
    WINDOW,
    combine_products,
    part_name,
    transform_weight,
    transform_windows,
)
from autoquant.qdq.parts import Parts

__all__ = ["TiledConvs"]

_LEAST = ((192, 256), (96, 768))
"""Channels, the harmonic mean of those that are read and written, and places of the output: transforms take what
products save of fewer channels, and reading weights that are four times as large what they save of fewer places."""
_MOST_WASTE = 1.4
"""Places of tiles for each place of the output."""
_MOST_BYTES = 2**29
"""Of all transformed weights, which are four times as large as those that were given."""
_OPSET = 13
_KERNEL = (3, 3)
Floats = npt.NDArray[np.float32]


@dataclass(slots=True)
class TiledConvs:
    """Writes Convs of one graph so, and remembers what they multiply with.

    Attributes:
        graph: With shapes.
        unbounded: Activations that hold infinities, or values of which next to nothing is left beside others: a tile
            has what its whole window holds in each of its places.
        indices: Of the Convs.
    """

    graph: Graph
    unbounded: Collection[TensorName] = frozenset()
    indices: frozenset[int] = field(init=False)
    _weights: dict[TensorName, Floats] = field(default_factory=dict)
    _windows: dict[int, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        is_new = opset_of(self.graph.model) >= _OPSET
        nodes = [node for node in self.graph.nodes if is_new and _is_worth_it(node, self.graph)]
        nodes = [node for node in nodes if node.inputs[0] not in self.unbounded]
        sizes = [math.prod(self.graph.shape(name) or ()) for name in {node.inputs[1] for node in nodes}]
        n_bytes = 4 * sum(sizes) * WINDOW**2 // math.prod(_KERNEL)
        self.indices = frozenset(node.index for node in nodes if n_bytes <= _MOST_BYTES)

    def write(self, parts: Parts, node: Node, source: str, target: str) -> None:
        """Add what computes a Conv.

        The product of windows and weights has the Conv's name: it is where most of the time goes.

        Args:
            parts: Of the model.
            node: One of ``indices``.
            source: What it reads, shape (1, C, H, W).
            target: What it writes.
        """
        n_written, n_read = self.graph.constant(node.inputs[1]).shape[:2]
        _, _, height, width = self.graph.shape(node.outputs[0]) or ()
        rows, columns = math.ceil(height / TILE), math.ceil(width / TILE)
        above, left = node.attributes.get("pads", (0, 0))[:2]
        _, _, *sizes = self.graph.shape(node.inputs[0]) or ()
        below, right = (
            TILE * n + WINDOW - TILE - size - before
            for n, size, before in zip((rows, columns), sizes, (above, left), strict=True)
        )
        chain = _Chain(parts, str(node.name), target)
        windows = parts.constant(parts.pieces.free(f"windows_of_{n_read}"), self._windows_of(n_read), "")
        own = {"group": n_read, "kernel_shape": (WINDOW, WINDOW), "strides": (TILE, TILE)}
        found = chain.add("Conv", [source, windows], pads=(above, left, below, right), **own)
        found = chain.reshape(found, (n_read, WINDOW**2, rows * columns))
        found = chain.add("Transpose", [found], perm=(1, 0, 2))
        weight = parts.constant(parts.pieces.free(f"{node.inputs[1]}_tiles"), self._weight_of(node.inputs[1]), "")
        found = chain.add("MatMul", [weight, found], str(node.name))
        found = chain.reshape(found, (WINDOW**2, n_written * rows * columns))
        combined = parts.new_constant("products_of_tiles", combine_products())
        found = chain.add("MatMul", [combined, found])
        found = chain.reshape(found, (TILE, TILE, n_written * rows, columns))
        found = chain.add("Transpose", [found], perm=(1, 2, 0, 3))
        found = chain.reshape(found, (TILE, n_written * rows * TILE * columns))
        found = chain.add("Transpose", [found], perm=(1, 0))
        found = chain.reshape(found, (1, n_written, TILE * rows, TILE * columns))
        if (TILE * rows, TILE * columns) != (height, width):
            bounds = {"starts": (0, 0), "ends": (height, width), "axes": (2, 3)}
            names = [chain.constant(name, np.array(values, np.int64)) for name, values in bounds.items()]
            found = chain.add("Slice", [found, *names])
        bias = bias_of(node)
        summand = np.zeros(n_written, np.float32) if bias is None else self.graph.constant(bias)
        summands = chain.constant("summand", np.broadcast_to(summand, n_written).reshape(1, -1, 1, 1))
        chain.add("Add", [found, summands], output=target)

    def _weight_of(self, name: TensorName) -> Floats:
        if name not in self._weights:
            self._weights[name] = transform_weight(self.graph.constant(name))
        return self._weights[name]

    def _windows_of(self, n_channels: int) -> Floats:
        if n_channels not in self._windows:
            self._windows[n_channels] = transform_windows(n_channels)
        return self._windows[n_channels]


@dataclass(slots=True)
class _Chain:
    """Nodes one behind the other."""

    parts: Parts
    name: str
    target: str
    _n: int = 0

    def add(
        self, op_type: str, inputs: list[str], name: str = "", *, output: str = "", **attributes: int | tuple[int, ...]
    ) -> str:
        self._n += 1
        output = output or self.parts.pieces.free(f"{self.target}_tiles_{self._n}")
        self.parts.node(op_type, inputs, [output], name or self._name(), **attributes)
        return output

    def reshape(self, source: str, shape: tuple[int, ...]) -> str:
        return self.add("Reshape", [source, self.constant(f"shape_{self._n}", np.array(shape, np.int64))])

    def constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        return self.parts.new_constant(f"{self.target}_{name}", values)

    def _name(self) -> str:
        return self.parts.pieces.free_node(part_name(self.name, self._n))


def _is_worth_it(node: Node, graph: Graph) -> bool:
    if node.op_type != "Conv" or not is_float_constant(node.inputs[1], graph) or not has_constant_bias(node, graph):
        return False
    shape, attributes = graph.shape(node.inputs[1]) or (), node.attributes
    given, written = graph.shape(node.inputs[0]), graph.shape(node.outputs[0])
    if given is None or written is None or shape[2:] != _KERNEL or written[0] != 1 or 0 in shape:
        return False
    if attributes.get("group", 1) != 1 or attributes.get("auto_pad", UNPADDED[0]) not in UNPADDED:
        return False
    if any(tuple(attributes.get(name, (1, 1))) != (1, 1) for name in ("strides", "dilations")):
        return False
    n_places, n_computed = math.prod(written[2:]), math.prod(math.ceil(size / TILE) * TILE for size in written[2:])
    n_channels = 2 / (1 / shape[0] + 1 / shape[1])
    is_large = any(n_channels >= channels and n_places >= places for channels, places in _LEAST)
    return is_large and n_computed <= _MOST_WASTE * n_places
