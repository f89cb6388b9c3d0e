import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.equalisation.places import along, differs_only_along, fits_in, of_rank, reshaped

CHANNELS = np.arange(1, 7)


def test_channels_lie_along_an_axis() -> None:
    assert along(CHANNELS, 1, 4).shape == (1, 6, 1, 1)
    assert along(CHANNELS, -1, 3).shape == (1, 1, 6)
    assert of_rank(along(CHANNELS, 0, 2), 4).shape == (1, 1, 6, 1)


def test_channels_differ_along_one_axis_or_more() -> None:
    assert differs_only_along(along(CHANNELS, 1, 3), -2)
    assert not differs_only_along(along(CHANNELS, 1, 3), 2)
    assert differs_only_along(np.ones((1, 1), np.intp), 0)


@pytest.mark.parametrize(
    ("shape", "fits"), [((6, 1, 1), True), ((1, 6, 4, 4), True), ((), False), ((4, 4), False), ((1, 1, 6, 4, 4), False)]
)
def test_a_constant_has_a_place_for_every_channel_or_not(shape: tuple[int, ...], fits: bool) -> None:
    assert fits_in(along(CHANNELS, 1, 4), shape) is fits


@pytest.mark.parametrize(
    ("before", "axis", "after", "expected"),
    [
        ((1, 6, 2, 2), 1, (1, 6, 4), (1, 6, 1)),
        ((1, 6, 1, 1), 1, (1, 6), (1, 6)),
        ((1, 6, 2, 2), 1, (1, 24), (1, 24)),
        ((1, 5, 6), 2, (1, 5, 2, 3), (1, 1, 2, 3)),
        ((5, 6), 1, (1, 5, 6), (1, 1, 6)),
        ((1, 5, 2, 3), 1, (5, 6), (5, 1)),
    ],
)
def test_channels_survive_a_change_of_shape(
    before: tuple[int, ...], axis: int, after: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    labels = along(np.arange(1, before[axis] + 1), axis, len(before))
    assert reshaped(labels, before, after).shape == expected


@st.composite
def shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes with as many elements."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def grouped() -> tuple[int, ...]:
        cuts = sorted(draw(st.sets(st.integers(0, len(factors)), max_size=3)) | {0, len(factors)})
        return tuple(math.prod(factors[a:b]) for a, b in pairwise(cuts))

    return grouped(), grouped()


@given(shapes(), st.data())
def test_every_element_keeps_its_channel(both: tuple[tuple[int, ...], tuple[int, ...]], data: st.DataObject) -> None:
    before, after = both
    axis = data.draw(st.integers(0, len(before) - 1))
    labels = along(np.arange(before[axis]), axis, len(before))
    expected = np.broadcast_to(labels, before).reshape(after)
    np.testing.assert_array_equal(np.broadcast_to(reshaped(labels, before, after), after), expected)
