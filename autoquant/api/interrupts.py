"""Ctrl-C while a search runs."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["Interrupts", "interruptible"]

_PATIENCE = 2


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
    KeyboardInterrupt where it happens.
    """
    interrupts = Interrupts()

    def note(number: int, frame: object) -> None:  # noqa: ARG001 - what signal wants
        interrupts.press()

    is_replaceable = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_replaceable:
        yield interrupts
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
