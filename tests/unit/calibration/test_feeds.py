"""What users give instead of arrays and names."""

from pathlib import Path

import numpy as np
import pytest

from autoquant.calibration.batches import read_samples
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature
from autoquant.errors import DataError

INPUT = InputSignature("x", "float32", ("batch", 2))
RAGGED = [[1.0], [2.0, 3.0]]


class Tensor:
    """As those on another device, or with a gradient."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")


def refused(source: DataSource) -> str:
    with pytest.raises(DataError) as error:
        read_samples(source, [INPUT], role="calibration")
    return str(error.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Tensor(), "type 'Tensor' is no array, give one of numpy (Can't call numpy() on Tensor that requires grad)"),
        (RAGGED, "type 'list' is no array, give one of numpy (setting an array element with a sequence."),
    ],
)
def test_what_is_no_array_is_refused(value: np.ndarray, expected: str) -> None:
    assert refused([{"x": value}]).startswith(f"calibration data <list>, sample 0, array 'x': {expected}")
    assert refused({"x": value}).startswith(f"calibration data <dict>, array 'x': {expected}")


def test_what_a_callable_yields_is_refused_in_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reader_of_ragged_lists.py").write_text("def feeds():\n    yield {'x': [[1.0], [2.0, 3.0]]}\n")
    where = "calibration data reader_of_ragged_lists:feeds, sample 0, array 'x'"
    assert refused("reader_of_ragged_lists:feeds").startswith(f"{where}: type 'list' is no array")


@pytest.mark.parametrize("feed", [{0: np.zeros((1, 2), np.float32)}, {None: np.zeros((1, 2), np.float32)}])
def test_names_that_are_no_text_are_refused(feed: dict[str, np.ndarray]) -> None:
    expected = f"array '{next(iter(feed))}' is no input of the model, which wants x, leave it out"
    assert refused([feed]) == f"calibration data <list>, sample 0: {expected}"
    assert refused(feed) == f"calibration data <dict>: {expected}"
