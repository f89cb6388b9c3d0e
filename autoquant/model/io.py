"""Reading and writing ONNX files."""

import hashlib
import math
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import helper
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from autoquant.domain.feed import InputSignature
from autoquant.domain.reason import is_disk_full
from autoquant.errors import DiskFullError, ModelError, OutputError

__all__ = [
    "files_of",
    "input_signatures",
    "load_any",
    "load_model",
    "model_digest",
    "non_tensors",
    "output_dtypes",
    "save_model",
    "sha256_of",
    "size_bytes_of",
]

_QUANTIZED_OPS = re.compile(
    r"(Dynamic)?QuantizeLinear|DequantizeLinear|QLinear\w+|QGemm|QAttention|(MatMul|Conv)Integer\w*"
    r"|DynamicQuantize\w+|MatMulNBits"
)
_PACKED = frozenset(
    value
    for name, value in onnx.TensorProto.DataType.items()
    if re.fullmatch(r"UNDEFINED|STRING|U?INT[24]|FLOAT[46]\w+", name)
)
"""Types with several elements a byte, or of no fixed size."""
_LARGEST_BYTES = 2**31
"""What protobuf can hold, and every candidate is one message."""


def load_model(path: Path) -> onnx.ModelProto:
    """Read a float model with its external data.

    Raises:
        ModelError: The file cannot be read, is no ONNX model, lacks its external data, is already quantized, or is
            larger than protobuf's 2 GiB.
    """
    model = load_any(path)
    _refuse_quantized(model, path)
    _refuse_large(model, path)
    return model


def load_any(path: Path) -> onnx.ModelProto:
    """Read a model, quantized or not, with its external data.

    Raises:
        ModelError: The file is missing, cannot be read, is no ONNX model, or lacks its external data.
    """
    model = _load_file(path)
    try:
        load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(f"{path}: external data cannot be read ({error}); put all of them beside the model") from error
    if not model.graph.node or not model.opset_import:
        raise ModelError(f"{path}: this is not an ONNX model (it has no nodes or no opset); export it again")
    cut = next((tensor.name for tensor in model.graph.initializer if _is_cut_off(tensor)), None)
    if cut is not None:
        raise ModelError(f"{path}: external data cannot be read ('{cut}' is cut off); put all of them beside the model")
    return model


def _load_file(path: Path) -> onnx.ModelProto:
    """Without external data."""
    if not os.path.isfile(path):  # that of Path raises where a folder is closed or a name too long
        raise ModelError(f"{path}: there is no such file; give the path of an .onnx model or 'example:digits'")
    try:
        # a name ending in .json would mean another format
        return onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"{path}: this is not an ONNX model (protobuf cannot read it); export it again") from error
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror}); see who may read it") from error


def _is_cut_off(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor has fewer bytes than its shape wants, which not every version of onnx says."""
    if not tensor.HasField("raw_data") or tensor.data_type in _PACKED:
        return False
    return len(tensor.raw_data) < math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _refuse_quantized(model: onnx.ModelProto, path: Path) -> None:
    found = [n.op_type for n in model.graph.node if _QUANTIZED_OPS.fullmatch(n.op_type)]
    if found:
        raise ModelError(
            f"{path}: this model is already quantized ({len(found)} nodes such as {found[0]});"
            " give the float model that it was made from"
        )


def _refuse_large(model: onnx.ModelProto, path: Path) -> None:
    n_bytes = sum(len(tensor.raw_data) for tensor in _tensors(model.graph))
    if n_bytes >= _LARGEST_BYTES:
        raise ModelError(
            f"{path}: its weights are {n_bytes / 1e9:.1f} GB, but a model that is searched must be smaller than the"
            " 2 GiB that protobuf can hold; cut it into smaller models"
        )


def input_signatures(model: onnx.ModelProto) -> tuple[InputSignature, ...]:
    """The inputs that a user feeds: graph inputs that are no initializers."""
    constants = {t.name for t in model.graph.initializer}
    return tuple(_signature(value) for value in model.graph.input if value.name not in constants)


def _signature(value: onnx.ValueInfoProto) -> InputSignature:
    tensor = value.type.tensor_type
    dims = tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else d.dim_param or None for d in tensor.shape.dim
    )
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return InputSignature(value.name, dtype, dims if tensor.HasField("shape") else None)


def output_dtypes(model: onnx.ModelProto) -> dict[str, str]:
    """Of each output that is a tensor numpy's name of the element type, in their order."""
    tensors = ((value.name, value.type.tensor_type.elem_type) for value in model.graph.output)
    return {name: helper.tensor_dtype_to_np_dtype(elem).name for name, elem in tensors if elem}


def non_tensors(values: Iterable[onnx.ValueInfoProto]) -> list[str]:
    """Names of inputs or outputs that are sequences, maps, optional or sparse."""
    return [value.name for value in values if not value.type.HasField("tensor_type")]


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write a model, which must be smaller than protobuf's 2 GiB, at once or not at all.

    Raises:
        DiskFullError: There is no room.
        OutputError: The folder cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(model.SerializeToString(deterministic=True))
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        kind = DiskFullError if is_disk_full(error) else OutputError
        raise kind(f"{path}: cannot be written ({error.strerror}); free some room or choose another folder") from error


def files_of(path: Path) -> Iterator[Path]:
    """The model file and the files of its external data."""
    yield path
    model = onnx.load(path, format="protobuf", load_external_data=False)
    places = {
        entry.value
        for t in _tensors(model.graph)
        if uses_external_data(t)
        for entry in t.external_data
        if entry.key == "location"
    }
    yield from (path.parent / place for place in sorted(places))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Initializers and tensors in attributes, those of subgraphs too."""
    yield from graph.initializer
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from ([attribute.t] if attribute.HasField("t") else attribute.tensors)
        for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            yield from _tensors(inner)


def size_bytes_of(path: Path) -> int:
    """Bytes of the model with its external data."""
    return sum(file.stat().st_size for file in files_of(path))


def sha256_of(path: Path) -> str:
    """Digest of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def model_digest(model: onnx.ModelProto) -> str:
    """Digest of a model's content, hexadecimal."""
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
