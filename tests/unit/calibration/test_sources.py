import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from autoquant.calibration.files import HELD_BYTES, Array, FileArray
from autoquant.calibration.sources import Arrays, DataSource, Feeds, is_missing, read_parts, source_name
from autoquant.domain.feed import Feed
from autoquant.errors import DataError
from autoquant.examples import example

FORMS = "give an .npz, an .npy, a folder of them, module:callable, or example:digits"
X = np.arange(6, dtype=np.float32).reshape(3, 2)


class Reader:
    """As onnxruntime's CalibrationDataReader."""

    def __init__(self, n_samples: int) -> None:
        self._feeds: Iterator[Feed] = iter([{"x": X[:1] + index} for index in range(n_samples)])

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def refilled(n_samples: int) -> Iterator[Feed]:
    """One array, which every sample is written into."""
    feed = {"x": np.empty((1, 2), np.float32)}
    for index in range(n_samples):
        feed["x"][:] = index
        yield feed


class RefillingReader(Reader):
    def __init__(self, n_samples: int) -> None:
        self._feeds = refilled(n_samples)


def read(source: DataSource, *names: str, held_bytes: int = HELD_BYTES) -> list[Arrays | Feeds]:
    return read_parts(source, names or ("x",), role="calibration", held_bytes=held_bytes)


def values(array: Array | FileArray) -> object:
    return (array.whole() if isinstance(array, FileArray) else array).tolist()


def arrays(source: DataSource, *names: str, held_bytes: int = HELD_BYTES) -> list[dict[str, object]]:
    parts = read(source, *names, held_bytes=held_bytes)
    return [{n: values(a) for n, a in part.arrays.items()} for part in parts if isinstance(part, Arrays)]


def refused(source: DataSource, *names: str, held_bytes: int = HELD_BYTES) -> str:
    with pytest.raises(DataError) as error:
        read(source, *names, held_bytes=held_bytes)
    return str(error.value)


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


held_and_not = pytest.mark.parametrize("held_bytes", [HELD_BYTES, 0])


@held_and_not
def test_an_npz_gives_its_arrays(tmp_path: Path, held_bytes: int) -> None:
    np.savez(tmp_path / "d.npz", x=X, label=np.arange(3))
    assert arrays(tmp_path / "d.npz", held_bytes=held_bytes) == [{"x": X.tolist(), "label": [0, 1, 2]}]


@held_and_not
def test_an_npy_gives_its_array_to_the_only_input(tmp_path: Path, held_bytes: int) -> None:
    np.save(tmp_path / "d.npy", X)
    assert arrays(str(tmp_path / "d.npy"), "image", held_bytes=held_bytes) == [{"image": X.tolist()}]


@held_and_not
def test_a_folder_gives_its_array_files_by_name(tmp_path: Path, held_bytes: int) -> None:
    np.save(tmp_path / "b.npy", X + 1)
    np.savez(tmp_path / "a.npz", x=X)
    (tmp_path / "README.txt").write_text("no data")
    assert arrays(tmp_path, held_bytes=held_bytes) == [{"x": X.tolist()}, {"x": (X + 1).tolist()}]


def test_the_files_of_a_folder_share_the_room_in_memory(tmp_path: Path) -> None:
    for name in ("a.npy", "b.npy", "c.npy"):
        np.save(tmp_path / name, X)
    room = 2 * (tmp_path / "a.npy").stat().st_size
    parts = read(tmp_path, held_bytes=room)
    assert [isinstance(part, Arrays) and type(part.arrays["x"]) for part in parts] == [
        np.ndarray,
        np.ndarray,
        FileArray,
    ]


def test_python_arrays_are_taken_without_a_copy() -> None:
    (part,) = read({"x": X})
    assert isinstance(part, Arrays)
    assert part.arrays["x"] is X


def test_python_feeds_are_taken_as_they_are() -> None:
    feeds: list[Feed] = [{"x": X[:1]}, {"x": X[1:]}]
    assert read(feeds) == [Feeds("calibration data <list>", feeds)]


def test_a_calibration_data_reader_is_read_to_its_end() -> None:
    (part,) = read(Reader(3))
    assert isinstance(part, Feeds)
    assert [feed["x"].tolist() for feed in part.feeds] == [[[0, 1]], [[1, 2]], [[2, 3]]]


@pytest.mark.parametrize("source", [refilled, RefillingReader])
def test_an_array_that_is_filled_anew_for_each_sample_gives_all_samples(source: Callable[[int], DataSource]) -> None:
    (part,) = read(source(3))
    assert isinstance(part, Feeds)
    assert [feed["x"].tolist() for feed in part.feeds] == [[[0, 0]], [[1, 1]], [[2, 2]]]


def test_samples_that_lie_in_a_mapped_file_stay_there(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", X)
    mapped = np.load(tmp_path / "d.npy", mmap_mode="r")
    (part,) = read({"x": mapped[index : index + 1]} for index in range(3))
    assert isinstance(part, Feeds)
    assert all(np.shares_memory(feed["x"], mapped) for feed in part.feeds)


@pytest.mark.parametrize(
    ("module", "body"),
    [
        ("generator_of_feeds", "import numpy\n    yield {'x': numpy.zeros(2)}\n    yield {'x': numpy.ones(2)}"),
        ("list_of_feeds", "import numpy\n    return [{'x': numpy.zeros(2)}, {'x': numpy.ones(2)}]"),
    ],
)
def test_a_callable_of_a_module_in_the_current_folder_gives_feeds(work_folder: Path, module: str, body: str) -> None:
    (work_folder / f"{module}.py").write_text(f"def samples():\n    {body}\n")
    path = list(sys.path)
    (part,) = read(f"{module}:samples")
    assert isinstance(part, Feeds)
    assert [feed["x"].tolist() for feed in part.feeds] == [[0, 0], [1, 1]]
    assert sys.path == path


def test_a_source_is_called_by_its_path_or_its_type() -> None:
    assert [source_name(source) for source in ("a/b.npz", Path("c.npy"), {"x": X})] == ["a/b.npz", "c.npy", "<dict>"]


def test_a_callable_and_what_is_there_are_not_missing(work_folder: Path) -> None:
    (work_folder / "d").mkdir()
    assert not is_missing("d")
    assert not is_missing("module.of_mine:samples")


@pytest.mark.parametrize("name", ["none.npz", "none.npy", "none.csv", "none"])
def test_a_missing_file_is_refused(work_folder: Path, name: str) -> None:
    assert is_missing(name)
    assert refused(name).startswith(f"calibration data {name}: there is no such file")
    assert refused(name).endswith(FORMS)


def test_a_file_of_another_kind_is_refused(work_folder: Path) -> None:
    (work_folder / "d.csv").write_text("1,2")
    assert refused("d.csv") == f"calibration data d.csv: files of this kind cannot be read, {FORMS}"


def test_a_folder_without_array_files_is_refused(work_folder: Path) -> None:
    (work_folder / "d").mkdir()
    assert refused("d") == "calibration data d: the folder holds no .npz or .npy file, put one there"


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_off(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.zeros(1000))
    path.write_bytes(path.read_bytes()[:-100])


def damaged(path: Path) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, x=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[200:300] = bytes(100)
    path.write_bytes(content)


def damaged_header(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(10))
    path.write_bytes(path.read_bytes().replace(b")", b"("))


def python_objects(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.array([{}], dtype=object), allow_pickle=True)


def damaged_values(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, x=np.ones(1000))
    content = bytearray(path.read_bytes())
    content[400:500] = bytes(100)
    path.write_bytes(content)


def cut_off_values(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.ones(1000))
    path.write_bytes(path.read_bytes()[:-100])


WAYS = [garbage, empty, cut_off, damaged, damaged_header, python_objects, damaged_values, cut_off_values]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("name", ["d.npz", "d.npy"])
def test_a_damaged_file_is_refused_in_the_same_words_wherever_its_arrays_are_held(
    work_folder: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(work_folder / name)
    expected = f"calibration data {name}: the file cannot be read as arrays, write it again with numpy.savez"
    assert refused(name).startswith(expected)
    assert refused(name, held_bytes=0) == refused(name)


def test_an_npy_for_a_model_with_two_inputs_is_refused(work_folder: Path) -> None:
    np.save("d.npy", X)
    expected = "calibration data d.npy: one array has no name, but the model wants a, b; give arrays with these names"
    assert refused("d.npy", "a", "b") == expected


def test_for_a_model_with_one_input_arrays_need_no_name(work_folder: Path) -> None:
    (work_folder / "one_input.py").write_text(
        "import numpy as np\ndef samples():\n    return np.ones((3, 2), 'float32')\n"
    )
    for source in (X, "one_input:samples"):
        assert [part.arrays.keys() for part in read(source) if isinstance(part, Arrays)] == [{"x"}]
    samples = [X[:1], X[1:2]]
    for each in (samples, tuple(samples), iter(samples)):
        (part,) = read(each)
        assert isinstance(part, Feeds)
        assert [feed["x"].tolist() for feed in part.feeds] == [[[0, 1]], [[2, 3]]]
    for unnamed in (X, samples):
        assert refused(unnamed, "a", "b").endswith(
            ": one array has no name, but the model wants a, b; give arrays with these names"
        )


def test_what_gives_no_samples_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"^evaluation data <int>: type 'int' gives no samples, make it an iterable of feeds$"
    ):
        read_parts(3, ["x"], role="evaluation")  # type: ignore[arg-type]


def test_a_class_of_readers_is_refused() -> None:
    expected = "calibration data <type>: this is the class Reader, give an instance: Reader()"
    assert refused(Reader) == expected  # type: ignore[arg-type]


def test_a_reader_that_was_read_already_is_refused() -> None:
    reader = Reader(3)
    read(reader)
    assert refused(reader) == (
        "calibration data <Reader>: its get_next gave None at once; a reader gives its samples once, make a new one"
    )


def test_a_missing_module_is_refused(work_folder: Path) -> None:
    message = refused("no_such_module:samples")
    assert message == (
        "calibration data no_such_module:samples: it raised ModuleNotFoundError, put it right:"
        " No module named 'no_such_module'"
    )


def test_a_missing_callable_is_refused_with_a_suggestion(work_folder: Path) -> None:
    (work_folder / "reader_of_samples.py").write_text("def samples():\n    return []\n")
    message = refused("reader_of_samples:sample")
    assert message == (
        "calibration data reader_of_samples:sample: module 'reader_of_samples' has no 'sample', did you mean 'samples'?"
    )


def test_a_callable_that_fails_is_refused_with_its_error(work_folder: Path) -> None:
    (work_folder / "reader_that_fails.py").write_text("def samples():\n    yield 1\n    raise KeyError('a\\nb')\n")
    message = refused("reader_that_fails:samples")
    assert message == "calibration data reader_that_fails:samples: it raised KeyError, put it right: 'a\\nb'"


def test_a_module_that_is_a_script_does_not_end_the_command(work_folder: Path) -> None:
    (work_folder / "reader_that_leaves.py").write_text("import sys\n\nsys.exit(0)\n")
    message = refused("reader_that_leaves:samples")
    assert message == "calibration data reader_that_leaves:samples: it raised SystemExit, put it right: 0"


@pytest.mark.parametrize(
    ("role", "shipped"), [("calibration", "calibration"), ("evaluation", "evaluation"), ("held-out", "evaluation")]
)
def test_an_example_brings_samples_for_each_role(role: str, shipped: str) -> None:
    (found,) = read_parts("example:digits", ("image",), role=role)
    (expected,) = read_parts(getattr(example("digits"), shipped), ("image",), role=role)
    assert isinstance(found, Arrays)
    assert isinstance(expected, Arrays)
    assert {name: values(array) for name, array in found.arrays.items()} == {
        name: values(array) for name, array in expected.arrays.items()
    }


@pytest.mark.usefixtures("work_folder")
def test_a_module_of_the_users_may_be_called_example(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("example.py").write_text("def mine(): return [{'x': [[1.0, 2.0]]}]")
    monkeypatch.delitem(sys.modules, "example", raising=False)
    (found,) = read("example:mine")
    assert isinstance(found, Feeds)
    assert len(found.feeds) == 1
    monkeypatch.delitem(sys.modules, "example", raising=False)
