"""Channels filled up with zeros to whole blocks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.names import NewNames
from autoquant.model.ops import SIZES
from autoquant.model.rewrite import with_constants
from autoquant.rewrites.channel_layouts import ChannelLayouts
from autoquant.rewrites.channels import AXIS, Channels
from autoquant.rewrites.edits import without_unused
from autoquant.rewrites.layouts import Layout

__all__ = ["Filled", "Filling", "fill_channels", "spread"]

Array = npt.NDArray[np.generic]
_Type = TypeVar("_Type", bound=np.generic)
Place = tuple[int, int]
"""Index of a node and which of its inputs."""


@dataclass(frozen=True, slots=True)
class Filling:
    """How far channels are filled up.

    Attributes:
        multiple: Of channels.
        is_tight: Whether what a Concat joins shall need no more multiples than before.
    """

    multiple: int
    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class Filled:
    """A model that computes the same with more channels.

    Attributes:
        model: It.
        layouts: Where the channels of the tensors are that have more of them, by name.
    """

    model: onnx.ModelProto
    layouts: Mapping[TensorName, Layout]


def fill_channels(graph: Graph, filling: Filling) -> Filled | None:
    """Give tensors between convolutions as many channels of zeros as a multiple needs.

    Weights are zero where they would make or read such a channel. onnxruntime's float kernels for images compute whole
    blocks of channels, 8 or 16 by processor, and reorder what is no multiple of them for every sum, product and Concat;
    its integer kernels compute what is left over one by one.

    Args:
        graph: With shapes.
        filling: How far.

    Returns:
        The model under the names that it had, None where nothing is to be filled up.
    """
    channels = Channels(graph)
    solver = ChannelLayouts(channels, filling.multiple, filling.is_tight)
    layouts = solver.solve()
    if not layouts:
        return None
    arrays, inputs = _named(graph, _spread_constants(solver, layouts))
    model = with_constants(graph.model, arrays, inputs)
    for node in channels.depthwise:
        if node.outputs[0] in layouts:
            _set_groups(model.graph.node[node.index], layouts[node.outputs[0]].size)
    for node in channels.moving:
        if node.op_type != "Concat" and node.inputs[0] in layouts:
            layout = layouts[node.inputs[0]]
            edges = [(layout.edge(start), layout.edge(stop)) for start, stop in channels.bounds(node)]
            _take(model, graph, node.index, edges)
    _tell_shapes(model, layouts, arrays)
    return Filled(without_unused(model), layouts)


def spread(values: npt.NDArray[_Type], axis: int, layout: Layout) -> npt.NDArray[_Type]:
    """An array with zeros for the channels that are filled in along an axis."""
    shape = list(values.shape)
    shape[axis] = layout.size
    found = np.zeros(shape, values.dtype)
    found[(slice(None),) * (axis % values.ndim) + (list(layout.places),)] = values
    return found


def _spread_constants(solver: ChannelLayouts, layouts: Mapping[TensorName, Layout]) -> Mapping[Place, Array]:
    """Constants that have more elements now, by who reads them."""
    channels, graph = solver.channels, solver.channels.graph
    changed: dict[Place, Array] = {}
    for each in channels.followers:
        if each.tensor in layouts:
            values = changed.get((each.node, each.slot), graph.constant(graph.nodes[each.node].inputs[each.slot]))
            changed[each.node, each.slot] = spread(values, each.axis, layouts[each.tensor])
    for node in channels.resized:
        if node.outputs[0] in layouts:
            sizes = graph.constant(node.inputs[SIZES]).copy()
            sizes[AXIS] = layouts[node.outputs[0]].size
            changed[node.index, SIZES] = sizes
    for node in channels.moving:
        for slot, name in enumerate(node.inputs) if node.op_type == "Concat" and node.outputs[0] in layouts else ():
            if graph.is_constant(name):
                layout = solver.parts(node, layouts)[slot]
                changed[node.index, slot] = spread(graph.constant(name), AXIS, layout)
    return changed


def _named(graph: Graph, changed: Mapping[Place, Array]) -> tuple[dict[str, Array], dict[Place, str]]:
    """Values by name, and who reads a name that is new; constants with one reader keep theirs."""
    names = NewNames(graph)
    arrays: dict[str, Array] = {}
    inputs: dict[Place, str] = {}
    for (index, slot), values in changed.items():
        node = graph.nodes[index]
        name = node.inputs[slot]
        if graph.only_reader(name) is None or node.inputs.count(name) > 1:
            name = names.new(f"{name}_{node.name}")
            inputs[index, slot] = name
        arrays[name] = values
    return arrays, inputs


def _tell_shapes(model: onnx.ModelProto, layouts: Mapping[TensorName, Layout], arrays: Mapping[str, Array]) -> None:
    """What the model says of tensors inside, of constants too, as files may."""
    for value in model.graph.value_info:
        dims = value.type.tensor_type.shape.dim
        if value.name in layouts:
            dims[AXIS].dim_value = layouts[TensorName(value.name)].size
        elif value.name in arrays and dims:
            for dim, size in zip(dims, arrays[value.name].shape, strict=True):
                dim.dim_value = size


def _set_groups(proto: onnx.NodeProto, n_groups: int) -> None:
    next(attribute for attribute in proto.attribute if attribute.name == "group").i = n_groups


def _take(model: onnx.ModelProto, graph: Graph, index: int, edges: list[tuple[int, int]]) -> None:
    """Let a Slice or Split take what is between these channels."""
    proto = model.graph.node[index]
    names = NewNames(graph)
    if proto.op_type == "Slice":
        dtype = graph.constant(graph.nodes[index].inputs[1]).dtype
        values = {"starts": [edges[0][0]], "ends": [edges[0][1]]}
    else:
        dtype, values = np.dtype(np.int64), {"sizes": [stop - start for start, stop in edges]}
        for attribute in [each for each in proto.attribute if each.name == "num_outputs"]:
            proto.attribute.remove(attribute)
    for slot, (what, numbers) in enumerate(values.items(), start=1):
        name = names.new(f"{proto.name}_{what}")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, dtype), name))
        proto.input.extend([""] * (slot + 1 - len(proto.input)))
        proto.input[slot] = name
