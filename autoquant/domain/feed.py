"""Samples as onnxruntime takes them."""

from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import overload

import numpy as np
import numpy.typing as npt

__all__ = [
    "Feed",
    "InputSignature",
    "Labels",
    "LazyFeeds",
    "Samples",
    "Shapes",
    "chain_feeds",
    "joined_labels",
    "shapes_of",
]

Feed = Mapping[str, npt.NDArray[np.generic]]
"""One array per model input: a feed of ``InferenceSession.run``."""
Shapes = frozenset[tuple[str, tuple[int, ...]]]
"""Of the arrays of a feed, with the inputs' names."""
Labels = Mapping[str, npt.NDArray[np.generic]]
"""Arrays by name, samples along axis 0."""


@dataclass(frozen=True, slots=True)
class InputSignature:
    """A model input as the model declares it.

    Attributes:
        name: Its name.
        dtype: numpy's name of the element type, e.g. ``"float32"``.
        shape: Declared dimensions: a number, or a name or None where dynamic; None where not even their number is.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


def shapes_of(feed: Feed) -> Shapes:
    """Of its arrays; feeds of equal shapes take the same time, roughly."""
    return frozenset((name, np.shape(array)) for name, array in feed.items())


@dataclass(frozen=True, slots=True)
class LazyFeeds(Sequence[Feed]):
    """Feeds that are made anew whenever they are asked for.

    Attributes:
        make: The feed of an index.
        indices: Those of the feeds here, in order.
    """

    make: Callable[[int], Feed]
    indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, key: int) -> Feed: ...

    @overload
    def __getitem__(self, key: slice) -> "LazyFeeds": ...

    def __getitem__(self, key: int | slice) -> "Feed | LazyFeeds":
        if isinstance(key, slice):
            return LazyFeeds(self.make, self.indices[key])
        return self.make(self.indices[key])

    def __iter__(self) -> Iterator[Feed]:
        return map(self.make, self.indices)

    def __reduce__(self) -> tuple[type[tuple[Feed, ...]], tuple[tuple[Feed, ...]]]:
        """Another process gets the feeds, not the files: they may be temporary."""
        return tuple, (tuple(self),)


def chain_feeds(parts: Sequence[Sequence[Feed]]) -> LazyFeeds:
    """The feeds of all parts, one part after the other."""
    *starts, n_feeds = accumulate(map(len, parts), initial=0)

    def feed(index: int) -> Feed:
        part = bisect(starts, index) - 1
        return parts[part][index - starts[part]]

    return LazyFeeds(feed, range(n_feeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Checked samples.

    Attributes:
        feeds: One per sample; those that stay in files are read whenever they are asked for, and raise DataError where
            a file has changed since.
        feed_digests: Of the content of each, names included.
        labels: Arrays named ``label*``, samples along axis 0.
        digest: Of the content, names included.
        source: Where they come from, for messages.
    """

    feeds: Sequence[Feed]
    feed_digests: Sequence[str]
    labels: Labels
    digest: str
    source: str

    def __len__(self) -> int:
        return len(self.feeds)


def joined_labels(first: Labels, second: Labels) -> dict[str, npt.NDArray[np.generic]]:
    """Those that both parts have, of one shape but for the number of samples."""
    return {
        name: np.concatenate([array, second[name]])
        for name, array in first.items()
        if name in second and second[name].shape[1:] == array.shape[1:]
    }
