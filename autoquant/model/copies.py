"""Whole models as bytes and as copies."""

import math
from collections.abc import Callable

import onnx
from google.protobuf.message import EncodeError, Message

from autoquant.errors import ModelError

__all__ = ["Model", "copy_of", "from_bytes", "opset_of", "to_bytes", "without_weights"]

Model = onnx.ModelProto
_MANY_ELEMENTS = 1024


def copy_of(model: Model) -> Model:
    """Another object of the same content."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def to_bytes(model: Model) -> bytes:
    """Serialized.

    Raises:
        ModelError: It is larger than protobuf's 2 GiB.
    """
    try:
        return model.SerializeToString()
    except (ValueError, EncodeError, onnx.checker.ValidationError) as error:  # by version of protobuf
        raise ModelError(
            "the model is larger than the 2 GiB that protobuf can hold; models of that size are not supported"
        ) from error


def from_bytes(data: bytes) -> Model:
    """The inverse of ``to_bytes``."""
    return onnx.load_from_string(data)


def opset_of(model: Model) -> int:
    """Version of ONNX's own operators."""
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)


def without_weights(model: Model, rewrite: Callable[[Model], Model]) -> Model:
    """Rewrite a model and leave out its large weights, which are most of what would be copied.

    Args:
        model: Stays as it is.
        rewrite: Does not look at weights. They are put back into the initializers of these names that it keeps.
    """
    skeleton, weights = onnx.ModelProto(), dict[str, bytes]()
    _copy_fields(model, skeleton, "graph")
    _copy_fields(model.graph, skeleton.graph, "initializer")
    for tensor in model.graph.initializer:
        if tensor.HasField("raw_data") and math.prod(tensor.dims) > _MANY_ELEMENTS:
            weights[tensor.name] = tensor.raw_data
            skeleton.graph.initializer.append(_without_data(tensor))
        else:
            skeleton.graph.initializer.append(tensor)
    rewritten = rewrite(skeleton)
    for tensor in rewritten.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = weights[tensor.name]
    return rewritten


def _without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """Of a tensor with ``raw_data`` all other fields; not by ``ListFields``, which would copy the data."""
    found = onnx.TensorProto(
        name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, metadata_props=tensor.metadata_props
    )
    if tensor.HasField("doc_string"):
        found.doc_string = tensor.doc_string
    return found


def _copy_fields(source: Message, target: Message, without: str) -> None:
    """Copy all fields of a message but one."""
    for field, value in source.ListFields():
        if field.name == without:
            continue
        if hasattr(value, "MergeFrom"):  # a message, or many values
            getattr(target, field.name).MergeFrom(value)
        else:
            setattr(target, field.name, value)
