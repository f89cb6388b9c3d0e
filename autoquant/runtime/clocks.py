"""What inferences are timed by."""

import time
from collections.abc import Callable

from autoquant.domain.target import CPU, Target

__all__ = ["Clock", "clock_of"]

Clock = Callable[[], float]
"""Gives seconds since some moment."""
_COUNTS_EXACTLY = "clock_gettime(CLOCK_THREAD_CPUTIME_ID)"
"""Other systems count a thread's time by ticks of many milliseconds."""


def clock_of(target: Target) -> Clock:
    """Processor time of the calling thread where that does all the work, wall-clock time elsewhere: decision 0058.

    Other work that takes the core for a while then makes no inference longer.
    """
    is_alone = target.ep == CPU and target.threads == target.streams == 1
    is_exact = time.get_clock_info("thread_time").implementation == _COUNTS_EXACTLY
    return time.thread_time if is_alone and is_exact else time.perf_counter
