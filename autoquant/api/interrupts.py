"""Ctrl-C while trials run."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["interruptible"]


@contextmanager
def interruptible() -> Iterator[Callable[[], None]]:
    """The first Ctrl-C waits for the next call of what this yields, the second one does not wait.

    Only where Python's own handler is in place and can be replaced, which is the main thread; elsewhere Ctrl-C raises
    KeyboardInterrupt where it happens.

    Yields:
        Raises KeyboardInterrupt where Ctrl-C was pressed before.
    """
    interrupts: list[int] = []

    def note(number: int, frame: object) -> None:  # noqa: ARG001 - what signal wants
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(number)

    def check() -> None:
        if interrupts:
            raise KeyboardInterrupt

    is_replaceable = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_replaceable:
        yield check
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
