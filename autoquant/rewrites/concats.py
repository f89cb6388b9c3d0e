"""Concats with as many channels as onnxruntime's float kernels for images need.

Its transformer to blocked layouts leaves a Conv as it is whose input channels are no multiple of four, but for those
that fit in one block, as images have them.
"""

import numpy as np
import onnx

from autoquant.model.graph import Graph, Node
from autoquant.model.kept import graph_of
from autoquant.model.ops import is_float_constant
from autoquant.rewrites.edits import Edit

__all__ = ["fill_concats"]

_CHANNELS = 1
_MULTIPLE = 4
_LARGEST_BLOCK = 16
"""Of channels, on processors with AVX512; fewer inputs than a block have a kernel of their own."""
_MOST_ZEROS = 2**18
"""Elements of a constant that is worth it."""


def fill_concats(model: onnx.ModelProto) -> onnx.ModelProto:
    """A Concat of channels that Convs alone read joins zeros too where that makes them a multiple of four.

    Networks that join coordinates, a flow or the image itself to features have 33 or 67 channels. The argument stays as
    it is, and is given back where there is nothing to do.
    """
    graph = graph_of(model)
    edit, wider = Edit(graph), dict[tuple[str, int], str]()
    for node in graph.nodes:
        zeros = _missing(graph, node)
        if zeros is None:
            continue
        joined = edit.names.new(f"{node.outputs[0]}_filled")
        concat = graph.copy_of(node)
        concat.input.append(edit.constant(f"{node.name}_zeros", zeros))
        concat.output[0] = joined
        edit.replaced[node.index] = (concat,)
        for reader in graph.consumers[node.outputs[0]]:
            name, n_missing = reader.inputs[1], zeros.shape[_CHANNELS]
            if (name, n_missing) not in wider:
                weight = graph.constant(name)
                filled = np.pad(weight, [(0, 0), (0, n_missing), *[(0, 0)] * (weight.ndim - 2)])
                wider[name, n_missing] = edit.constant(f"{name}_filled", filled)
            conv = graph.copy_of(reader)
            conv.input[:2] = [joined, wider[name, n_missing]]
            edit.replaced[reader.index] = (conv,)
    return edit.model()


def _missing(graph: Graph, node: Node) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None:
    """The zeros that a Concat should join; None where it should not, and for other nodes."""
    if node.op_type != "Concat" or node.outputs[0] in graph.pinned:
        return None
    shape, readers = graph.shape(node.outputs[0]), graph.consumers.get(node.outputs[0], ())
    if shape is None or len(shape) <= _CHANNELS + 1 or 0 in shape:
        return None
    if node.attributes.get("axis", _CHANNELS) % len(shape) != _CHANNELS:
        return None
    n_missing = -shape[_CHANNELS] % _MULTIPLE
    zeros = np.zeros((shape[0], n_missing, *shape[2:]), np.float32)
    is_worth_it = n_missing and shape[_CHANNELS] > _LARGEST_BLOCK and zeros.size <= _MOST_ZEROS
    return zeros if is_worth_it and readers and all(_is_conv(graph, node, reader) for reader in readers) else None


def _is_conv(graph: Graph, concat: Node, reader: Node) -> bool:
    return (
        reader.op_type == "Conv"
        and reader.attributes.get("group", 1) == 1
        and reader.inputs[0] == concat.outputs[0]
        and reader.inputs.count(concat.outputs[0]) == 1
        and is_float_constant(reader.inputs[1], graph)
    )
