import pickle
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.domain.feed import Feed, LazyFeeds, chain_feeds, sample_name


def feed(index: int) -> Feed:
    return {"x": np.array(index)}


def lazy(indices: Iterable[int], make: Callable[[int], Feed] = feed) -> LazyFeeds:
    return LazyFeeds([partial(make, index) for index in indices])


def values(feeds: object) -> list[int]:
    assert isinstance(feeds, LazyFeeds | list)
    return [int(each["x"]) for each in feeds]


@given(indices=st.lists(st.integers(0, 9)), start=st.integers(-12, 12), stop=st.integers(-12, 12))
def test_lazy_feeds_are_indexed_sliced_and_iterated_as_a_list(indices: list[int], start: int, stop: int) -> None:
    feeds = lazy(indices)
    assert len(feeds) == len(indices)
    assert values(feeds) == indices
    assert values([feeds[k] for k in range(-len(indices), len(indices))]) == indices * 2
    assert values(feeds[start:stop]) == indices[start:stop]


def test_lazy_feeds_are_made_when_they_are_asked_for() -> None:
    made: list[int] = []

    def recorded(index: int) -> Feed:
        made.append(index)
        return feed(index)

    feeds = lazy(range(3), recorded)[1:]
    assert made == []
    assert values([feeds[0], feeds[0]]) == [1, 1]
    assert made == [1, 1]


def test_an_index_beyond_the_last_feed_is_refused() -> None:
    with pytest.raises(IndexError):
        lazy(range(3))[3]


def test_an_error_in_making_a_feed_does_not_end_the_iteration_quietly() -> None:
    def broken(index: int) -> Feed:
        raise IndexError(index)

    with pytest.raises(IndexError):
        list(lazy(range(3), broken))


@given(sizes=st.lists(st.integers(0, 3), max_size=5))
def test_chained_feeds_are_those_of_the_parts_in_order(sizes: list[int]) -> None:
    numbers = iter(range(sum(sizes)))
    parts = [[next(numbers) for _ in range(size)] for size in sizes]
    for whole in (chain_feeds([lazy(part) for part in parts]), chain_feeds([[*map(feed, part)] for part in parts])):
        assert values(whole) == list(range(sum(sizes)))


def test_another_process_gets_feeds_and_what_makes_them() -> None:
    sent = LazyFeeds([partial(feed, 2), feed(0)])
    assert values(pickle.loads(pickle.dumps(sent))) == [2, 0]


def test_a_sample_without_a_name_is_called_by_its_place() -> None:
    assert sample_name(["a.npz, sample 7", "b.npz, sample 0"], 1) == "b.npz, sample 0"
    assert sample_name((), 1) == "sample 1"
