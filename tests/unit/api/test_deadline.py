import math
import time

import pytest

from autoquant.api.deadline import N_FINALISTS, WRITING_S, Deadline, delivery_seconds


def a_deadline(seconds: float | None, elapsed: float = 0.0) -> Deadline:
    return Deadline(seconds, _start=time.perf_counter() - elapsed)


def test_time_passes_and_the_rest_of_the_budget_shrinks() -> None:
    deadline = a_deadline(100, elapsed=30)
    assert 30 <= deadline.elapsed < 40
    assert 60 < deadline.left <= 70
    assert a_deadline(100, elapsed=130).left <= -30


def test_without_a_time_budget_there_is_always_time() -> None:
    assert a_deadline(None, elapsed=1e6).left == math.inf


def test_phases_are_counted_together_even_if_they_fail() -> None:
    deadline = a_deadline(None)
    with deadline.phase("study"):
        pass
    first = deadline.phases["study"]
    with pytest.raises(KeyError), deadline.phase("study"):
        raise KeyError
    with deadline.phase("write"):
        pass
    assert list(deadline.phases) == ["study", "write"]
    assert deadline.phases["study"] >= first >= 0


@pytest.mark.parametrize("latency_s", [1e-5, 0.01, 10.0])
def test_the_end_takes_a_bounded_share_of_the_budget_and_no_more_than_all_finalists_need(latency_s: float) -> None:
    kept = a_deadline(100).finish_seconds(latency_s, 32, 0.1)
    wanted = N_FINALISTS * delivery_seconds(latency_s, 32, 0.1) + WRITING_S
    assert WRITING_S < kept <= min(25, wanted)
    assert a_deadline(None).finish_seconds(latency_s, 32, 0.1) == wanted


def test_a_finalist_takes_longer_with_more_samples_latency_or_opening_time() -> None:
    base = delivery_seconds(0.01, 32, 0.1)
    assert delivery_seconds(0.02, 32, 0.1) > base
    assert delivery_seconds(0.01, 64, 0.1) > base
    assert delivery_seconds(0.01, 32, 0.2) > base
    assert delivery_seconds(0.0, 32, 0.0) > 0
