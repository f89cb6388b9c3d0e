import math

import numpy as np

from autoquant.calibration.timed import TimedFeeds
from autoquant.domain.feed import Feed

FEEDS: list[Feed] = [{"x": np.array([i])} for i in range(4)]


def test_with_time_for_all_none_is_left_out() -> None:
    timed = TimedFeeds(FEEDS, math.inf)
    assert list(timed) == FEEDS
    assert not timed.is_cut_off


def test_without_time_the_first_one_is_taken_all_the_same() -> None:
    timed = TimedFeeds(FEEDS, 0.0)
    assert list(timed) == FEEDS[:1]
    assert timed.is_cut_off
