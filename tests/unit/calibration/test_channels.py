from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.calibration.channels import Channels
from autoquant.domain.statistics import ChannelStatistics

Floats = npt.NDArray[np.float32]

magnitudes = st.floats(2.0**-30, 2.0**20, width=32)
images = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 2), st.just(3), st.integers(1, 4), st.integers(1, 4)),
    elements=st.just(0.0) | magnitudes | magnitudes.map(lambda magnitude: -magnitude),
)


def observe(axis: int, *arrays: Floats) -> ChannelStatistics:
    channels = Channels(axis)
    for array in arrays:
        channels.add(array)
    return channels.statistics()


def assert_equal(a: ChannelStatistics, b: ChannelStatistics) -> None:
    for name in ("minimum", "maximum", "mean"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_each_channel_has_the_extremes_and_the_mean_of_its_values(axis: int) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    found = observe(axis, values)
    by_channel = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    assert found.axis == axis
    np.testing.assert_array_equal(found.minimum, by_channel.min(axis=1))
    np.testing.assert_array_equal(found.maximum, by_channel.max(axis=1))
    np.testing.assert_allclose(found.mean, by_channel.astype(np.float64).mean(axis=1), rtol=1e-14)


@given(st.lists(images, min_size=1, max_size=6), st.randoms())
def test_the_order_of_the_samples_does_not_count(arrays: list[Floats], random: Random) -> None:
    shuffled = list(arrays)
    random.shuffle(shuffled)
    assert_equal(observe(1, *shuffled), observe(1, *arrays))


@given(st.lists(images, min_size=1, max_size=6))
def test_samples_of_several_sizes_count_by_their_positions(arrays: list[Floats]) -> None:
    joined = np.concatenate([np.moveaxis(array, 1, 0).reshape(3, -1) for array in arrays], axis=1)
    found = observe(1, *arrays)
    np.testing.assert_array_equal(found.minimum, joined.min(axis=1))
    np.testing.assert_array_equal(found.maximum, joined.max(axis=1))
    largest = np.abs(joined).max(axis=1).astype(np.float64)
    assert np.all(np.abs(found.mean - joined.astype(np.float64).mean(axis=1)) <= 1e-14 * largest)


def test_a_mean_of_values_that_cancel_keeps_its_digits() -> None:
    large, small = np.full((1, 1, 2), 2.0**60, np.float32), np.full((1, 1, 2), 2.0**-10, np.float32)
    assert observe(1, large, small, -large).mean.tolist() == [2.0**-10 / 3]


def test_negative_zero_is_zero() -> None:
    found = observe(-1, np.array([[-0.0, 1.0]], np.float32))
    assert str(found.minimum[0]) == "0.0"


def test_samples_without_values_are_passed_over() -> None:
    assert_equal(
        observe(1, np.ones((1, 2, 3), np.float32), np.ones((1, 2, 0), np.float32)),
        observe(1, np.ones((1, 2, 3), np.float32)),
    )
    assert observe(1, np.ones((1, 2, 0), np.float32)).mean.size == 0
