"""Labels from a file of their own."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Samples
from autoquant.domain.reason import one_line
from autoquant.domain.written import is_npy
from autoquant.errors import DataError
from autoquant.metrics.binding import check_labels

__all__ = ["attach_labels", "read_labels"]

_ADVICE = "write it again with numpy.savez or numpy.save, without Python objects"


def attach_labels(samples: Samples, path: str | os.PathLike[str]) -> Samples:
    """Samples with the labels of a file beside their own, of which those of the same name are replaced.

    Args:
        samples: Not yet divided into parts.
        path: As ``read_labels`` takes it.

    Raises:
        DataError: The file cannot be read.
        MetricError: It holds another number of labels than there are samples.
    """
    found = read_labels(path)
    check_labels(found, len(samples))
    hasher = hashlib.sha256(samples.digest.encode())
    for name, array in sorted(found.items()):
        hasher.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
    return replace(samples, labels={**samples.labels, **found}, digest=hasher.hexdigest())


def read_labels(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[np.generic]]:
    """Arrays by name of an ``.npz``, or the one of an ``.npy`` as ``label``; samples along axis 0.

    Raises:
        DataError: The file cannot be read.
    """
    file = Path(path)
    if not os.path.exists(file):  # that of Path raises where a folder is closed or a name too long
        raise DataError(f"labels {file}: there is no such file, give an .npz or an .npy")
    try:
        with file.open("rb") as stream:  # opened here, as numpy leaves a damaged .npz open
            has_one = is_npy(stream)
            content = np.load(stream, allow_pickle=False)
            return {"label": content} if has_one else {name: np.asarray(content[name]) for name in content.files}
    except Exception as error:  # numpy lets through what zipfile, zlib, tokenize and others raise on damaged files
        raise DataError(f"labels {file}: the file cannot be read as arrays, {_ADVICE} ({one_line(error)})") from error
