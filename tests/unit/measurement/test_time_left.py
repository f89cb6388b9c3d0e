import math

import pytest

from autoquant.measurement.time_left import TimeLeft


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoquant.measurement.time_left.time.perf_counter", lambda: 100.0)


@pytest.mark.parametrize(
    ("deadline", "is_ended", "is_over"), [(101, False, False), (99, False, True), (101, True, True)]
)
def test_it_is_over_at_the_deadline_or_where_nobody_waits(deadline: float, is_ended: bool, is_over: bool) -> None:
    left = TimeLeft(deadline, lambda: is_ended, None)
    assert left.seconds == deadline - 100
    assert left.is_over == is_over


@pytest.mark.parametrize(
    ("file_s", "deadline", "seconds"), [(None, 110, None), (2, math.inf, 6), (20, 110, 30), (20, 90, 20)]
)
def test_an_answer_may_take_what_its_files_may_and_one_file_after_the_deadline(
    file_s: float | None, deadline: float, seconds: float | None
) -> None:
    assert TimeLeft(deadline, lambda: False, file_s).answer_s(3) == seconds
