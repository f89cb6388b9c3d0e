import gc
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoquant.calibration.batches import batched, read_samples, select, split
from autoquant.calibration.files import HELD_BYTES
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature, LazyFeeds, Samples, chain_feeds
from autoquant.errors import DataError
from autoquant.isolation.process import Worker
from tests.models import floats

INPUTS = [InputSignature("image", "float32", ("batch", 1000)), InputSignature("mask", "int64", (2,))]
N_SAMPLES = 12
ARRAYS: dict[str, Any] = {"image": floats(N_SAMPLES, 1000), "mask": np.arange(2 * N_SAMPLES).reshape(N_SAMPLES, 2)}
SAMPLE_BYTES = 1000 * 4


def read(source: DataSource, held_bytes: int = 0) -> Samples:
    return read_samples(source, INPUTS, role="evaluation", held_bytes=held_bytes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez(tmp_path / "d.npz", **ARRAYS)
    return tmp_path / "d.npz"


def assert_equal(found: object, expected: object) -> None:
    assert isinstance(found, LazyFeeds | tuple)
    assert isinstance(expected, LazyFeeds | tuple)
    for feed, other in zip(found, expected, strict=True):
        assert list(feed) == list(other)
        for name, array in other.items():
            np.testing.assert_array_equal(feed[name], array, strict=True)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_of_samples_in_files_another_process_gets_where_they_are(tmp_path: Path, write: Callable[..., None]) -> None:
    write(tmp_path / "d.npz", **ARRAYS)
    samples, held = read(tmp_path), read(tmp_path, HELD_BYTES)
    worker = Worker(partial(tuple, samples.feeds))
    try:
        assert_equal(tuple(worker.call("__getitem__", k) for k in range(N_SAMPLES)), held.feeds)
    finally:
        worker.close()


@pytest.mark.parametrize(
    "part",
    [
        lambda samples: samples.feeds,
        lambda samples: split(samples)[1].feeds,
        lambda samples: select(samples, [5, 2, 2], "search").feeds[1:],
        lambda samples: chain_feeds([part.feeds for part in split(samples)]),
    ],
)
def test_what_goes_there_is_small_and_gives_equal_samples(path: Path, part: Callable[[Samples], LazyFeeds]) -> None:
    feeds = part(read(path))
    sent = pickle.dumps(feeds)
    assert len(sent) < 1000 + 300 * len(feeds)
    assert_equal(pickle.loads(sent), feeds)


def test_batches_of_samples_in_files_are_joined_there(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", ARRAYS["image"])
    feeds = batched(read_samples(tmp_path, INPUTS[:1], role="evaluation", held_bytes=0), INPUTS[:1], 4).feeds
    sent = pickle.dumps(feeds)
    assert len(sent) < SAMPLE_BYTES
    assert_equal(pickle.loads(sent), feeds)
    np.testing.assert_array_equal(feeds[2]["image"], ARRAYS["image"][8:])


def test_beside_an_array_in_a_file_one_in_memory_goes_there_itself(path: Path) -> None:
    feeds = read(path, held_bytes=1000).feeds
    sent = pickle.dumps(feeds)
    assert len(sent) < SAMPLE_BYTES * 2
    assert_equal(pickle.loads(sent), feeds)


def test_what_has_changed_meanwhile_is_one_sentence_there_too(path: Path) -> None:
    sent = pickle.dumps(read(path).feeds)
    np.savez(path, image=ARRAYS["image"])
    with pytest.raises(DataError, match="the file has changed since it was checked, start again"):
        pickle.loads(sent)[0]


def test_unpacked_samples_are_kept_by_this_process_alone(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", **ARRAYS)
    feeds = read(tmp_path).feeds
    there = pickle.loads(pickle.dumps(feeds))
    assert_equal(there, feeds)
    del feeds
    gc.collect()
    with pytest.raises(DataError, match="cannot be read any more"):
        there[0]


def test_samples_in_memory_go_there_without_the_others() -> None:
    samples = read(ARRAYS)
    sent = pickle.dumps(split(samples)[0].feeds[:3])
    assert 3 * SAMPLE_BYTES < len(sent) < 4 * SAMPLE_BYTES
    assert_equal(pickle.loads(sent), split(samples)[0].feeds[:3])
