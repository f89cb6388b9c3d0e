"""Whole models as bytes and as copies; large weights are most of what would be copied."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx
from google.protobuf.message import EncodeError, Message
from onnx import helper

from autoquant.errors import ModelError
from autoquant.model.subgraphs import read_by

__all__ = [
    "Model",
    "copy_of",
    "from_bytes",
    "in_parts",
    "mark_external",
    "model_digest",
    "opset_of",
    "to_bytes",
    "without_weights",
]

Model = onnx.ModelProto
_MANY_ELEMENTS = 1024
_SHARED_KINDS = "biuf"
"""Of numpy's types that onnxruntime takes arrays of without a copy; others, such as bfloat16, are made of bytes."""


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
    """Rewrite a model and leave out its large weights.

    Args:
        model: Stays as it is.
        rewrite: Does not look at weights. They are put back into the initializers of these names that it keeps.
    """
    skeleton, weights = _taken_apart(model)
    rewritten = rewrite(skeleton)
    for tensor in rewritten.graph.initializer:
        if tensor.name in weights:
            tensor.raw_data = weights[tensor.name]
    return rewritten


def in_parts(
    model: Model, rewrite: Callable[[Model], Model] = lambda skeleton: skeleton
) -> tuple[bytes, dict[str, npt.NDArray[np.generic]]]:
    """What a session is opened with: the model serialized without its large weights, and these by name.

    Args:
        model: Stays as it is.
        rewrite: Of what is opened; does not look at weights.
    """
    skeleton, weights = _taken_apart(model)
    skeleton = rewrite(skeleton)
    read = {name for node in skeleton.graph.node for name in read_by(node)}
    arrays: dict[str, npt.NDArray[np.generic]] = {}
    for tensor in skeleton.graph.initializer:
        data = weights.get(tensor.name)
        if data is None:
            continue
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        is_shared = dtype.kind in _SHARED_KINDS and bool(dtype.isbuiltin)
        if is_shared and tensor.name in read:  # others are gone before onnxruntime looks for their values
            arrays[tensor.name] = np.frombuffer(data, dtype.newbyteorder("<")).reshape(tensor.dims)
            mark_external(tensor, len(data))
        else:
            tensor.raw_data = data
    return to_bytes(skeleton), arrays


def mark_external(tensor: onnx.TensorProto, n_bytes: int) -> None:
    """Say of a tensor without values that a session is given them when it opens."""
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "in-memory"), ("offset", "0"), ("length", str(n_bytes))):
        tensor.external_data.add(key=key, value=value)


def model_digest(model: Model) -> str:
    """Digest of a model's content, hexadecimal."""
    skeleton, weights = _taken_apart(model)
    digest = hashlib.sha256(skeleton.SerializeToString(deterministic=True))
    for data in weights.values():
        digest.update(data)
    return digest.hexdigest()


def _taken_apart(model: Model) -> tuple[Model, dict[str, bytes]]:
    """A copy of a model without its large weights, and these by name, in their order.

    Those that share a name stay: which of them onnxruntime takes hangs on their size.
    """
    skeleton, weights = onnx.ModelProto(), dict[str, bytes]()
    names = Counter(tensor.name for tensor in model.graph.initializer)
    _copy_fields(model, skeleton, "graph")
    _copy_fields(model.graph, skeleton.graph, "initializer")
    for tensor in model.graph.initializer:
        is_large = tensor.HasField("raw_data") and math.prod(tensor.dims) > _MANY_ELEMENTS
        if is_large and names[tensor.name] == 1:
            weights[tensor.name] = tensor.raw_data
            skeleton.graph.initializer.append(_without_data(tensor))
        else:
            skeleton.graph.initializer.append(tensor)
    return skeleton, weights


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
