import math
import time
from dataclasses import replace

import pytest

from autoquant.api.deadline import (
    N_COMPARED,
    N_FINALISTS,
    Deadline,
    longest_seconds,
    most_finalists,
    writing_seconds,
)
from autoquant.measurement.costs import FileCosts

COSTS = FileCosts(n_samples=32, opening_s=0.1)


def a_deadline(seconds: float | None, elapsed: float = 0.0) -> Deadline:
    return Deadline(seconds, _start=time.perf_counter() - elapsed)


@pytest.mark.parametrize(
    ("seconds", "elapsed", "part_s"), [(60, 5, 6.0), (60, 50, 5.0), (60, 70, 0.0), (None, 50, math.inf)]
)
def test_a_part_of_the_budget_leaves_as_much_for_what_follows(
    seconds: float | None, elapsed: float, part_s: float
) -> None:
    assert a_deadline(seconds, elapsed).part(0.1) == pytest.approx(part_s, abs=0.1)


@pytest.mark.parametrize(("seconds", "elapsed", "is_in_a_hurry"), [(60, 30, True), (600, 30, False), (None, 30, False)])
def test_preparing_leaves_things_out_once_much_of_the_budget_is_gone(
    seconds: float | None, elapsed: float, *, is_in_a_hurry: bool
) -> None:
    deadline = a_deadline(seconds, elapsed)
    assert deadline.is_late is is_in_a_hurry
    assert deadline.leaves_out("profiles") is is_in_a_hurry
    assert deadline.left_out == ["profiles"] * is_in_a_hurry


def test_what_was_left_out_is_told_once_with_where_the_time_went() -> None:
    deadline = a_deadline(60, 30)
    assert deadline.hurry is None
    deadline.phases |= {"read": 0.5, "calibrate": 14.2, "preprocess": 3.0, "open": 12.1}
    for what in ("profiles", "equalisation"):
        deadline.leaves_out(what)
    assert deadline.hurry == (
        "more than 40% of the budget was gone before the first candidate (calibrate 14.2 s, open 12.1 s, preprocess"
        " 3.0 s), so that these were left out: profiles, equalisation; give more time"
    )


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


@pytest.mark.parametrize("latency_s", [0.0001, 0.01, 1.0])
@pytest.mark.parametrize("size_bytes", [10**5, 10**8])
def test_the_end_takes_what_all_finalists_need_and_at_most_a_share(latency_s: float, size_bytes: int) -> None:
    wanted = a_deadline(None).finish_seconds(N_FINALISTS, latency_s, COSTS, size_bytes)
    kept = a_deadline(100).finish_seconds(N_FINALISTS, latency_s, COSTS, size_bytes)
    assert wanted > writing_seconds(0) + N_FINALISTS * 3 * 0.1
    assert kept == min(wanted, 30 + writing_seconds(0))


def test_more_work_at_the_end_keeps_more_time() -> None:
    base = a_deadline(None).finish_seconds(N_FINALISTS, 0.01, COSTS, 10**6)
    costs = replace(COSTS, n_samples=64), replace(COSTS, opening_s=0.2), replace(COSTS, scoring_s=0.1)
    for more in ((0.02, COSTS, 10**6), (0.01, COSTS, 10**8), *((0.01, each, 10**6) for each in costs)):
        assert a_deadline(None).finish_seconds(N_FINALISTS, *more) > base


def test_few_finalists_need_less_time_and_more_than_can_be_measured_no_more() -> None:
    few, many, most = (a_deadline(None).finish_seconds(n, 0.01, COSTS, 10**6) for n in (2, N_COMPARED, 500))
    assert writing_seconds(0) < few < many == most


def test_reports_of_many_evaluations_take_longer() -> None:
    few, many = (a_deadline(None).finish_seconds(2, 0.01, COSTS, 10**6, n_evaluations=n) for n in (10, 1000))
    assert many - few == pytest.approx(writing_seconds(1000) - writing_seconds(10))
    assert writing_seconds(1000) > writing_seconds(10)


def test_a_second_version_of_each_finalist_is_run_and_not_timed() -> None:
    plain, refined, slower = (
        a_deadline(None).finish_seconds(n, 0.1, COSTS, 10**6, is_refined=is_refined)
        for n, is_refined in ((9, False), (9, True), (19, False))
    )
    assert plain < refined < slower


@pytest.mark.parametrize(
    ("first_s", "left_s", "expected"),
    [
        (0.1, None, 20.0),
        (0.1, 100.0, 20.0),
        (0.1, 60.0, 15.0),
        (0.1, 26.0, 10.0),
        (10.0, None, 200.0),
        (10.0, 100.0, 25.0),
        (20.0, 100.0, 40.0),
    ],
)
def test_a_trial_that_hangs_leaves_time_for_others(first_s: float, left_s: float | None, expected: float) -> None:
    assert a_deadline(left_s).trial_seconds(first_s) == pytest.approx(expected, rel=0.01)
    assert longest_seconds(first_s) == max(20.0, 20 * first_s)


@pytest.mark.parametrize(
    ("errors_db", "is_refined", "expected"),
    [
        ([], False, N_FINALISTS),
        ([0.2, 0.3, 5.0], False, N_FINALISTS),
        ([0.2, 3.0, 5.0], False, N_COMPARED),
        ([0.2, 3.0, 5.0], True, N_FINALISTS),
    ],
)
def test_more_candidates_are_compared_where_samples_leave_snrs_open(
    errors_db: list[float], is_refined: bool, expected: int
) -> None:
    assert most_finalists(errors_db, is_refined=is_refined) == expected


def test_what_is_compared_beyond_what_is_timed_takes_less_time() -> None:
    timed, compared, most = (
        a_deadline(None).finish_seconds(n, 0.01, COSTS, 10**6) for n in (N_FINALISTS, N_COMPARED, 500)
    )
    assert timed < compared < 2 * timed
    assert compared == most
