"""Arrays in files: small ones are held in memory, of large ones one sample is read at a time."""

import math
import os
import shutil
import struct
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from autoquant.domain.written import is_npy
from autoquant.errors import DataError
from autoquant.isolation.scratch import Scratch

__all__ = ["HELD_BYTES", "Array", "ArrayFiles", "FileArray"]

Array = npt.NDArray[np.generic]

HELD_BYTES = 16 << 20
"""Arrays of a source that together are no larger are held in memory."""

_CHUNK = 1 << 20
_LOCAL_HEADER = 30
"""Bytes of a zip member's own header; they end with the lengths of the name and the extra field that follow."""
_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


@dataclass(frozen=True, slots=True)
class FileArray:
    """An array whose samples are read from a file when they are asked for, axis 0 being that of the samples.

    Attributes:
        where: Begins every message about it.
        path: The file.
        stamp: Of the file when it was opened first.
        offset: Of the first value, in bytes.
        shape: No dimension is 0.
        dtype: Of a fixed size, without Python objects.
        keeps: What has to live as long as the file is read.
    """

    where: str
    path: Path
    stamp: tuple[int, int]
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    keeps: object = None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def sample(self, index: int) -> Array:
        """What ``array[index, ...]`` is of an array in memory.

        Raises:
            DataError: The file has changed or cannot be read any more.
        """
        shape = self.shape[1:]
        return self._read(index * math.prod(shape) * self.dtype.itemsize, shape)

    def alone(self, index: int) -> "FileArray":
        """One sample as an array of its own, for another process: it keeps nothing."""
        size = math.prod(self.shape[1:]) * self.dtype.itemsize
        return replace(self, offset=self.offset + index * size, shape=(1, *self.shape[1:]), keeps=None)

    def whole(self) -> Array:
        """All of it, in memory.

        Raises:
            DataError: The file has changed or cannot be read any more.
        """
        return self._read(0, self.shape)

    def _read(self, start: int, shape: tuple[int, ...]) -> Array:
        count = math.prod(shape)
        try:
            with self.path.open("rb", buffering=0) as file:
                is_same = _stamp(file) == self.stamp
                file.seek(self.offset + start)
                values: Array = np.fromfile(file, self.dtype, count)
        except OSError as error:
            reason = error.strerror or error
            raise DataError(
                f"{self.where}: the file cannot be read any more ({reason}), put it back and start again"
            ) from error
        if not is_same or values.size != count:
            raise DataError(f"{self.where}: the file has changed since it was checked, start again")
        return values.reshape(shape)


class ArrayFiles:
    """Reads the files of one source.

    Arrays are held in memory as long as there is room. Others stay in their file, compressed ones in a temporary folder
    that lives as long as they do. What cannot be read by the sample, as arrays in Fortran order, is always held.
    """

    def __init__(self, held_bytes: int) -> None:
        self._room = held_bytes
        self._folder = _TemporaryFolder()

    def read(self, path: Path, where: str) -> Array | FileArray | dict[str, Array | FileArray]:
        """The array of an .npy, the arrays by name of an .npz; the content tells which of them it is.

        Args:
            path: The file.
            where: Begins every message about it.

        Raises:
            DataError: There is no room to unpack it.
            ValueError: It is neither.
            Exception: Whatever numpy, zipfile, zlib, tokenize and others raise on damaged files.
        """
        with path.open("rb") as file:  # opened here, as numpy leaves a damaged .npz open
            origin = _Origin(where, path.absolute(), file, _stamp(file))
            if is_npy(file):
                return self._npy(origin)
            content = np.load(file, allow_pickle=False)
            members = zip(content.files, content.zip.infolist(), strict=True)
            return {name: self._member(origin, content, name, member) for name, member in members}

    def _npy(self, origin: "_Origin") -> Array | FileArray:
        file, (n_bytes, _) = origin.file, origin.stamp
        layout = None if self._holds(n_bytes) else _Layout.read(file, n_bytes)
        if layout is not None:
            return layout.array(origin, layout.offset)
        file.seek(0)
        array: Array = np.load(file, allow_pickle=False)
        return array

    def _member(self, origin: "_Origin", content: Any, name: str, member: zipfile.ZipInfo) -> Array | FileArray:
        layout = None
        if not self._holds(member.file_size):
            with content.zip.open(member) as stream:
                layout = _Layout.read(stream, member.file_size)
                if layout is not None and member.compress_type != zipfile.ZIP_STORED:
                    return self._unpack(stream, layout, origin.where)
                while stream.read(_CHUNK):  # to the end: there zipfile checks the sum
                    pass
        if layout is None:
            return np.asarray(content[name])
        return layout.array(origin, _start(origin.file, member) + layout.offset)

    def _unpack(self, stream: IO[bytes], layout: "_Layout", where: str) -> FileArray:
        with _unpacking(where):
            path = self._folder.new_path()
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file, _CHUNK)
                file.flush()
                return layout.array(_Origin(where, path, file, _stamp(file)), 0, self._folder)

    def _holds(self, n_bytes: int) -> bool:
        """Whether there is room for so many; if so they are taken from it."""
        if n_bytes > self._room:
            return False
        self._room -= n_bytes
        return True


@dataclass(frozen=True, slots=True)
class _Origin:
    """An open file; ``where`` begins every message about it."""

    where: str
    path: Path
    file: IO[bytes]
    stamp: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the values of an .npy are and what they are."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def read(cls, file: IO[bytes], n_bytes: int) -> "_Layout | None":
        """From the header of an .npy of ``n_bytes``; None where it is none or its samples do not lie one by one."""
        try:
            read_header = _HEADER_READERS.get(npy.read_magic(file))
        except ValueError:
            return None
        if read_header is None:
            return None
        shape, is_fortran, dtype = read_header(file)
        if is_fortran or dtype.hasobject or not shape or min(shape) < 1 or not dtype.itemsize:
            return None
        offset = file.tell()
        is_complete = offset + math.prod(shape) * dtype.itemsize <= n_bytes
        return cls(offset, shape, dtype) if is_complete else None

    def array(self, origin: _Origin, offset: int, keeps: object = None) -> FileArray:
        """The array whose values begin at an offset of a file."""
        return FileArray(origin.where, origin.path, origin.stamp, offset, self.shape, self.dtype, keeps)


class _TemporaryFolder:
    """Made when it is needed first, removed with the last one who holds it; where that was killed, by the next one."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._n_files = 0

    def new_path(self) -> Path:
        """Of a file that is not there yet."""
        if self._path is None:
            scratch = Scratch(None)
            self._path = scratch.path
            weakref.finalize(self, scratch.remove)
        self._n_files += 1
        return self._path / str(self._n_files)


@contextmanager
def _unpacking(where: str) -> Iterator[None]:
    """Turn a failure to write into one sentence; damaged files raise no ``OSError``."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{where}: its compressed arrays cannot be unpacked into a temporary file ({error.strerror or error}), free"
            " some room, set TMPDIR to a folder that has it, or write the file with numpy.savez"
        ) from error


def _stamp(file: IO[bytes]) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _start(file: IO[bytes], member: zipfile.ZipInfo) -> int:
    """Offset of a stored member's bytes."""
    file.seek(member.header_offset)
    n_name, n_extra = struct.unpack("<HH", file.read(_LOCAL_HEADER)[-4:])
    return member.header_offset + _LOCAL_HEADER + int(n_name) + int(n_extra)
