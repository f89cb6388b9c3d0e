import gc
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from autoquant.calibration.files import Array, ArrayFiles, FileArray
from autoquant.errors import DataError

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)

Writer = Callable[[Path, Array], None]


def write_npy(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        np.save(file, array)


def write_npz(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        np.savez(file, first=np.zeros(3), x=array)


def write_compressed(path: Path, array: Array) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, first=np.zeros(3), x=array)


WRITERS: list[Writer] = [write_npy, write_npz, write_compressed]
writers = pytest.mark.parametrize("write", WRITERS)


def read(path: Path, held_bytes: int = 0) -> Array | FileArray:
    found = ArrayFiles(held_bytes).read(path, f"data {path.name}")
    return found["x"] if isinstance(found, dict) else found


def read_lazily(path: Path) -> FileArray:
    found = read(path)
    assert isinstance(found, FileArray)
    return found


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@given(
    array=npst.arrays(
        dtype=st.one_of(
            npst.floating_dtypes(endianness="?"),
            npst.integer_dtypes(endianness="?"),
            npst.unsigned_integer_dtypes(),
            npst.complex_number_dtypes(),
            npst.boolean_dtypes(),
            npst.unicode_string_dtypes(max_len=3),
            npst.byte_string_dtypes(max_len=3),
        ),
        shape=npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
    is_fortran=st.booleans(),
    write=st.sampled_from(WRITERS),
)
def test_what_is_read_by_the_sample_equals_what_numpy_loads(array: Array, is_fortran: bool, write: Writer) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "d"
        write(path, np.asarray(array, order="F" if is_fortran else "C"))
        found = read(path)
        whole = found.whole() if isinstance(found, FileArray) else found
        samples: Any = [found.sample(k) for k in range(len(found))] if isinstance(found, FileArray) else array
    assert (whole.dtype, whole.shape, whole.tobytes()) == (array.dtype, array.shape, array.tobytes())
    if array.ndim:
        for index, ours in enumerate(samples):
            expected = array[index, ...]
            assert (ours.dtype, ours.shape, ours.tobytes()) == (array.dtype, expected.shape, expected.tobytes())


@writers
def test_an_array_is_held_where_there_is_room_and_stays_in_its_file_where_there_is_none(
    tmp_path: Path, write: Writer
) -> None:
    write(tmp_path / "d", X)
    assert isinstance(read(tmp_path / "d", held_bytes=1000), np.ndarray)
    found = read_lazily(tmp_path / "d")
    assert (found.ndim, found.shape, found.dtype.name, len(found)) == (3, (4, 2, 3), "float32", 4)


@pytest.mark.parametrize("write", [write_npz, write_npy])
@pytest.mark.parametrize("array", [X.T, np.array(1.0), X[:0], np.zeros(2, "V0")])
def test_what_does_not_lie_sample_by_sample_is_held(tmp_path: Path, write: Writer, array: Array) -> None:
    write(tmp_path / "d", array)
    found = read(tmp_path / "d")
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, array, strict=True)


def test_a_member_that_is_no_array_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as file:
        file.writestr("x", b"no array")
    assert read(tmp_path / "d.npz") == np.asarray(b"no array")


def test_members_are_found_behind_names_and_extra_fields_of_any_length(tmp_path: Path) -> None:
    members: dict[str, Any] = {"a long name " * 9: X, "ü": X + 1, "x": X + 2}
    np.savez(tmp_path / "d.npz", **members)
    found = ArrayFiles(0).read(tmp_path / "d.npz", "data")
    assert isinstance(found, dict)
    for array, expected in zip(found.values(), (X, X + 1, X + 2), strict=True):
        assert isinstance(array, FileArray)
        np.testing.assert_array_equal(array.sample(3), expected[3])


@pytest.mark.parametrize("write", [write_npz, write_npy])
def test_a_file_that_disappears_is_one_sentence(tmp_path: Path, write: Writer) -> None:
    write(tmp_path / "d.npz", X)
    found = read_lazily(tmp_path / "d.npz")
    found.sample(0)
    (tmp_path / "d.npz").unlink()
    with pytest.raises(DataError) as error:
        found.sample(1)
    assert str(error.value) == (
        "data d.npz: the file cannot be read any more (No such file or directory), put it back and start again"
    )


@pytest.mark.parametrize("write", [write_npz, write_npy])
@pytest.mark.parametrize("other", [X + 1, X[:1]])
def test_a_file_that_changes_is_one_sentence(tmp_path: Path, write: Writer, other: Array) -> None:
    path = tmp_path / "d.npz"
    write(path, X)
    found = read_lazily(path)
    before = path.stat()
    write(path, other)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(DataError) as error:
        found.sample(0)
    assert str(error.value) == "data d.npz: the file has changed since it was checked, start again"


def test_a_compressed_array_is_read_once_and_does_not_need_its_file(tmp_path: Path, temporary: Path) -> None:
    write_compressed(tmp_path / "d.npz", X)
    found = read_lazily(tmp_path / "d.npz")
    (tmp_path / "d.npz").unlink()
    np.testing.assert_array_equal(found.sample(2), X[2])
    assert len(list(temporary.iterdir())) == 1


def test_unpacked_arrays_are_removed_with_the_last_one(tmp_path: Path, temporary: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", x=X, y=X + 1)
    found = ArrayFiles(0).read(tmp_path / "d.npz", "data")
    assert isinstance(found, dict)
    last = found.pop("y")
    del found
    gc.collect()
    assert isinstance(last, FileArray)
    np.testing.assert_array_equal(last.whole(), X + 1)
    del last
    gc.collect()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("write", [write_npz, write_npy])
def test_what_is_not_compressed_needs_no_temporary_folder(tmp_path: Path, temporary: Path, write: Writer) -> None:
    write(tmp_path / "d", X)
    read_lazily(tmp_path / "d")
    assert list(temporary.iterdir()) == []


def test_no_room_to_unpack_is_one_sentence(tmp_path: Path, temporary: Path) -> None:
    write_compressed(tmp_path / "d.npz", X)
    temporary.rmdir()
    with pytest.raises(DataError) as error:
        read(tmp_path / "d.npz")
    assert str(error.value) == (
        "data d.npz: its compressed arrays cannot be unpacked into a temporary file (No such file or directory),"
        " free some room, set TMPDIR to a folder that has it, or write the file with numpy.savez"
    )
