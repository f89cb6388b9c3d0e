"""How long somebody waits for an answer."""

import threading
from collections.abc import Callable

__all__ = ["Patience"]


class Patience:
    """Gives up after some time, unless the answer arrives first; which of the two came first is settled once.

    Args:
        seconds: From now on; None for ever.
        give_up: Called from another thread.
    """

    def __init__(self, seconds: float | None, give_up: Callable[[], object]) -> None:
        self._give_up = give_up
        self._lock = threading.Lock()
        self._is_waiting = True
        self._is_lost = False
        self._timer = None if seconds is None else threading.Timer(max(seconds, 0.0), self.lose)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def lose(self) -> None:
        """Give up, unless nobody waits any more."""
        with self._lock:
            if self._is_waiting:
                self._is_waiting, self._is_lost = False, True
                self._give_up()

    def end(self) -> bool:
        """Wait no more; whether it had not been given up until now."""
        with self._lock:
            self._is_waiting = False
        if self._timer is not None:
            self._timer.cancel()
        return not self._is_lost
