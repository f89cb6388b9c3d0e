"""Inferences that run at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autoquant.domain.feed import Feed
from autoquant.runtime.session import Session

__all__ = ["Streams", "in_streams"]


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
        others = [self._pool.submit(self.session.run, output_names, input_feed) for _ in range(self.n_streams - 1)]
        found = self.session.run(output_names, input_feed)
        for other in others:
            other.result()
        return found


def in_streams(session: Session, n_streams: int) -> Session:
    """The session itself for one stream."""
    return session if n_streams == 1 else Streams(session, n_streams)
