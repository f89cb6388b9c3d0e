import threading

import numpy as np
import numpy.typing as npt
import pytest

from autoquant.domain.feed import Feed
from autoquant.runtime.streams import in_streams
from tests.fakes import FakeSession

FEED: Feed = {"x": np.arange(3)}


def test_all_streams_run_at_once_and_one_answers() -> None:
    meeting = threading.Barrier(3, timeout=60)

    def meet(feed: Feed) -> list[npt.NDArray[np.generic]]:
        meeting.wait()
        return list(feed.values())

    found = in_streams(FakeSession(meet), 3).run(None, FEED)
    assert found[0] is FEED["x"]


def test_one_stream_is_the_session_itself() -> None:
    session = FakeSession()
    assert in_streams(session, 1) is session


def test_an_error_in_another_stream_is_not_lost() -> None:
    def fail(feed: Feed) -> list[npt.NDArray[np.generic]]:
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("in a stream")
        return list(feed.values())

    with pytest.raises(ValueError, match="in a stream"):
        in_streams(FakeSession(fail), 2).run(None, FEED)
