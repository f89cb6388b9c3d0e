"""How long inferences take by wall-clock, which plans go by."""

import statistics
import time
from collections.abc import Iterator, Sequence

import numpy as np

from autoquant.domain.feed import Feed, Shapes
from autoquant.measurement.latency import run_new_shapes
from autoquant.runtime.session import Session

__all__ = ["of_several_sizes", "seconds_of", "size_of", "typical_seconds"]

_LONG_S, _SHORT_S, _N_RUNS = 0.3, 0.05, 3


def size_of(feed: Feed) -> int:
    """Elements of all inputs."""
    return sum(np.size(array) for array in feed.values())


def of_several_sizes(feeds: Sequence[Feed]) -> list[Feed]:
    """The one in the middle by size, then one that is small and one that is large among them."""
    by_size = sorted(feeds, key=size_of)
    return [by_size[k] for k in dict.fromkeys(len(feeds) * sixths // 6 for sixths in (3, 1, 5))]


def typical_seconds(session: Session, feeds: Sequence[Feed], known: set[Shapes]) -> float:
    """In the mean of the feeds, of the first one alone where it takes long.

    The fastest inference of each counts: other work makes single ones several times as long.

    Args:
        session: Warmed up.
        feeds: At least one.
        known: Shapes that it has run; those of the feeds are added.
    """
    fastest, left_s = list[float](), _LONG_S
    for feed in feeds:
        if left_s < 0:
            break
        run_new_shapes(session, feed, known)
        seconds = list(_several_seconds(session, feed))
        left_s -= sum(seconds)
        fastest.append(min(seconds))
    return statistics.mean(fastest)


def seconds_of(session: Session, feed: Feed) -> float:
    """Of one inference."""
    start = time.perf_counter()
    session.run(None, feed)
    return time.perf_counter() - start


def _several_seconds(session: Session, feed: Feed) -> Iterator[float]:
    """Of a few inferences, of fewer where one is not short."""
    end = time.perf_counter() + _SHORT_S
    for _ in range(_N_RUNS):
        yield seconds_of(session, feed)
        if time.perf_counter() > end:
            return
