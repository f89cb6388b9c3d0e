"""Recurrent layers that run both ways, of which one step is read."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from autoquant.model.graph import Graph, Node
from autoquant.rewrites.edits import Edit, Parts

__all__ = ["RECURRENT", "is_read_at_an_end", "run_to_step"]

RECURRENT = ("GRU", "LSTM", "RNN")
_DIRECTIONS = ("forward", "reverse")
_LENGTHS, _PEEPHOLES = 4, 7
"""Inputs that say where sequences end, and one with weights that only an LSTM has."""
_N_INPUTS = 8


def is_read_at_an_end(graph: Graph, node: Node, axis: int, places: Sequence[int]) -> bool:
    """Whether a layer runs both ways over whole sequences, and of its steps the first or the last one is read alone.

    Args:
        graph: With shapes.
        node: Any one.
        axis: Of what it writes, along which places are read.
        places: Counted from the front; from behind where the length is open.
    """
    given = [*node.inputs, *[""] * _N_INPUTS]
    n_steps = (graph.sizes(node.inputs[0]) or (None,))[0]
    ends = (0, -1 if n_steps is None else n_steps - 1)
    return (
        node.op_type in RECURRENT
        and node.attributes.get("direction") == b"bidirectional"
        and not any(node.attributes.get(name) for name in ("activation_alpha", "activation_beta", "layout"))
        and not (given[_LENGTHS] or given[_PEEPHOLES])
        and axis == 0
        and len(places) == len(node.outputs) == 1
        and places[0] in ends
    )


def run_to_step(edit: Edit, node: Node, place: int) -> list[onnx.NodeProto]:
    """Both ways apart: one ends with the step that is read, the other one begins with it and runs that step alone.

    The last node writes what is read of what the layer wrote.
    """
    parts, step = Parts(edit, node), edit.constant(f"{node.name}_step", np.array([place]))
    written = []
    for i, direction in enumerate(_DIRECTIONS):
        is_one_step = (place == 0) == (i == 0)
        source = parts.add("Gather", [node.inputs[0], step], part="input", axis=0) if is_one_step else node.inputs[0]
        own = [_of_direction(parts, slot, i) for slot in range(1, len(node.inputs))]
        states = parts.add(node.op_type, [source, *own], part=direction, **_attributes(node, i, direction))
        written.append(states if is_one_step else parts.add("Gather", [states, step], part="state", axis=0))
    parts.add("Concat", written, axis=1)
    return parts.nodes


def _of_direction(parts: Parts, slot: int, i: int) -> str:
    """Weights, biases or first states of one of the directions."""
    graph, name = parts.edit.graph, parts.node.inputs[slot]
    if not name:
        return ""
    if graph.is_constant(name):
        return parts.edit.constant(f"{name}_{_DIRECTIONS[i]}", graph.constant(name)[i : i + 1])
    index = parts.constant("direction", np.array([i]))
    return parts.add("Gather", [name, index], part=f"{_DIRECTIONS[i]}_{slot}", axis=0)


def _attributes(node: Node, i: int, direction: str) -> dict[str, Any]:
    attributes = {**node.attributes, "direction": direction}
    if "activations" in attributes:
        n_each = len(attributes["activations"]) // 2
        attributes["activations"] = attributes["activations"][i * n_each : (i + 1) * n_each]
    return attributes
