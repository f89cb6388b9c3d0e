from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.feed import Samples
from autoquant.errors import DataError, MetricError
from autoquant.metrics.labels import attach_labels, read_labels

SAMPLES = Samples(
    feeds=({"x": np.zeros(1)}, {"x": np.ones(1)}),
    feed_digests=("0", "1"),
    names=("here, sample 0", "here, sample 1"),
    labels={"label": np.array([7, 8]), "label_b": np.array([0, 0])},
    digest="d",
    source="here",
)


def test_the_array_of_an_npy_is_called_label(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", [3, 4])
    assert {name: array.tolist() for name, array in read_labels(tmp_path / "labels.npy").items()} == {"label": [3, 4]}


def test_labels_of_a_file_stand_beside_those_of_the_data_and_replace_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "labels.npz", label=[3, 4], age=[30, 40])
    samples = attach_labels(SAMPLES, tmp_path / "labels.npz")
    assert {name: array.tolist() for name, array in samples.labels.items()} == {
        "label": [3, 4],
        "label_b": [0, 0],
        "age": [30, 40],
    }
    assert samples.feeds == SAMPLES.feeds
    assert samples.digest != SAMPLES.digest


def test_another_number_of_labels_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", [3, 4, 5])
    with pytest.raises(MetricError, match="labels 'label': 3 of them for 2 samples"):
        attach_labels(SAMPLES, tmp_path / "labels.npy")


def test_a_file_that_holds_no_arrays_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_labels(tmp_path / "labels.npz")
    (tmp_path / "labels.csv").write_text("1\n2\n")
    with pytest.raises(DataError, match=r"cannot be read as arrays, write it again .*something else than an"):
        read_labels(tmp_path / "labels.csv")
