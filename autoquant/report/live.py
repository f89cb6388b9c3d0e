"""A line on a terminal that says where a search stands."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autoquant.domain.counted import counted

__all__ = ["LiveLine", "live_line"]

_PER_SECOND = 4


@dataclass(slots=True)
class LiveLine:
    """What was told last; the seconds left go on running, however long a stage has nothing to tell.

    Attributes:
        clock: Seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _phase: str = ""
    _end: float | None = None
    _rest: str = ""

    def tell(self, phase: str, seconds_left: float | None, n_evaluations: int, best: Mapping[int, float]) -> None:
        """Where it stands; ``best`` has the lowest ratio by SNR in dB."""
        ratios = "  ".join(f"{demand} dB: {ratio:.3f}" for demand, ratio in best.items())
        self._phase, self._rest = phase, f"{counted(n_evaluations, 'evaluation')}  {ratios}"
        self._end = None if seconds_left is None else self.clock() + seconds_left

    def __rich__(self) -> Text:
        left = "" if self._end is None else f"  {max(0.0, self._end - self.clock()):4.0f} s left"
        return Text(f"{self._phase}{left}  {self._rest}" if self._phase else "")


@contextmanager
def live_line() -> Iterator[LiveLine]:
    """The line on standard error, gone with the context."""
    line = LiveLine()
    with Live(line, console=Console(stderr=True), refresh_per_second=_PER_SECOND, transient=True):
        yield line
