"""How far from float a region is by what it quantizes itself, before anything runs."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import Granularity, TensorFormat
from autoquant.domain.space import SearchSpace
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import Kind, channel_axis, kind_of, weight_of
from autoquant.qdq.constants import constant_params
from autoquant.qdq.dynamic import in_blocks, recurrent_params
from autoquant.qdq.params import block_params
from autoquant.qdq.plan import Plan
from autoquant.qdq.planner import Planner
from autoquant.qdq.ports import ActivationErrors

__all__ = ["OwnErrors", "errors_of_regions"]

OwnErrors = Mapping[RegionId, Mapping[str, float]]
"""Relative squared errors by region and scheme, ``float`` left out."""
Floats = npt.NDArray[np.float32]


def errors_of_regions(
    planner: Planner,
    regions: Sequence[Region],
    space: SearchSpace,
    activation_error: ActivationErrors,
    *,
    seconds: float = math.inf,
) -> OwnErrors | None:
    """Relative squared errors of all activations and weights that a region quantizes, added up, by region and scheme.

    They are those of the region if the whole model takes the scheme. How much of them comes out of the model is another
    question. Blocks of activations have scales of their own in every inference: they are taken to lose what blocks of
    the weight would lose in their format.

    Args:
        planner: Says what is quantized.
        regions: The partition.
        space: Which schemes each may take.
        activation_error: Of one activation.
        seconds: Longest time, give or take one tensor.

    Returns:
        None where there was no time for all of them.

    References:
        Widrow, Kollar, "Quantization Noise", 2008, chapter 4: step^2 / 12, of weights here.
    """
    end = time.perf_counter() + seconds
    own = _Own(planner, activation_error, {node: region.id for region in regions for node in region.nodes})
    found: dict[RegionId, dict[str, float]] = {region.id: {} for region in regions}
    for name, scheme in space.schemes.items():
        taking = [region for region in regions if name in space.choices[region.id]]
        plan = planner.plan({node: scheme for region in taking for node in region.nodes})
        for region in taking:
            found[region.id][name] = 0.0
        for region_id, error in chain(own.of_activations(plan), own.of_weights(plan)):
            found[region_id][name] += error
            if time.perf_counter() > end:
                return None
    return found


@dataclass(slots=True)
class _Own:
    """Errors by region; those of weights are computed once."""

    planner: Planner
    activation_error: ActivationErrors
    region_of: Mapping[NodeName, RegionId]
    _of_weights: dict[tuple[TensorName, TensorFormat, int | None], float] = field(default_factory=dict)

    @property
    def _graph(self) -> Graph:
        return self.planner.graph

    def of_activations(self, plan: Plan) -> Iterator[tuple[RegionId, float]]:
        """Each counts once in a region: where it is written as integers, otherwise where it is read as such.

        Integers that are those of another activation do not count again, nor does what is clipped but not needed.
        """
        graph, written = self._graph, set(plan.produced.values())
        producers = {tensor: graph.producer[tensor] for tensor in plan.produced}
        keys = {
            (self.region_of[producers[tensor].name], key): None
            for tensor, key in plan.produced.items()
            if kind_of(producers[tensor]) is not Kind.SAME_RANGE
        }
        for (tensor, _), key in plan.entries.items():
            readers = [node for node in graph.consumers[tensor] if node.index in plan.integer]
            keys.update({(self.region_of[node.name], key): None for node in readers if key not in written})
        for region, key in keys:
            if key.clipped is None:
                yield region, self.activation_error(key.root, self.planner.range_of_values(key), key.format)
        nodes = [graph.nodes[index] for index in sorted(plan.dynamic)]
        read = {
            (self.region_of[node.name], node.inputs[0], plan.schemes[node.index].activation): None
            for node in nodes
            if not plan.schemes[node.index].is_blockwise
        }
        for region, tensor, tensor_format in read:
            yield region, self.activation_error(tensor, None, tensor_format)

    def of_weights(self, plan: Plan) -> Iterator[tuple[RegionId, float]]:
        """Each counts in every operator that reads it."""
        for index in sorted(plan.integer | plan.dynamic):
            node, scheme = self._graph.nodes[index], plan.schemes[index]
            for name in self._weights(node):
                formats = [scheme.weight, scheme.activation] if scheme.is_blockwise else [scheme.weight]
                yield self.region_of[node.name], sum(self._of_weight(node, name, each) for each in formats)

    def _weights(self, node: Node) -> Sequence[TensorName]:
        if node.op_type == "LSTM":
            return node.inputs[1:3]
        weight = weight_of(node, self._graph)
        return [] if weight is None else [weight]

    def _of_weight(self, node: Node, name: TensorName, tensor_format: TensorFormat) -> float:
        axis = channel_axis(node, self._graph) if tensor_format.granularity is Granularity.CHANNEL else None
        key = (name, tensor_format, axis)
        if key not in self._of_weights:
            self._of_weights[key] = _rounding_error(*self._rows(node, name, tensor_format, axis))
        return self._of_weights[key]

    def _rows(
        self, node: Node, name: TensorName, tensor_format: TensorFormat, axis: int | None
    ) -> tuple[Floats, Floats]:
        """What shares a scale, shape (n, m), and the scales, shape (n,) or ()."""
        values = self._graph.constant(name)
        if not values.size:
            return np.zeros((1, 1), np.float32), np.ones((), np.float32)
        if tensor_format.block:
            blocks = in_blocks(values, node, tensor_format.block)
            return blocks, block_params(blocks, tensor_format).scale
        if node.op_type == "LSTM":
            rows, params = recurrent_params(values, tensor_format)
            return rows, params.scale
        rows = values.reshape(1, -1) if axis is None else np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
        return rows, constant_params(name, self._graph, tensor_format, axis).scale


def _rounding_error(rows: Floats, scale: Floats) -> float:
    """Mean squared error of rounding as a share of the mean square; what becomes 0 loses no more than itself."""
    powers = np.mean(np.square(rows, dtype=np.float64), axis=1)
    if not powers.any():
        return 0.0
    return float(np.minimum(np.square(scale, dtype=np.float64) / 12, powers).mean() / powers.mean())
