from pathlib import Path

import numpy as np
import pytest

from autoquant.calibration.batches import check_samples, read_samples
from autoquant.calibration.files import Array
from autoquant.calibration.sources import DataSource
from autoquant.domain.feed import InputSignature
from autoquant.errors import DataError
from tests.unit.calibration.reading import IMAGE, MASK, images, read, refused


def test_numbers_for_an_input_of_strings_are_refused() -> None:
    assert refused({"text": np.array([1])}, InputSignature("text", "object", ("n",))) == (
        "calibration data <dict>, sample 0, array 'text': its dtype is int64, but the model wants str_,"
        " use .astype(numpy.str_)"
    )


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
            " give every array the same number along axis 0; what is one sample as a whole wants an axis in front",
        ),
        (
            {"image": images(2), "mask": np.zeros((2, 2), np.int64), "label": np.zeros(3)},
            "calibration data <dict>: array 'mask' holds 2 samples, but 'label' holds 3,"
            " give every array the same number along axis 0; what is one sample as a whole wants an axis in front",
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
    assert refused([[1.0]]) == (  # type: ignore[list-item]
        "calibration data <list>, sample 0: is of type 'list', give a dict with an array for each input of the model"
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
