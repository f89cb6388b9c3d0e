"""Serialized pieces of a model.

Protobuf merges concatenated messages: a model is the concatenation of its fragments, each of which is serialized once.
Source: https://protobuf.dev/programming-guides/encoding/#last-one-wins
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from autoquant.model.copies import mark_external

__all__ = [
    "FLOAT32",
    "Large",
    "at_least",
    "converted",
    "external",
    "head",
    "initializer",
    "inline_external",
    "nested",
    "node",
    "opset_import",
    "rewired",
    "taken_apart",
    "whole",
]

FLOAT32 = int(onnx.TensorProto.FLOAT)
"""What a Cast names the type."""
Large = tuple[bytes, npt.NDArray[np.generic]]
"""An initializer: what comes before its data in a graph, and the data as bytes."""


def _graph_fragment(graph: onnx.GraphProto) -> bytes:
    return onnx.ModelProto(graph=graph).SerializeToString(deterministic=True)


def head(model: onnx.ModelProto, opset: int = 0) -> bytes:
    """The model without nodes and initializers; what it says of itself, metadata too, is kept.

    Args:
        model: Whose head it is.
        opset: Which ONNX's own operators are to be of at least; nodes are taken to mean the same there.
    """
    graph = onnx.GraphProto(name=model.graph.name or "graph", input=model.graph.input, output=model.graph.output)
    start = onnx.ModelProto(
        ir_version=max(model.ir_version, 10),
        producer_name="autoquant",
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        metadata_props=model.metadata_props,
        opset_import=at_least(model.opset_import, opset),
        functions=model.functions,
        graph=graph,
    )
    return start.SerializeToString(deterministic=True)


def at_least(imports: Iterable[onnx.OperatorSetIdProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """Imported domains, ONNX's own in a version or a later one."""
    return [
        helper.make_opsetid(each.domain, max(each.version, opset)) if each.domain in ("", "ai.onnx") else each
        for each in imports
    ]


def opset_import(domain: str, version: int) -> bytes:
    """Operators of a further domain."""
    return onnx.ModelProto(opset_import=[helper.make_opsetid(domain, version)]).SerializeToString(deterministic=True)


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attributes: float | str | tuple[int, ...]
) -> bytes:
    """A new node; a domain may be before its operator, as in ``com.microsoft:MatMulNBits``."""
    domain, _, operator = op_type.rpartition(":")
    made = helper.make_node(operator, inputs, outputs, name=name, domain=domain)
    made.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return _graph_fragment(onnx.GraphProto(node=[made]))


def rewired(
    proto: onnx.NodeProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    op_type: str | None = None,
    **attributes: float | str,
) -> bytes:
    """A node of the model with other tensors at its ends and, where given, another operator or attribute values."""
    copy = _without(proto, attributes)
    copy.op_type = op_type or proto.op_type
    copy.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return _with_ends(copy, inputs, outputs)


def converted(
    proto: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str], op_type: str, domain: str, dropped: str
) -> bytes:
    """A node of the model as an operator of another domain, which lacks one attribute, with other tensors."""
    copy = _without(proto, (dropped,))
    copy.op_type, copy.domain = op_type, domain
    return _with_ends(copy, inputs, outputs)


def _without(proto: onnx.NodeProto, attributes: Collection[str]) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    for attribute in [a for a in copy.attribute if a.name in attributes]:
        copy.attribute.remove(attribute)
    return copy


def _with_ends(proto: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    del proto.input[:], proto.output[:]
    proto.input.extend(inputs)
    proto.output.extend(outputs)
    return _graph_fragment(onnx.GraphProto(node=[proto]))


def initializer(name: str, array: npt.NDArray[np.generic]) -> bytes:
    """A constant that the fragment itself holds."""
    return _graph_fragment(onnx.GraphProto(initializer=[numpy_helper.from_array(array, name)]))


def external(name: str, array: npt.NDArray[np.generic]) -> bytes:
    """A constant whose value the session is given when it opens."""
    tensor = onnx.TensorProto(name=name, dims=array.shape, data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
    mark_external(tensor, array.nbytes)
    return _graph_fragment(onnx.GraphProto(initializer=[tensor]))


def inline_external(
    skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], metadata: Mapping[str, str]
) -> onnx.ModelProto:
    """The model that a skeleton and its external constants stand for, with metadata beside those that it has."""
    return onnx.load_from_string(b"".join(whole(skeleton, arrays, metadata)))


def whole(
    skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """The same model, serialized, in pieces: the constants are neither copied nor all in memory once more."""
    model, graph, initializers = taken_apart(skeleton, arrays, metadata)
    yield model.SerializeToString(deterministic=True)
    yield from nested([(onnx.ModelProto.GRAPH_FIELD_NUMBER, graph.SerializeToString(deterministic=True))], initializers)


def taken_apart(
    skeleton: bytes, arrays: Mapping[str, npt.NDArray[np.generic]], metadata: Mapping[str, str]
) -> tuple[onnx.ModelProto, onnx.GraphProto, list[Large]]:
    """The model without its graph, the graph without large initializers, and these, of which nothing is copied."""
    model = onnx.load_from_string(skeleton)
    helper.set_model_props(model, {**{entry.key: entry.value for entry in model.metadata_props}, **metadata})
    graph, initializers = onnx.GraphProto(), list[Large]()
    graph.CopyFrom(model.graph)
    graph.ClearField("initializer")
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            initializers.append(_initializer_of(tensor, arrays[tensor.name]))
        else:
            graph.initializer.append(tensor)
    model.ClearField("graph")
    return model, graph, initializers


def nested(levels: Sequence[tuple[int, bytes]], initializers: Sequence[Large]) -> Iterator[bytes | memoryview]:
    """A graph as a field, in pieces.

    Args:
        levels: Number of each field, from the one around all others to the graph, and what it holds before the next.
        initializers: Large ones, at the end of the graph.
    """
    n_bytes = sum(len(header) + array.nbytes for header, array in initializers)
    start = b""
    for field, held in reversed(levels):
        prefix = _prefix(field, len(held) + len(start) + n_bytes)
        start = prefix + held + start
    yield start
    for header, array in initializers:
        yield header
        yield array.data


def _initializer_of(tensor: onnx.TensorProto, array: npt.NDArray[np.generic]) -> Large:
    """What comes before the data in a graph, and the data as bytes."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    start = onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    fields = start.SerializeToString(deterministic=True) + _prefix(onnx.TensorProto.RAW_DATA_FIELD_NUMBER, data.nbytes)
    return _prefix(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, len(fields) + data.nbytes) + fields, data


def _prefix(field: int, n_bytes: int) -> bytes:
    """Of a field of so many bytes; both numbers are varints, seven bits a byte, the lowest first."""
    found = bytearray()
    for number in (field << 3 | 2, n_bytes):
        left = number
        while left > 0x7F:
            found.append(left & 0x7F | 0x80)
            left >>= 7
        found.append(left)
    return bytes(found)
