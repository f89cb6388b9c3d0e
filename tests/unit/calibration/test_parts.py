import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.calibration.parts import hold_out, split_in_three
from autoquant.domain.feed import Samples
from autoquant.errors import DataError, UsageError


def samples(values: list[int]) -> Samples:
    feeds = tuple({"x": np.array([value])} for value in values)
    digests = tuple(map(str, values))
    return Samples(feeds=feeds, feed_digests=digests, labels={"label": np.array(values)}, digest="", source="here")


def values(part: Samples) -> list[int]:
    return [int(feed["x"][0]) for feed in part.feeds]


@given(contents=st.lists(st.integers(0, 30), max_size=60), seed=st.integers(0, 3))
def test_every_sample_is_in_one_part_and_equal_ones_are_together(contents: list[int], seed: int) -> None:
    contents += [100, 101, 102]
    parts = split_in_three(samples(contents), seed=seed)
    all_parts = (parts.calibration, parts.search, parts.held_out)
    assert sorted(value for part in all_parts for value in values(part)) == sorted(contents)
    assert sum(len(set(values(part))) for part in all_parts) == len(set(contents))
    assert all(len(part) > 0 for part in all_parts)


@given(order=st.permutations(range(12)))
def test_the_division_does_not_depend_on_the_order(order: list[int]) -> None:
    expected, found = split_in_three(samples(list(range(12)))), split_in_three(samples(order))
    assert set(values(found.held_out)) == set(values(expected.held_out))
    assert set(values(found.search)) == set(values(expected.search))


def test_labels_stay_with_their_samples_and_the_source_says_which_part() -> None:
    parts = split_in_three(samples(list(range(10))))
    for part, name in ((parts.calibration, "calibration"), (parts.search, "search"), (parts.held_out, "held-out")):
        assert part.labels["label"].tolist() == values(part)
        assert part.source == f"here ({name} part)"
    assert (len(parts.calibration), len(parts.search), len(parts.held_out)) == (4, 3, 3)
    assert len({part.digest for part in (parts.calibration, parts.search, parts.held_out)}) == 3


def test_data_that_repeat_do_not_leave_a_kind_out_of_a_part() -> None:
    parts = split_in_three(samples(list(range(64))))
    for part in (parts.calibration, parts.search, parts.held_out):
        assert {value % 4 for value in values(part)} == {0, 1, 2, 3}


@pytest.mark.parametrize("shares", [(0.98, 0.01), (0.01, 0.98), (0.01, 0.01)])
def test_every_part_gets_a_sample_however_small_its_share(shares: tuple[float, float]) -> None:
    parts = split_in_three(samples([1, 2, 3]), shares)
    assert [len(part) for part in (parts.calibration, parts.search, parts.held_out)] == [1, 1, 1]


def test_evaluation_data_are_divided_in_two() -> None:
    search, held_out = hold_out(samples(list(range(10))), 0.7)
    assert (len(search), len(held_out)) == (7, 3)
    assert hold_out(samples(list(range(10))), 0.7)[0].digest == search.digest
    assert hold_out(samples(list(range(10))), 0.7, seed=1)[0].digest != search.digest


def test_too_few_different_samples_are_refused() -> None:
    with pytest.raises(DataError, match="needs at least 3 different samples, not 2"):
        split_in_three(samples([1, 1, 2]))
    with pytest.raises(DataError, match="needs at least 2 different samples, not 1"):
        hold_out(samples([1, 1]))


@pytest.mark.parametrize("shares", [(0.0, 0.5), (0.5, 0.5), (-0.1, 0.2), (float("nan"), 0.1)])
def test_shares_that_leave_a_part_empty_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(UsageError, match="above 0 that leave some to hold out"):
        split_in_three(samples([1, 2, 3]), shares)
