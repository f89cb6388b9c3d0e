"""Inferences that run at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.runtime.binding import DeviceSession, HostInference, Inference
from autoquant.runtime.session import Session

__all__ = ["Streams", "in_streams", "ready"]


@dataclass(slots=True)
class Streams:
    """A session that answers when all of its streams have run the feed.

    Attributes:
        session: What they share; onnxruntime's sessions may run in several threads.
        n_streams: Threads, this one among them.
    """

    session: Session
    n_streams: int
    _pool: ThreadPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=self.n_streams - 1)

    def run(self, output_names: Sequence[str] | None, input_feed: Feed) -> list[npt.NDArray[np.generic]]:
        """Outputs of one of them."""
        assert output_names is None
        inference = self.ready(input_feed)
        inference.run()
        return inference.outputs

    def ready(self, feed: Feed) -> Inference:
        """The feed in each of them."""
        return _Together([ready(self.session, feed) for _ in range(self.n_streams)], self._pool)


@dataclass(frozen=True, slots=True)
class _Together:
    """The first one here, the others in threads of their own."""

    inferences: Sequence[Inference]
    pool: ThreadPoolExecutor

    def run(self) -> None:
        """Until the last of them has ended."""
        others = [self.pool.submit(other.run) for other in self.inferences[1:]]
        self.inferences[0].run()
        for other in others:
            other.result()

    @property
    def outputs(self) -> list[npt.NDArray[np.generic]]:
        """Of the first."""
        return self.inferences[0].outputs


def in_streams(session: Session, n_streams: int) -> Session:
    """The session itself for one stream."""
    return session if n_streams == 1 else Streams(session, n_streams)


def ready(session: Session, feed: Feed) -> Inference:
    """An inference to be timed: copies between the memories of CPU and device are not part of it."""
    return session.ready(feed) if isinstance(session, DeviceSession | Streams) else HostInference(session, feed)
