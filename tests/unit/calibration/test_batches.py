import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.batches import batched, check_samples, overlap, read_samples, select, split
from autoquant.calibration.files import HELD_BYTES, Array
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature, Samples
from autoquant.errors import DataError

IMAGE = InputSignature("image", "float32", ("batch", 3))
MASK = InputSignature("mask", "int64", (1, 2))


def images(n_samples: int) -> Array:
    return np.arange(3 * n_samples, dtype=np.float32).reshape(n_samples, 3)


def read(source: DataSource, *inputs: InputSignature, held_bytes: int = HELD_BYTES) -> Samples:
    return read_samples(source, inputs or (IMAGE,), role="calibration", held_bytes=held_bytes)


def refused(source: DataSource, *inputs: InputSignature, held_bytes: int = HELD_BYTES) -> str:
    with pytest.raises(DataError) as error:
        read(source, *inputs, held_bytes=held_bytes)
    return str(error.value)


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


def test_numbers_for_an_input_of_strings_are_refused() -> None:
    assert refused({"text": np.array([1])}, InputSignature("text", "object", ("n",))) == (
        "calibration data <dict>, sample 0, array 'text': its dtype is int64, but the model wants str_,"
        " use .astype(numpy.str_)"
    )


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


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3, np.float32),
        np.array(1, np.float32),
        np.zeros((2, 4), np.float32),
        np.zeros((2, 3)),
        np.zeros((2, 3), ">f4"),
        np.array([[0, 1, 2], [3, np.nan, 5]], np.float32),
        np.array([[0, 1, -np.inf]], np.float32),
        np.zeros((2, 0, 3), np.float32),
        images(0),
    ],
)
def test_an_array_in_a_file_is_refused_in_the_same_words_wherever_it_is_held(tmp_path: Path, array: Array) -> None:
    np.savez(tmp_path / "d.npz", image=array)
    assert refused(tmp_path, held_bytes=0) == refused(tmp_path)


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


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            {"imgae": images(1)},
            "calibration data <dict>: array 'imgae' is no input of the model, which wants image, mask,"
            " did you mean 'image'?",
        ),
        (
            {"image": images(1), "mask": np.zeros((1, 2), np.int64), "y": images(1)},
            "calibration data <dict>: array 'y' is no input of the model, which wants image, mask, leave it out",
        ),
        (
            {"image": images(1)},
            "calibration data <dict>: there is no array 'mask', add it, the model wants image, mask",
        ),
        (
            [{"image": images(1), "mask": np.zeros((1, 2), np.int64)}, {"image": images(1)}],
            "calibration data <list>, sample 1: there is no array 'mask', add it, the model wants image, mask",
        ),
        (
            {"image": images(3), "mask": np.zeros((2, 2), np.int64)},
            "calibration data <dict>: array 'image' holds 3 samples, but 'mask' holds 2,"
            " give every array the same number along axis 0",
        ),
        (
            {"image": images(2), "mask": np.zeros((2, 2), np.int64), "label": np.zeros(3)},
            "calibration data <dict>: array 'mask' holds 2 samples, but 'label' holds 3,"
            " give every array the same number along axis 0",
        ),
    ],
)
def test_names_and_numbers_that_do_not_fit_are_refused(source: DataSource, expected: str) -> None:
    assert refused(source, IMAGE, MASK) == expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (
            np.zeros(3, np.float32),
            ", array 'image': its shape is (3,), but the model's input is (batch, 3), reshape it to rank 2,"
            " samples along the first dimension",
        ),
        (
            np.zeros((2, 4), np.float32),
            ", sample 0, array 'image': its shape is (1, 4), but the model's input is (batch, 3), reshape it",
        ),
        (
            np.zeros((2, 3)),
            ", sample 0, array 'image': its dtype is float64, but the model wants float32, use .astype(numpy.float32)",
        ),
        (
            np.zeros((2, 3), ">f4"),
            ", sample 0, array 'image': its dtype is >f4, but the model wants float32, use .astype(numpy.float32)",
        ),
        (
            np.array([[0, 1, 2], [3, np.nan, 5]], np.float32),
            ", sample 1, array 'image': it holds NaN, repair the sample or leave it out",
        ),
        (
            np.array([[0, 1, -np.inf]], np.float32),
            ", sample 0, array 'image': it holds an infinity, repair the sample or leave it out",
        ),
    ],
)
def test_an_array_that_does_not_fit_is_refused(array: Array, expected: str) -> None:
    assert refused({"image": array}) == f"calibration data <dict>{expected}"


def test_axes_in_another_order_are_to_be_transposed() -> None:
    image = InputSignature("image", "float32", ("N", 3, 8, 8))
    assert refused({"image": np.zeros((2, 8, 8, 3), np.float32)}, image).endswith("(N, 3, 8, 8), transpose it")
    assert refused({"image": np.zeros((2, 8, 8, 4), np.float32)}, image).endswith("(N, 3, 8, 8), reshape it")


def test_samples_without_any_value_are_refused_and_empty_inputs_beside_others_are_not() -> None:
    message = "calibration data <dict>, sample 0: its arrays hold no value, leave the sample out"
    assert refused({"image": np.zeros((2, 0, 3), np.float32)}) == message
    past = InputSignature("past", "float32", ("N", "P", 3))
    whole = {"image": images(16), "past": np.zeros((16, 0, 3), np.float32)}
    assert len(read(whole, IMAGE, past)) == 16


def test_an_input_with_a_fixed_batch_wants_one_dimension_more() -> None:
    signature = InputSignature("image", "float32", (8, 3))
    assert refused({"image": images(16)}, signature) == (
        "calibration data <dict>, array 'image': the model's input is (8, 3) with a fixed first dimension, so the array"
        " needs one dimension more, reshape it to (n_samples, 8, 3)"
    )
    assert len(read({"image": images(16).reshape(2, 8, 3)}, signature)) == 2


def test_a_number_is_no_sample_of_a_scalar_input() -> None:
    assert refused({"x": np.array(1, np.float32)}, InputSignature("x", "float32", ())) == (
        "calibration data <dict>, array 'x': its shape is (), but the model's input is (), reshape it to rank 1,"
        " samples along the first dimension"
    )


@pytest.mark.parametrize("feed", [{"image": np.zeros((2, 1, 3), np.float32)}, {"image": np.zeros((1, 4), np.float32)}])
def test_a_feed_of_another_shape_is_refused(feed: dict[str, Array]) -> None:
    assert refused([{"image": images(1)}, feed]) == (
        f"calibration data <list>, sample 1, array 'image': its shape is {feed['image'].shape}, but the model's"
        " input is (batch, 3), reshape it"
    )


def test_what_is_no_feed_is_refused() -> None:
    assert refused(images(1)) == (
        "calibration data <ndarray>, sample 0: is of type 'ndarray', give a dict with an array for each input of the"
        " model"
    )


@pytest.mark.parametrize("source", [[], {"image": images(0)}])
def test_no_samples_are_refused(source: DataSource) -> None:
    assert refused(source).endswith(": holds no samples, give at least one")


def test_messages_say_what_the_data_are_for() -> None:
    with pytest.raises(DataError, match=r"^evaluation data <list>: holds no samples, give at least one$"):
        read_samples([], [IMAGE], role="evaluation")


def test_a_folder_whose_files_have_other_labels_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(1), label=[7])
    np.savez(tmp_path / "b.npz", image=images(1))
    assert refused(tmp_path).endswith(": not every file has 'label', add it everywhere or leave it out")


def test_a_folder_whose_labels_have_other_shapes_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(1), label=[7])
    np.savez(tmp_path / "b.npz", image=images(1), label=[[7]])
    assert ": the labels of its files do not fit together, make shapes equal: " in refused(tmp_path)


def test_a_split_takes_even_and_odd_samples_and_their_labels() -> None:
    calibration, evaluation = split(read({"image": images(5), "label": np.arange(5)}))
    assert [feed["image"][0, 0] for feed in calibration.feeds] == [0, 6, 12]
    assert [feed["image"][0, 0] for feed in evaluation.feeds] == [3, 9]
    assert calibration.labels["label"].tolist() == [0, 2, 4]
    assert evaluation.labels["label"].tolist() == [1, 3]
    assert [part.source for part in (calibration, evaluation)] == [
        "<dict> (calibration part)",
        "<dict> (evaluation part)",
    ]


@given(values=st.lists(st.integers(0, 9), min_size=2))
def test_a_split_loses_no_sample_and_its_parts_never_overlap(values: list[int]) -> None:
    samples = read({"x": np.array([values]).T, "label": np.array(values)}, InputSignature("x", "int64", (1, 1)))
    if len(set(values)) < 2:
        with pytest.raises(DataError, match="at least 2 different samples, not 1"):
            split(samples)
        return
    calibration, evaluation = split(samples)
    assert overlap(calibration, evaluation) == 0
    assert len(set(calibration.feed_digests)) - len(set(evaluation.feed_digests)) in (0, 1)
    for part in (calibration, evaluation):
        assert [feed["x"].item() for feed in part.feeds] == part.labels["label"].tolist()
    assert sorted([*calibration.labels["label"], *evaluation.labels["label"]]) == sorted(values)


def test_a_part_has_the_digest_of_its_content() -> None:
    calibration, _ = split(read({"image": images(4)}))
    assert calibration.digest == read({"image": images(4)[::2]}).digest


def test_a_single_sample_cannot_be_split() -> None:
    with pytest.raises(DataError) as error:
        split(read({"image": images(1)}))
    assert str(error.value) == (
        "data <dict>: a split into calibration and evaluation needs at least 2 different samples, not 1, give more or"
        " evaluation data of their own"
    )


def test_a_sample_of_a_part_keeps_the_name_that_it_has_in_the_whole() -> None:
    samples = read({"image": images(9)})
    assert list(samples.names) == [f"calibration data <dict>, sample {index}" for index in range(9)]
    evaluation = split(samples)[1]
    assert list(evaluation.names) == [samples.names[index] for index in (1, 3, 5, 7)]
    assert list(select(evaluation, [3, 0], "search").names) == [samples.names[index] for index in (7, 1)]


def test_samples_of_a_folder_are_named_after_their_file_and_counted_in_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", image=images(2))
    where = f"calibration data {tmp_path}"
    assert list(read(tmp_path).names) == [f"{where}/{name}.npz, sample {i}" for name in ("a", "b") for i in (0, 1)]


def test_names_are_no_part_of_the_digest(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", image=images(3))
    assert read(tmp_path).digest == read({"image": images(3)}).digest


def test_overlap_counts_the_evaluation_samples_that_calibrate_too() -> None:
    calibration = read({"image": images(4)})
    evaluation = read([{"image": images(4)[1:2]}, {"image": images(4)[1:2]}, {"image": images(9)[8:]}])
    assert overlap(calibration, evaluation) == 2
    assert overlap(evaluation, calibration) == 1


def test_batches_join_samples_in_order_and_leave_the_rest() -> None:
    signature = InputSignature("x", "float32", ("n", 2))
    values = np.arange(14, dtype=np.float32).reshape(7, 2)
    found = batched(read({"x": values}, signature), [signature], 3)
    assert [feed["x"].tolist() for feed in found.feeds] == [values[:3].tolist(), values[3:6].tolist()]
    assert len(set(found.feed_digests)) == 2
    assert list(found.names) == [f"batch of 3 from calibration data <dict>, sample {i} on" for i in (0, 3)]


def test_a_batch_needs_samples_and_a_dynamic_dimension() -> None:
    signature = InputSignature("x", "float32", ("n", 2))
    samples = read({"x": np.zeros((2, 2), np.float32)}, signature)
    assert batched(samples, [signature], 1) is samples
    with pytest.raises(DataError, match="2 samples are no batch of 3"):
        batched(samples, [signature], 3)
    with pytest.raises(DataError, match="first dimension of input 'x' is not dynamic"):
        batched(samples, [InputSignature("x", "float32", (1, 2))], 2)


def test_samples_that_are_not_alike_are_no_batch() -> None:
    signature = InputSignature("x", "float32", ("n", "length"))
    feeds = [{"x": np.zeros((1, n), np.float32)} for n in (3, 3, 3, 4)]
    with pytest.raises(DataError, match=r"^batch 2, calibration data <list>, sample 3: .* samples are joined only"):
        batched(read(feeds, signature), [signature], 2)


def test_samples_of_one_model_are_checked_against_the_inputs_of_another_one() -> None:
    samples = read({"image": images(2)})
    check_samples(samples, [InputSignature("image", "float32", ("n", "k"))])
    with pytest.raises(DataError, match=r"calibration data <dict>, sample 0: array 'image' is no input of the model"):
        check_samples(samples, [MASK])
    with pytest.raises(DataError, match=r"sample 0, array 'image': its shape is \(1, 3\)"):
        check_samples(samples, [InputSignature("image", "float32", (1, 4))])


def test_a_type_that_numpy_lacks_is_refused_with_what_can_be_done() -> None:
    image = InputSignature("image", "bfloat16", (1, 3))
    assert refused({"image": np.zeros((2, 3), np.float32)}, image).endswith(
        "the model's input is bfloat16, which numpy cannot hold, put a Cast before it and feed float32"
    )
