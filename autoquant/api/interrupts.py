"""Ctrl-C while a search runs, and SIGTERM, which means the same."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["Interrupts", "interruptible"]

_PATIENCE = 2
_Handler = Callable[[int, FrameType | None], object] | signal.Handlers
_DEFAULTS: Mapping[int, _Handler] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}


@dataclass(slots=True)
class Interrupts:
    """How often Ctrl-C was pressed: once ends the trials, twice the last measurement too, then nothing waits.

    Attributes:
        n_pressed: Since presses are counted.
        is_counting: Whether they are; before there is something to keep, each raises KeyboardInterrupt at once.
    """

    n_pressed: int = 0
    is_counting: bool = False

    def press(self) -> None:
        """Ctrl-C was pressed."""
        self.n_pressed += self.is_counting
        if not self.is_counting or self.n_pressed > _PATIENCE:
            raise KeyboardInterrupt

    def check(self) -> None:
        """Raise KeyboardInterrupt where Ctrl-C was pressed."""
        if self.n_pressed:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Count presses of Ctrl-C from when that is asked for, instead of raising KeyboardInterrupt, up to the third.

    Only where Python's own handler is in place and can be replaced, which is the main thread; elsewhere Ctrl-C raises
    KeyboardInterrupt where it happens. SIGTERM is a press of Ctrl-C, where nothing else was meant by it. In processes
    that are forked inside, as by a pool that reads the user's data, both mean what they did before.
    """
    interrupts, own = Interrupts(), os.getpid()

    def note(number: int, frame: object) -> None:  # noqa: ARG001 - what signal wants
        if os.getpid() == own:
            interrupts.press()
        else:
            signal.signal(number, _DEFAULTS[number])
            signal.raise_signal(number)

    is_main = threading.current_thread() is threading.main_thread()
    replaceable = [number for number, default in _DEFAULTS.items() if is_main and signal.getsignal(number) is default]
    before = {number: signal.signal(number, note) for number in replaceable}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
