"""Where the channels of a tensor are once there are zeros among and behind them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Channels with others, of zeros, among and behind them.

    Attributes:
        places: Of the channels, ascending.
        size: How many there are with the others.
    """

    places: tuple[int, ...]
    size: int

    @property
    def is_filled(self) -> bool:
        """Whether there are others."""
        return len(self.places) < self.size

    @classmethod
    def of(cls, n_channels: int, multiple: int = 1) -> "Layout":
        """Channels with as many behind them as a multiple needs."""
        return cls(tuple(range(n_channels)), math.ceil(n_channels / multiple) * multiple)

    @classmethod
    def joined(cls, parts: Iterable["Layout"]) -> "Layout":
        """One behind the other."""
        places: list[int] = []
        size = 0
        for part in parts:
            places += [size + place for place in part.places]
            size += part.size
        return cls(tuple(places), size)

    def part(self, start: int, stop: int) -> "Layout":
        """Of the channels from ``start`` to before ``stop``, with those that follow them."""
        low, high = self.edge(start), self.edge(stop)
        return Layout(tuple(place - low for place in self.places[start:stop]), high - low)

    def edge(self, channel: int) -> int:
        """Where a part begins that begins with a channel, or ends before it."""
        if not channel:
            return 0
        return self.size if channel == len(self.places) else self.places[channel]
