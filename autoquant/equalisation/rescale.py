"""The same model with other constants."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from autoquant.domain.region import TensorName
from autoquant.equalisation.channels import ScaledConstant
from autoquant.equalisation.ties import Labels
from autoquant.model.graph import Graph
from autoquant.model.rewrite import with_constants

__all__ = ["rescaled"]

Array = npt.NDArray[np.generic]
Place = tuple[int, int]
"""Index of a node and which of its inputs."""


def rescaled(graph: Graph, constants: Sequence[ScaledConstant], exponents: Labels) -> Graph:
    """The graph with every tensor divided by the scales of its channels, and constants that make up for it.

    Nodes and tensors keep their names. A constant whose readers need unlike scales is copied for all but one of them.

    Args:
        graph: The prepared model.
        constants: What has to change with the scales.
        exponents: Of each channel; its scale is this power of two, so that no product is rounded.
    """
    changed: dict[Place, Array] = {}
    for found in constants:
        values = graph.constant(graph.nodes[found.node].inputs[found.slot])
        power = np.broadcast_to(exponents[found.times] - exponents[found.over], values.shape)
        if power.any():
            changed[found.node, found.slot] = np.ldexp(values, power)
    arrays: dict[str, Array] = {}
    inputs: dict[Place, TensorName] = {}
    for name in dict.fromkeys(graph.nodes[node].inputs[slot] for node, slot in changed):
        inputs |= _names(graph, name, changed, arrays)
    return Graph(with_constants(graph.model, arrays, inputs))


def _names(
    graph: Graph, name: TensorName, changed: Mapping[Place, Array], arrays: dict[str, Array]
) -> dict[Place, TensorName]:
    """Which constant each reader of this one takes; those that are new or changed go into ``arrays``."""
    old = graph.constant(name)
    readers = [(node.index, slot) for node in graph.consumers[name] for slot, n in enumerate(node.inputs) if n == name]
    wanted = {place: changed.get(place, old) for place in readers}
    is_kept = name in graph.pinned or not all(place in changed for place in readers)
    names = {old.tobytes(): name} if is_kept else {}
    for (node, _), values in wanted.items():
        own = name if not names else graph.free_name(f"{name}_{graph.nodes[node].name}", arrays)
        own = names.setdefault(values.tobytes(), own)
        if values is not old:
            arrays[own] = values
    return {place: names[values.tobytes()] for place, values in wanted.items()}
