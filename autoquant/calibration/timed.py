"""Samples for which there is time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autoquant.domain.feed import Feed
from autoquant.domain.statistics import Statistics

__all__ = ["CutOffError", "TimedFeeds"]


@dataclass(slots=True)
class TimedFeeds:
    """Feeds while there is time, and the first in any case.

    Attributes:
        feeds: All of them.
        seconds: From the first on; infinite where time is no matter.
        n_taken: So far.
    """

    feeds: Sequence[Feed]
    seconds: float
    n_taken: int = 0

    def __iter__(self) -> Iterator[Feed]:
        end = time.perf_counter() + self.seconds
        for feed in self.feeds:
            if self.n_taken and time.perf_counter() > end:
                return
            self.n_taken += 1
            yield feed

    @property
    def is_cut_off(self) -> bool:
        """Whether some were left out."""
        return self.n_taken < len(self.feeds)


class CutOffError(Exception):
    """Statistics of some of the samples: raised, so that they are not cached as those of all."""

    def __init__(self, statistics: Statistics) -> None:
        super().__init__("there was no time for every sample")
        self.statistics = statistics
