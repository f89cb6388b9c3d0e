"""The float model that a member of the front stands for."""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.domain.arguments import check_path
from autoquant.domain.region import TensorName
from autoquant.model.around import candidate_alone
from autoquant.model.copies import copy_of
from autoquant.model.graph import Graph, Node
from autoquant.model.io import load_any, load_model

__all__ = ["float_model"]

Floats = npt.NDArray[np.float32]
_Place = tuple[int, int]
"""Index of a node and position of one of its inputs."""
_New = tuple[int, onnx.NodeProto]
"""A node and where it comes."""


def float_model(member: str | os.PathLike[str], prepared: str | os.PathLike[str]) -> onnx.ModelProto:
    """``prepared.onnx`` with the weights and biases that the integers of a member stand for.

    With the member's ``*.overrides.json`` onnxruntime's ``quantize_static`` makes the same integers of it, where it
    would round those of ``prepared.onnx`` to the nearest ones and not correct its biases. Of a tensor that some
    operators read as integers and others as floats, these read another name before an Identity, as the tool gives
    integers to all readers. A Sum of one input, by which a member keeps an operator in float, is in it, too.

    Args:
        member: A QDQ file of a run's folder.
        prepared: The run's ``prepared.onnx``.

    Raises:
        ModelError: A file cannot be read, or what is given for ``prepared.onnx`` is quantized.
        UsageError: An argument is no path.
    """
    check_path("the member", member, is_needed=True)
    check_path("the prepared model", prepared, is_needed=True)
    quantized, graph = Graph(candidate_alone(load_any(Path(member)))), Graph(load_model(Path(prepared)))
    found = copy_of(graph.model)
    _dequantize(found, graph, quantized)
    new = [*_split(found, graph, _read_both_ways(graph, quantized)), *_kept_in_float(found, graph, quantized)]
    for place, node in sorted(new, key=itemgetter(0), reverse=True):
        found.graph.node.insert(place, node)
    return found


def _dequantize(found: onnx.ModelProto, graph: Graph, quantized: Graph) -> None:
    """Constants become what the integers of a member stand for, with the attributes that belong to them."""
    others = {(node.name, node.op_type): node for node in quantized.nodes}
    values: dict[TensorName, npt.NDArray[np.generic]] = {}
    changed: set[_Place] = set()
    for node, proto in zip(graph.nodes, found.graph.node, strict=True):
        other = others.get((node.name, node.op_type))
        if other is None:
            continue
        for position, tensor in enumerate(other.inputs):
            name = node.inputs[position] if position < len(node.inputs) else TensorName("")
            value = _stands_for(tensor, quantized, name, graph)
            if value is None:
                continue
            if not name:
                name = graph.free_name(f"{node.name}_bias", values)
            elif name in graph.pinned or (name in values and not np.array_equal(values[name], value)):
                name = graph.free_name(f"{name}_of_{node.name}", values)
            values[name] = value
            changed.add((node.index, position))
            proto.input.extend([""] * (position + 1 - len(proto.input)))
            proto.input[position] = name
        if other.attributes != node.attributes:  # a Gemm whose beta went into its bias
            del proto.attribute[:]
            proto.attribute.extend(quantized.model.graph.node[other.index].attribute)
    values |= _kept_for_others(found, graph, values, changed)
    kept = [tensor for tensor in found.graph.initializer if tensor.name not in values]
    del found.graph.initializer[:]
    found.graph.initializer.extend(kept)
    found.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())


def _read_both_ways(graph: Graph, quantized: Graph) -> Mapping[TensorName, Collection[_Place]]:
    """Tensors that operators of a member read as floats, too, with the inputs that are integers of them.

    Inputs and outputs of the graph, and what bodies read, cannot take another name.
    """
    own = {node.name for node in graph.nodes}
    found: defaultdict[TensorName, list[_Place]] = defaultdict(list)
    for (index, position), there in _read_there(graph, quantized).items():
        name = graph.nodes[index].inputs[position]
        if name in graph.producer and name not in graph.pinned and _are_integers(there, quantized):
            found[name].append((index, position))
    readers = {name: quantized.consumers.get(name, ()) for name in found}
    quantizing = {name: [_is_quantizing(reader, quantized, own) for reader in readers[name]] for name in found}
    return {name: places for name, places in found.items() if sum(quantizing[name]) == 1 < len(quantizing[name])}


def _read_there(graph: Graph, quantized: Graph) -> Mapping[_Place, TensorName]:
    """What operators of the same names read in a member, in the order of the nodes."""
    others = {node.name: node.inputs for node in quantized.nodes}
    return {
        (node.index, position): there
        for node in graph.nodes
        for position, (name, there) in enumerate(zip(node.inputs, others.get(node.name, ()), strict=False))
        if name
    }


def _are_integers(tensor: TensorName, quantized: Graph) -> bool:
    node = quantized.producer.get(tensor)
    is_dequantized = node is not None and node.op_type == "DequantizeLinear" and node.inputs[0] in quantized.producer
    return is_dequantized or (node is not None and node.op_type == "QuantizeLinear")


def _is_quantizing(reader: Node, quantized: Graph, own: Collection[str]) -> bool:
    """Whether it is a QuantizeLinear, or the Sum of one input that a member has before it."""
    if reader.op_type == "Sum" and reader.name not in own:
        return [node.op_type for node in quantized.consumers.get(reader.outputs[0], ())] == ["QuantizeLinear"]
    return reader.op_type == "QuantizeLinear"


def _split(found: onnx.ModelProto, graph: Graph, both: Mapping[TensorName, Collection[_Place]]) -> list[_New]:
    """Give tensors another name where they are written and read as floats, and their own to an Identity behind that."""
    protos, identities = found.graph.node, list[_New]()
    for tensor, integers in both.items():
        writer, floats = graph.producer[tensor], graph.free_name(f"{tensor}_floats")
        protos[writer.index].output[writer.outputs.index(tensor)] = floats
        for reader in graph.consumers[tensor]:
            for position, name in enumerate(reader.inputs):
                if name == tensor and (reader.index, position) not in integers:
                    protos[reader.index].input[position] = floats
        identity = helper.make_node("Identity", [floats], [tensor], name=f"{floats}_Identity")
        identities.append((writer.index + 1, identity))
    return identities


def _kept_in_float(found: onnx.ModelProto, graph: Graph, quantized: Graph) -> list[_New]:
    """Sums of one input that a member has before operators, which read them from now on."""
    own, protos, sums = {node.name for node in graph.nodes}, found.graph.node, dict[TensorName, _New]()
    for (index, position), there in _read_there(graph, quantized).items():
        kept = quantized.producer.get(there)
        if kept is None or kept.op_type != "Sum" or kept.name in own:
            continue
        target = graph.free_name(there)
        if target not in sums:
            sums[target] = index, helper.make_node("Sum", [protos[index].input[position]], [target], name=kept.name)
        protos[index].input[position] = target
    return list(sums.values())


def _kept_for_others(
    found: onnx.ModelProto,
    graph: Graph,
    values: Mapping[TensorName, npt.NDArray[np.generic]],
    changed: Collection[_Place],
) -> dict[TensorName, npt.NDArray[np.generic]]:
    """Copies of constants that have other values now, for nodes that read them as they were.

    They take other names, and not what runs on integers, so that overrides are still about what they name.
    """
    names: dict[TensorName, TensorName] = {}
    for node, proto in zip(graph.nodes, found.graph.node, strict=True):
        for position, name in enumerate(node.inputs):
            if name in values and (node.index, position) not in changed:
                taken = values.keys() | set(names.values())
                names.setdefault(name, graph.free_name(f"{name}_of_{node.name}", taken))
                proto.input[position] = names[name]
    return {copy: graph.constant(name) for name, copy in names.items()}


def _dequantized(tensor: TensorName, graph: Graph) -> Floats | None:
    """What constant integers stand for; None for any other tensor."""
    node = graph.producer.get(tensor)
    if node is None or node.op_type != "DequantizeLinear" or not graph.is_constant(node.inputs[0]):
        return None
    integers, scale = (graph.constant(name).astype(np.float64) for name in node.inputs[:2])
    zero_point = graph.constant(node.inputs[2]).astype(np.float64) if len(node.inputs) > 2 else np.zeros(())
    if scale.ndim:
        shape = np.ones(integers.ndim, dtype=int)
        shape[node.attributes.get("axis", 1)] = -1
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape if zero_point.ndim else ())
    return np.asarray(((integers - zero_point) * scale).astype(np.float32))


def _stands_for(tensor: TensorName, quantized: Graph, name: TensorName, graph: Graph) -> npt.NDArray[np.generic] | None:
    """What a tensor of a member is of which the tool makes its integers; None for one that is not constant."""
    value = _dequantized(tensor, quantized)
    is_given = value is not None and _gives(graph, name, quantized.producer[tensor], quantized)
    return graph.constant(name) if is_given else value


def _gives(graph: Graph, name: TensorName, dequantizing: Node, quantized: Graph) -> bool:
    """Whether a constant has the range and, rounded to nearest, the integers that a member has of it.

    What these stand for may have a smaller range: where both ends of it are halfway between two integers, these have
    one step less.
    """
    integers, *others = (quantized.constant(each) for each in dequantizing.inputs)
    if not graph.is_constant(name) or len(others) < 2 or others[0].ndim or not integers.size:
        return False
    given, (scale, zero_point), types = graph.constant(name), others, np.iinfo(integers.dtype)
    span = max(float(given.max()), 0.0) - min(float(given.min()), 0.0)
    nearest = np.clip(np.rint(given / scale) + zero_point, types.min, types.max)
    return bool(np.float32(span / (types.max - types.min)) == scale and np.array_equal(nearest, integers))
