import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.batches import batched, overlap, select, split
from autoquant.domain.feed import InputSignature
from autoquant.errors import DataError
from tests.unit.calibration.reading import images, read


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


def test_scalars_are_no_batch() -> None:
    signature = InputSignature("x", "float32", None)
    with pytest.raises(DataError, match="samples are joined only"):
        batched(read([{"x": np.array(n, np.float32)} for n in range(2)], signature), [signature], 2)
