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
from onnx.external_data_helper import uses_external_data

from autoquant.domain.feed import InputSignature
from autoquant.domain.reason import is_disk_full
from autoquant.errors import DiskFullError, ModelError, OutputError
from autoquant.model.order import sort_nodes
from autoquant.model.subgraphs import bodies_of

__all__ = [
    "INITIALIZERS_ARE_NO_INPUTS",
    "files_of",
    "input_signatures",
    "inputs_with_default",
    "load_any",
    "load_model",
    "load_skeleton",
    "load_written",
    "non_tensors",
    "output_dtypes",
    "save_model",
    "save_pieces",
    "sha256_of",
    "size_bytes_of",
]

INITIALIZERS_ARE_NO_INPUTS = 4
"""Version of the IR from which on initializers need not be listed as inputs."""
_QUANTIZED_OPS = re.compile(
    r"(Dynamic)?QuantizeLinear|DequantizeLinear|QLinear\w+|QGemm|QAttention|(MatMul|Conv)Integer\w*"
    r"|DynamicQuantize\w+|MatMulNBits"
)
_PACKED_BITS = {
    value: int(match[1])
    for name, value in onnx.TensorProto.DataType.items()
    if (match := re.fullmatch(r"(?:U?INT|FLOAT)([246])(?:E\w+)?", name))
}
"""Of types with several elements a byte."""
_UNSIZED = (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
_LARGEST_BYTES = 2**31
"""What protobuf can hold, and every candidate is one message."""


def load_model(path: Path) -> onnx.ModelProto:
    """Read a float model with its external data.

    Raises:
        ModelError: The file cannot be read, is no ONNX model, lacks its external data, is already quantized, or is
            larger than protobuf's 2 GiB.
    """
    model = load_skeleton(path)
    _refuse_quantized(model, path)
    _refuse_large(model, path)
    return _whole(model, path)


def load_any(path: Path) -> onnx.ModelProto:
    """Read a model, quantized or not, with its external data.

    Raises:
        ModelError: The file is missing, cannot be read, is no ONNX model, or lacks its external data.
    """
    return _whole(load_skeleton(path), path)


def load_written(path: Path) -> onnx.ModelProto:
    """Read what onnxruntime wrote, with its external data; of what is constant there may be no node left.

    Raises:
        ModelError: A part of it is missing.
    """
    return _whole(onnx.load(path, format="protobuf", load_external_data=False), path)


def load_skeleton(path: Path) -> onnx.ModelProto:
    """Read a model without its external data; its nodes come in an order in which they can run.

    Raises:
        ModelError: The file is missing, cannot be read, or is no ONNX model.
    """
    if not os.path.isfile(path):  # that of Path raises where a folder is closed or a name too long
        problem = "this is a folder" if os.path.isdir(path) else "there is no such file"
        raise ModelError(f"{path}: {problem}; give the path of an .onnx model or 'example:digits'")
    try:
        # a name ending in .json would mean another format
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise ModelError(f"{path}: this is not an ONNX model (protobuf cannot read it); export it again") from error
    except OSError as error:
        raise ModelError(f"{path}: the file cannot be read ({error.strerror}); see who may read it") from error
    if not model.graph.node or not model.opset_import:
        raise ModelError(f"{path}: this is not an ONNX model (it has no nodes or no opset); export it again")
    sort_nodes(model.graph)
    return model


def _whole(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The same object with its external data."""
    try:
        _read_external_data(model, path.parent)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: external data cannot be read ({error}); put all of them beside the model") from error
    return model


def _read_external_data(model: onnx.ModelProto, folder: Path) -> None:
    """Put values into a model that lie in other files.

    onnx itself refuses files that are links or have several names, as in the caches of model hubs.

    Raises:
        OSError: A file cannot be read.
        ValueError: One lies outside of the folder, where a link may lead but no name, or a tensor has fewer bytes than
            its shape wants.
    """
    for tensor in _tensors(model):
        if uses_external_data(tensor):
            tensor.raw_data = _external_bytes(tensor, folder)
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        if tensor.HasField("raw_data") and len(tensor.raw_data) < _n_bytes(tensor):
            raise ValueError(f"'{tensor.name}' is cut off")


def _external_bytes(tensor: onnx.TensorProto, folder: Path) -> bytes:
    """The values of a tensor as they are in its file, no more than there are."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = os.path.normpath(entries.get("location", ""))
    if os.path.isabs(location) or location.split(os.sep)[0] == os.pardir:
        raise ValueError(f"'{tensor.name}' lies in '{location}', outside of the folder")
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", _n_bytes(tensor)))
    with (folder / location).open("rb") as file:
        n_left = os.fstat(file.fileno()).st_size - offset
        file.seek(offset)
        return file.read(max(0, min(length, n_left)))


def _n_bytes(tensor: onnx.TensorProto) -> int:
    """What the values of a tensor take; 0 for strings, which have no fixed size, and for types that onnx lacks."""
    if tensor.data_type in _UNSIZED or tensor.data_type not in onnx.TensorProto.DataType.values():
        return 0
    n_bits = _PACKED_BITS.get(tensor.data_type) or 8 * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    return (math.prod(tensor.dims) * n_bits + 7) // 8


def _refuse_quantized(model: onnx.ModelProto, path: Path) -> None:
    found = [n.op_type for part in _parts(model) for n in part.node if _QUANTIZED_OPS.fullmatch(n.op_type)]
    if found:
        raise ModelError(
            f"{path}: this model is already quantized ({len(found)} nodes such as {found[0]});"
            " give the float model that it was made from"
        )


def _refuse_large(model: onnx.ModelProto, path: Path) -> None:
    """Float16 counts as float32, which preprocessing makes of it."""
    n_bytes = sum(
        _n_bytes(tensor) * (2 if tensor.data_type == onnx.TensorProto.FLOAT16 else 1) for tensor in _tensors(model)
    )
    if n_bytes >= _LARGEST_BYTES:
        raise ModelError(
            f"{path}: its weights are {n_bytes / 1e9:.1f} GB in float32, but a model that is searched must be smaller"
            " than the 2 GiB that protobuf can hold; cut it into smaller models"
        )


def input_signatures(model: onnx.ModelProto) -> tuple[InputSignature, ...]:
    """The inputs that a user feeds: graph inputs that are no initializers."""
    constants = {t.name for t in model.graph.initializer}
    return tuple(_signature(value) for value in model.graph.input if value.name not in constants)


def inputs_with_default(model: onnx.ModelProto) -> tuple[str, ...]:
    """Inputs that may be left out, as there are initializers for them; in older files all initializers are inputs."""
    if model.ir_version < INITIALIZERS_ARE_NO_INPUTS:
        return ()
    constants = {t.name for t in model.graph.initializer}
    return tuple(value.name for value in model.graph.input if value.name in constants)


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
    save_pieces([model.SerializeToString(deterministic=True)], path)


def save_pieces(pieces: Iterable[bytes | memoryview], path: Path) -> None:
    """The same of a model that is serialized already.

    Raises:
        DiskFullError: There is no room.
        OutputError: The folder cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.writelines(pieces)
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
        for t in _tensors(model)
        if uses_external_data(t)
        for entry in t.external_data
        if entry.key == "location"
    }
    yield from (path.parent / place for place in sorted(places))


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Initializers and tensors in attributes."""
    for part in _parts(model):
        if isinstance(part, onnx.GraphProto):
            yield from part.initializer
        for attribute in (a for node in part.node for a in node.attribute):
            yield from [attribute.t] if attribute.HasField("t") else attribute.tensors


def _parts(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph, functions, and the bodies in them at any depth."""
    parts: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while parts:
        part = parts.pop(0)
        yield part
        for node in part.node:
            parts += bodies_of(node)


def size_bytes_of(path: Path) -> int:
    """Bytes of the model with its external data."""
    return sum(file.stat().st_size for file in files_of(path))


def sha256_of(path: Path) -> str:
    """Digest of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
