import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.parts import hold_out
from autoquant.domain.feed import Samples
from autoquant.errors import DataError


def samples(values: list[int]) -> Samples:
    feeds = tuple({"x": np.array([value])} for value in values)
    digests, labels = tuple(map(str, values)), {"label": np.array(values)}
    return Samples(feeds=feeds, feed_digests=digests, names=digests, labels=labels, digest="", source="here")


def values(part: Samples) -> list[int]:
    return [int(feed["x"][0]) for feed in part.feeds]


@given(contents=st.lists(st.integers(0, 30), max_size=60))
def test_every_sample_is_in_one_part_and_equal_ones_are_together(contents: list[int]) -> None:
    contents += [100, 101]
    parts = hold_out(samples(contents))
    assert sorted(value for part in parts for value in values(part)) == sorted(contents)
    sizes = [len(set(values(part))) for part in parts]
    assert sum(sizes) == len(set(contents))
    assert abs(sizes[0] - sizes[1]) <= 1


@given(order=st.permutations(range(12)))
def test_the_division_does_not_depend_on_the_order(order: list[int]) -> None:
    expected, found = hold_out(samples(list(range(12)))), hold_out(samples(order))
    assert [set(values(part)) for part in found] == [set(values(part)) for part in expected]


def test_labels_and_names_stay_with_their_samples_and_the_source_says_which_part() -> None:
    parts = hold_out(samples(list(range(10))))
    for part, name in zip(parts, ("search", "held-out"), strict=True):
        assert part.labels["label"].tolist() == values(part)
        assert list(part.names) == list(map(str, values(part)))
        assert part.source == f"here ({name} part)"
    assert parts[0].digest != parts[1].digest


def test_data_that_repeat_do_not_leave_a_kind_out_of_a_part() -> None:
    for part in hold_out(samples(list(range(64)))):
        assert {value % 4 for value in values(part)} == {0, 1, 2, 3}


def test_too_few_different_samples_are_refused() -> None:
    with pytest.raises(DataError, match="needs at least 2 different samples, not 1"):
        hold_out(samples([1, 1]))
