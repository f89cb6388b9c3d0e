"""How far from float a region is by what it quantizes itself, before anything runs."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoquant.domain.region import NodeName, Region, RegionId, TensorName
from autoquant.domain.scheme import Granularity, TensorFormat
from autoquant.domain.space import SearchSpace
from autoquant.model.graph import Graph, Node
from autoquant.model.ops import channel_axis, is_linear, weight_of
from autoquant.qdq.constants import constant_params
from autoquant.qdq.dynamic import in_blocks
from autoquant.qdq.params import weight_params
from autoquant.qdq.plan import Plan, Planner
from autoquant.qdq.ports import ActivationErrors

__all__ = ["OwnErrors", "own_errors"]

OwnErrors = Mapping[RegionId, Mapping[str, float]]
"""Relative squared errors by region and scheme, ``float`` left out."""


def own_errors(
    planner: Planner,
    regions: Sequence[Region],
    space: SearchSpace,
    activation_error: ActivationErrors,
    *,
    seconds: float = math.inf,
) -> OwnErrors | None:
    """Relative squared errors of all activations and weights that a region quantizes, added up, by region and scheme.

    They are those of the region if the whole model takes the scheme. How much of them comes out of the model is another
    question.

    Args:
        planner: Says what is quantized.
        regions: The partition.
        space: Which schemes each may take.
        activation_error: Of one activation.
        seconds: No scheme is begun after them.

    Returns:
        None where there was no time for all schemes.

    References:
        Widrow, Kollar, "Quantization Noise", 2008, chapter 4: step^2 / 12, of weights here.
    """
    end = time.perf_counter() + seconds
    own = _Own(planner, activation_error, {node: region.id for region in regions for node in region.nodes})
    found: dict[RegionId, dict[str, float]] = {region.id: {} for region in regions}
    for name, scheme in space.schemes.items():
        if time.perf_counter() > end:
            return None
        taking = [region for region in regions if name in space.choices[region.id]]
        plan = planner.plan({node: scheme for region in taking for node in region.nodes})
        for region in taking:
            found[region.id][name] = 0.0
        for region_id, error in own.of(plan):
            found[region_id][name] += error
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

    def of(self, plan: Plan) -> Iterator[tuple[RegionId, float]]:
        for tensor, key in plan.produced.items():
            if key.root == tensor and tensor in self._graph.producer:
                error = self.activation_error(key.root, self.planner.range_of(key), key.format)
                yield self.region_of[self._graph.producer[tensor].name], error
        for (tensor, _), key in plan.entries.items():
            readers = [node for node in self._graph.consumers[tensor] if node.index in plan.integer]
            error = self.activation_error(key.root, self.planner.range_of(key), key.format)
            yield from ((region, error) for region in dict.fromkeys(self.region_of[node.name] for node in readers))
        for index in sorted(plan.integer | plan.dynamic):
            node, scheme = self._graph.nodes[index], plan.schemes[index]
            if index in plan.dynamic:
                yield self.region_of[node.name], self.activation_error(node.inputs[0], None, scheme.activation)
            for weight in self._weights(node):
                yield self.region_of[node.name], self._of_weight(node, weight, scheme.weight)

    def _weights(self, node: Node) -> Sequence[TensorName]:
        if node.op_type == "LSTM":
            return node.inputs[1:3]
        weight = weight_of(node, self._graph) if is_linear(node, self._graph) else None
        return [] if weight is None else [weight]

    def _of_weight(self, node: Node, name: TensorName, tensor_format: TensorFormat) -> float:
        axis = channel_axis(node, self._graph) if tensor_format.granularity is Granularity.CHANNEL else None
        key = (name, tensor_format, axis)
        if key not in self._of_weights:
            self._of_weights[key] = self._rounding_error(node, name, tensor_format, axis)
        return self._of_weights[key]

    def _rounding_error(self, node: Node, name: TensorName, tensor_format: TensorFormat, axis: int | None) -> float:
        values = self._graph.constant(name)
        power = float(np.mean(np.square(values, dtype=np.float64))) if values.size else 0.0
        if not power:
            return 0.0
        if tensor_format.block:
            scale = weight_params(in_blocks(node, self._graph, tensor_format.block), tensor_format, 0).scale
        elif node.op_type == "LSTM":
            is_per_channel = tensor_format.granularity is Granularity.CHANNEL
            rows = values.reshape(-1, values.shape[-1]) if is_per_channel else values.reshape(len(values), -1)
            scale = weight_params(rows, tensor_format, 0).scale
        else:
            scale = constant_params(name, self._graph, tensor_format, axis).scale
        return min(1.0, float(np.mean(np.square(scale, dtype=np.float64))) / 12 / power)
