"""Where samples come from: files, folders, Python objects."""

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from autoquant.calibration.files import HELD_BYTES, Array, ArrayFiles, FileArray
from autoquant.domain.feed import Feed
from autoquant.domain.mistakes import did_you_mean
from autoquant.domain.reason import one_line
from autoquant.errors import DataError
from autoquant.examples import EXAMPLES, example
from autoquant.runtime.modules import importable

__all__ = [
    "Arrays",
    "DataSource",
    "FeedReader",
    "Feeds",
    "as_array",
    "is_missing",
    "read_parts",
    "source_name",
]


@runtime_checkable
class FeedReader(Protocol):
    """What is used of onnxruntime's ``CalibrationDataReader``."""

    def get_next(self) -> Feed | None:
        """The next feed, None after the last."""
        ...


DataSource = str | os.PathLike[str] | Mapping[str, Array] | Array | Iterable[Feed | Array] | FeedReader
"""A path of an .npz, an .npy or a folder of them, ``module:callable``, arrays by name, feeds, or a reader of feeds.

For a model with one input an array, or one for each sample, needs no name.
"""


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays by name, samples along axis 0; ``where`` begins every message about them."""

    where: str
    arrays: Mapping[str, Array | FileArray]


@dataclass(frozen=True, slots=True)
class Feeds:
    """Feeds as they are; ``where`` begins every message about them."""

    where: str
    feeds: Sequence[Feed]


_T = TypeVar("_T")
_SUFFIXES = (".npy", ".npz")
_CALLABLE = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")
_FORMS = "give an .npz, an .npy, a folder of them, module:callable, or example:digits"


def source_name(source: DataSource) -> str:
    """How messages and reports call the source."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"<{type(source).__name__}>"


def is_missing(source: str) -> bool:
    """Whether it is a path that leads nowhere from the current folder; ``module:callable`` is none."""
    return not _exists(Path(source)) and not _CALLABLE.fullmatch(source)


def read_parts(
    source: DataSource, input_names: Sequence[str], *, role: str, held_bytes: int = HELD_BYTES
) -> list[Arrays | Feeds]:
    """Read everything that the source holds, unchecked, in order.

    Args:
        source: A path, ``module:callable``, ``example:digits`` or Python objects.
        input_names: Of the model; the only array of an .npy takes the only one.
        role: ``"calibration"``, ``"evaluation"`` or ``"held-out"``, for messages and for what an example brings.
        held_bytes: Of arrays in files that are held in memory; the samples of others are read when they are needed.

    Raises:
        DataError: It cannot be read.
    """
    where = f"{role} data {source_name(source)}"
    if not isinstance(source, str | os.PathLike):
        return [_read_object(source, input_names, where)]
    path, array_files = _path_of(source, role), ArrayFiles(held_bytes)
    if os.path.isdir(path):  # that of Path raises where a folder is closed or a name too long
        files = _files_in(path, where)
        if not files:
            raise DataError(f"{where}: the folder holds no .npz or .npy file, put one there")
        return [_read_file(array_files, file, input_names, f"{role} data {file}") for file in files]
    if path.suffix.lower() in _SUFFIXES:
        return [_read_file(array_files, path, input_names, where)]
    names = _CALLABLE.fullmatch(str(source))
    if names:
        return [_read_callable(names[1], names[2], input_names, where)]
    problem = "files of this kind cannot be read" if _exists(path) else "there is no such file or folder"
    raise DataError(f"{where}: {problem}, {_FORMS}")


def _path_of(source: str | os.PathLike[str], role: str) -> Path:
    """As it is given; of an example that of its own samples. Modules of the user's may be called ``example`` too."""
    prefix, _, name = str(source).partition(":")
    if prefix != "example" or name not in EXAMPLES:
        return Path(source)
    own = example(name)
    return own.calibration if role == "calibration" else own.evaluation


def as_array(value: object, where: str) -> Array:
    """What a user gives for an array; ``where`` begins the message.

    Raises:
        DataError: It is none, such as rows of unlike lengths, or a tensor on another device.
    """
    try:
        return np.asarray(value)
    except Exception as error:  # whatever __array__ of the user's tensors raises
        kind = type(value).__name__
        raise DataError(f"{where}: type '{kind}' is no array, give one of numpy ({one_line(error)})") from error


def _read_file(array_files: ArrayFiles, path: Path, input_names: Sequence[str], where: str) -> Arrays:
    if not _exists(path):
        raise DataError(f"{where}: there is no such file, {_FORMS}")
    try:
        content = array_files.read(path, where)
    except DataError:
        raise
    except Exception as error:  # numpy lets through what zipfile, zlib, tokenize and others raise on damaged files
        advice = "write it again with numpy.savez or numpy.save, without Python objects"
        raise DataError(f"{where}: the file cannot be read as arrays, {advice} ({one_line(error)})") from error
    if isinstance(content, dict):
        return Arrays(where, content)
    return Arrays(where, _named(content, input_names, where))


def _named(array: _T, input_names: Sequence[str], where: str) -> dict[str, _T]:
    """An array by the name of the only input."""
    if len(input_names) != 1:
        wanted = ", ".join(input_names)
        raise DataError(f"{where}: one array has no name, but the model wants {wanted}; give arrays with these names")
    return {input_names[0]: array}


def _exists(path: Path) -> bool:
    return os.path.exists(path)  # that of Path raises where a folder is closed or a name too long


def _files_in(folder: Path, where: str) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix.lower() in _SUFFIXES)
    except OSError as error:
        raise DataError(f"{where}: the folder cannot be read ({error.strerror}), {_FORMS}") from error


def _read_object(source: object, input_names: Sequence[str], where: str) -> Arrays | Feeds:
    if isinstance(source, type):
        raise DataError(f"{where}: this is the class {source.__name__}, give an instance: {source.__name__}()")
    if isinstance(source, np.ndarray):
        return Arrays(where, _named(source, input_names, where))
    if isinstance(source, Mapping):
        return Arrays(where, {name: as_array(array, f"{where}, array '{name}'") for name, array in source.items()})
    if isinstance(source, FeedReader):
        return Feeds(where, _read_reader(source, where))
    if isinstance(source, list | tuple):
        return Feeds(where, list(_feeds(source, input_names, where)))
    if isinstance(source, Iterable):
        return Feeds(where, list(_kept(_feeds(source, input_names, where), where)))
    raise DataError(f"{where}: type '{type(source).__name__}' gives no samples, make it an iterable of feeds")


def _feeds(samples: Iterable[Feed | Array], input_names: Sequence[str], where: str) -> Iterator[Feed]:
    """Samples, those that are arrays by the name of the only input."""
    for sample in samples:
        yield _named(sample, input_names, where) if isinstance(sample, np.ndarray) else sample


def _read_reader(reader: FeedReader, where: str) -> list[Feed]:
    feeds = list(_kept(iter(reader.get_next, None), where))
    if not feeds:
        raise DataError(f"{where}: its get_next gave None at once; a reader gives its samples once, make a new one")
    return feeds


def _kept(feeds: Iterable[Feed], where: str) -> Iterator[Feed]:
    """With arrays of their own, as who makes one feed after the other may write all into the same arrays."""
    for index, feed in enumerate(feeds):
        if not isinstance(feed, Mapping):  # which is refused where feeds are checked
            yield feed
            continue
        yield {name: _owned(value, f"{where}, sample {index}, array '{name}'") for name, value in feed.items()}


def _owned(value: object, where: str) -> Array:
    """A copy, apart from what is in a file: that is not written again, and may be large."""
    return value if isinstance(value, np.memmap) else np.array(as_array(value, where))


def _read_callable(module_name: str, name: str, input_names: Sequence[str], where: str) -> Arrays | Feeds:
    with importable(Path.cwd()):
        try:
            module = importlib.import_module(module_name)
            if not hasattr(module, name):
                hint = did_you_mean(name, vars(module)) or ", define it"
                raise DataError(f"{where}: module '{module_name}' has no '{name}'{hint}")
            return _read_object(getattr(module, name)(), input_names, where)
        except DataError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code raises
            raise DataError(f"{where}: it raised {type(error).__name__}, put it right: {one_line(error)}") from error
