import time
from types import SimpleNamespace

import pytest

from autoquant.domain.target import Target
from autoquant.runtime.clocks import clock_of

EXACT, TICKS = "clock_gettime(CLOCK_THREAD_CPUTIME_ID)", "GetThreadTimes()"


@pytest.mark.parametrize(
    ("target", "implementation", "expected"),
    [
        (Target(threads=1), EXACT, time.thread_time),
        (Target(threads=1, batch=8), EXACT, time.thread_time),
        (Target(threads=2), EXACT, time.perf_counter),
        (Target(threads=1, streams=2), EXACT, time.perf_counter),
        (Target("openvino", threads=1), EXACT, time.perf_counter),
        (Target(threads=1), TICKS, time.perf_counter),
    ],
    ids=["one thread", "a batch", "threads", "streams", "another provider", "ticks"],
)
def test_one_thread_is_timed_by_what_it_works(
    target: Target, implementation: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "get_clock_info", lambda _: SimpleNamespace(implementation=implementation))
    assert clock_of(target) is expected


def test_what_takes_the_core_meanwhile_does_not_count() -> None:
    clock = clock_of(Target(threads=1))
    if clock is time.perf_counter:
        pytest.skip("this system counts the time of threads by ticks")
    start = clock()
    time.sleep(0.2)
    assert clock() - start < 0.1
