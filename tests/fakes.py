"""Stand-ins for the clock and for sessions of onnxruntime."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import pytest

from autoquant.domain.feed import Feed

__all__ = ["FakeClock", "FakeSession", "watch_threads"]

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


def watch_threads(monkeypatch: pytest.MonkeyPatch) -> list[list[bool]]:
    """For each session that is opened from now on, whether its runs are in the main thread, one by one."""
    opened: list[list[bool]] = []

    class Watched(ort.InferenceSession):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.is_main: list[bool] = []
            opened.append(self.is_main)

        def run(self, *arguments: Any) -> list[npt.NDArray[np.generic]]:
            self.is_main.append(threading.current_thread() is threading.main_thread())
            found: list[npt.NDArray[np.generic]] = super().run(*arguments)
            return found

    monkeypatch.setattr(ort, "InferenceSession", Watched)
    return opened
