"""Samples as onnxruntime takes them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    "sample_name",
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
    """Feeds, some of which are made anew whenever they are asked for.

    Attributes:
        sources: Feeds and what makes them, in order; another process gets them as they are pickled.
    """

    sources: Sequence[Feed | Callable[[], Feed]]

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, key: int) -> Feed: ...

    @overload
    def __getitem__(self, key: slice) -> "LazyFeeds": ...

    def __getitem__(self, key: int | slice) -> "Feed | LazyFeeds":
        return LazyFeeds(self.sources[key]) if isinstance(key, slice) else _made(self.sources[key])

    def __iter__(self) -> Iterator[Feed]:
        return map(_made, self.sources)


def _made(source: Feed | Callable[[], Feed]) -> Feed:
    return source if isinstance(source, Mapping) else source()


def chain_feeds(parts: Sequence[Sequence[Feed]]) -> LazyFeeds:
    """The feeds of all parts, one part after the other; those that are lazy stay so."""
    return LazyFeeds([source for part in parts for source in (part.sources if isinstance(part, LazyFeeds) else part)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Checked samples.

    Attributes:
        feeds: One per sample; those that stay in files are read whenever they are asked for, and raise DataError where
            a file has changed since.
        feed_digests: Of the content of each, names included.
        names: What messages call each: the user's file or callable and the number there, whatever part this is.
        labels: Arrays named ``label*``, samples along axis 0.
        digest: Of the content, names included.
        source: Where they come from, for messages.
    """

    feeds: Sequence[Feed] = field(repr=False)
    feed_digests: Sequence[str] = field(repr=False)
    names: Sequence[str] = field(repr=False)
    labels: Labels = field(repr=False)
    digest: str
    source: str

    def __len__(self) -> int:
        return len(self.feeds)


def sample_name(names: Sequence[str], index: int) -> str:
    """What messages call a sample; its place where there are no names."""
    return names[index] if names else f"sample {index}"


def joined_labels(first: Labels, second: Labels) -> dict[str, npt.NDArray[np.generic]]:
    """Those that both parts have, of one shape but for the number of samples."""
    return {
        name: np.concatenate([array, second[name]])
        for name, array in first.items()
        if name in second and second[name].shape[1:] == array.shape[1:]
    }
