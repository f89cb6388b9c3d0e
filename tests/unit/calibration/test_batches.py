import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.batches import batched, overlap, split
from autoquant.calibration.files import HELD_BYTES
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature
from tests.unit.calibration.reading import IMAGE, MASK, images, read, refused


@given(
    batch=st.sampled_from(["N", None, 1]),
    rest=st.lists(st.integers(1, 3), max_size=3),
    n_samples=st.integers(1, 5),
    n_dynamic=st.integers(0, 3),
)
def test_an_array_of_the_rank_of_the_input_is_fed_in_batches_of_one(
    batch: str | int | None, rest: list[int], n_samples: int, n_dynamic: int
) -> None:
    array = np.random.default_rng(0).normal(size=(n_samples, *rest))
    declared = (batch, *("d" if index < n_dynamic else n for index, n in enumerate(rest)))
    samples = read({"x": array}, InputSignature("x", "float64", declared))
    assert len(samples) == n_samples
    for index, feed in enumerate(samples.feeds):
        np.testing.assert_array_equal(feed["x"], array[index : index + 1])
        assert np.shares_memory(feed["x"], array)


@given(shape=st.lists(st.integers(1, 3), max_size=3), n_samples=st.integers(1, 5))
def test_an_array_with_one_dimension_more_is_fed_item_by_item(shape: list[int], n_samples: int) -> None:
    array = np.random.default_rng(0).normal(size=(n_samples, *shape))
    samples = read({"x": array}, InputSignature("x", "float64", tuple(shape)))
    assert len(samples) == n_samples
    for index, feed in enumerate(samples.feeds):
        np.testing.assert_array_equal(feed["x"], array[index])
        assert feed["x"].shape == tuple(shape)
        assert np.shares_memory(feed["x"], array)


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 3, 4)])
def test_an_array_of_an_input_of_undeclared_rank_is_fed_in_batches_of_one(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).normal(size=shape)
    signature = InputSignature("x", "float64", None)
    for index, feed in enumerate(read({"x": array}, signature).feeds):
        np.testing.assert_array_equal(feed["x"], array[index : index + 1])
    feeds = [{"x": array[0]}, {"x": array}]
    assert [feed["x"].shape for feed in read(feeds, signature).feeds] == [shape[1:], shape]
    assert len(batched(read({"x": array}, signature), [signature], 2)) == 1
    assert "its dtype is float32" in refused({"x": array.astype(np.float32)}, signature)


def test_labels_are_kept_apart() -> None:
    samples = read({"image": images(2), "label": np.array([3, 4]), "labels_2": np.array(["a", "b"])})
    assert [set(feed) for feed in samples.feeds] == [{"image"}, {"image"}]
    assert {name: array.tolist() for name, array in samples.labels.items()} == {"label": [3, 4], "labels_2": ["a", "b"]}


def test_an_input_whose_name_begins_like_a_label_is_an_input() -> None:
    samples = read({"label": images(1)}, InputSignature("label", "float32", (1, 3)))
    assert samples.labels == {}
    assert set(samples.feeds[0]) == {"label"}


def test_the_files_of_a_folder_are_one_set_of_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "b.npz", image=images(2) + 100, label=[8, 9])
    np.savez(tmp_path / "a.npz", image=images(1), label=[7])
    samples = read(tmp_path)
    assert [feed["image"][0, 0] for feed in samples.feeds] == [0, 100, 103]
    assert samples.labels["label"].tolist() == [7, 8, 9]
    assert samples.source == str(tmp_path)


def test_feeds_are_taken_as_they_are() -> None:
    feeds = [{"image": images(2)}, {"image": images(5)}]
    assert [feed["image"].shape for feed in read(feeds).feeds] == [(2, 3), (5, 3)]


def test_strings_are_samples_too() -> None:
    signature = InputSignature("text", "object", ("n",))
    as_objects = read({"text": np.array(["a", "b"], dtype=object)}, signature)
    assert as_objects.digest != read({"text": np.array(["a", "c"], dtype=object)}, signature).digest
    assert as_objects.digest == read({"text": np.array(["a", "b"])}, signature).digest


def test_the_digest_is_of_the_content_wherever_it_comes_from(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", image=images(2))
    np.save(tmp_path / "d.npy", np.asfortranarray(images(2)))
    sources: list[DataSource] = [
        tmp_path / "d.npz",
        tmp_path / "d.npy",
        {"image": images(2)},
        [{"image": images(1)}, {"image": images(2)[1:]}],
    ]
    assert len({read(source).digest for source in sources}) == 1


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_samples_that_stay_in_files_are_those_that_are_held(tmp_path: Path, write: Callable[..., None]) -> None:
    for index, n_samples in enumerate((3, 2)):
        mask = np.arange(2 * n_samples).reshape(n_samples, 2) + index
        write(tmp_path / f"{index}.npz", image=images(n_samples) + index, mask=mask, label=np.arange(n_samples))
    held, lazy = (read(tmp_path, IMAGE, MASK, held_bytes=held_bytes) for held_bytes in (HELD_BYTES, 0))
    assert (lazy.digest, lazy.feed_digests, lazy.source) == (held.digest, held.feed_digests, held.source)
    for parts in (zip(split(lazy), split(held), strict=True), [(lazy, held)]):
        for ours, expected in parts:
            assert ours.digest == expected.digest
            assert ours.labels["label"].tolist() == expected.labels["label"].tolist()
            for feed, expected_feed in zip(ours.feeds, expected.feeds, strict=True):
                assert list(feed) == list(expected_feed)
                for name, array in feed.items():
                    np.testing.assert_array_equal(array, expected_feed[name], strict=True)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_samples_in_files_are_held_one_at_a_time(tmp_path: Path, write: Callable[..., None]) -> None:
    signature = InputSignature("x", "float32", (1, 100_000))
    write(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=(40, 100_000)).astype(np.float32))
    tracemalloc.start()
    try:
        samples = read(tmp_path, signature, held_bytes=0)
        for part in split(samples):
            assert all(feed["x"].shape == (1, 100_000) for feed in part.feeds)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * 4 * 100_000


def test_the_data_are_read_once_for_checks_and_digests(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", image=images(4))
    samples = read(tmp_path, held_bytes=0)
    (tmp_path / "d.npz").unlink()
    calibration, evaluation = split(samples)
    assert overlap(calibration, evaluation) == 0
    assert overlap(samples, evaluation) == 2


def test_the_digest_sees_names_values_shapes_dtypes_and_labels() -> None:
    array = images(2)
    digests = {
        read({"image": array}).digest,
        read({"image": array + 1}).digest,
        read({"image": array[::-1]}).digest,
        read({"image": array, "label": np.array([1, 2])}).digest,
        read({"other": array}, InputSignature("other", "float32", (1, 3))).digest,
        read({"image": array.reshape(1, 6)}, InputSignature("image", "float32", (1, 6))).digest,
        read({"image": array.view(np.int32)}, InputSignature("image", "int32", (1, 3))).digest,
    }
    assert len(digests) == 7


def test_samples_of_a_folder_are_named_after_their_file_and_counted_in_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", image=images(2))
    where = f"calibration data {tmp_path}"
    assert list(read(tmp_path).names) == [f"{where}/{name}.npz, sample {i}" for name in ("a", "b") for i in (0, 1)]


def test_names_are_no_part_of_the_digest(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(3))
    assert read(tmp_path).digest == read({"image": images(3)}).digest
