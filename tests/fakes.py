"""Stand-ins for the clock and for sessions of onnxruntime."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed

__all__ = ["FakeClock", "FakeSession"]

Outputs = Sequence[npt.NDArray[np.generic]]


@dataclass
class FakeClock:
    """Stands still until something takes time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeSession:
    """Answers with ``compute`` and takes ``seconds`` of a fake clock; ``log`` may be shared and tells who ran when."""

    compute: Callable[[Feed], Outputs] = lambda feed: list(feed.values())
    name: str = ""
    clock: FakeClock = field(default_factory=FakeClock)
    seconds: float = 0.0
    log: list[tuple[str, Feed]] = field(default_factory=list)

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        """Outputs by position."""
        assert output_names is None
        self.log.append((self.name, input_feed))
        self.clock.now += self.seconds
        return list(self.compute(input_feed))
