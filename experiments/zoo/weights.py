"""Weights of other formats as numpy arrays, read without running what the file says."""

import collections
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np

from experiments.zoo.packages import Unavailable

__all__ = ["Weights", "read_safetensors", "read_torch_legacy"]

Weights = dict[str, np.ndarray]
TORCH_STORAGES = {"FloatStorage": "<f4", "LongStorage": "<i8"}
SAFETENSORS_DTYPES = {"F32": "<f4", "I64": "<i8"}


class _TensorUnpickler(pickle.Unpickler):
    """Accepts tensors and ordered dictionaries of them, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        """What stands for a class or function of the pickle."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *_: (storage, offset, size, stride)
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch" and name in TORCH_STORAGES:
            return name
        raise pickle.UnpicklingError(f"the weights ask for {module}.{name}, which is neither a tensor nor a dictionary")

    def persistent_load(self, pid: tuple[object, ...]) -> tuple[object, object]:
        """Key and kind of a storage."""
        return pid[2], pid[1]


def read_torch_legacy(path: Path) -> Weights:
    """A state dictionary as torch.save wrote it before version 1.6.

    Raises:
        Unavailable: The file holds more than tensors.
    """
    file = io.BytesIO(path.read_bytes())
    try:
        for _ in range(3):  # magic number, protocol version, platform
            _TensorUnpickler(file).load()
        tensors = _TensorUnpickler(file).load()
        keys = _TensorUnpickler(file).load()
    except pickle.UnpicklingError as error:
        raise Unavailable(f"{path.name} can't be read: {error}.") from None
    kinds, storages = dict(tensor[0] for tensor in tensors.values()), {}
    for key in keys:
        dtype = np.dtype(TORCH_STORAGES[kinds[key]])
        n_elements = struct.unpack("<q", file.read(8))[0]
        storages[key] = np.frombuffer(file.read(n_elements * dtype.itemsize), dtype)
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[key][offset:], size, [step * storages[key].itemsize for step in stride]
        ).copy()
        for name, ((key, _), offset, size, stride) in tensors.items()
    }


def read_safetensors(path: Path, member: str) -> Weights:
    """A safetensors file that lies in a zip archive."""
    with zipfile.ZipFile(path) as archive:
        content = archive.read(member)
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = {name: entry for name, entry in json.loads(content[8:start]).items() if name != "__metadata__"}
    weights = {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        values = np.frombuffer(content[start + first : start + last], SAFETENSORS_DTYPES[entry["dtype"]])
        weights[name] = values.reshape(entry["shape"])
    return weights
