from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoquant.measurement.costs import LEAST_SESSIONS, STARTING_S, WANTED_SESSIONS, FileCosts, TimingCosts, n_continued

COSTS = FileCosts(n_samples=32, opening_s=0.1, scoring_s=2.0)


def test_a_file_is_run_scored_and_timed_in_several_processes() -> None:
    assert COSTS.judging_seconds(0.01) == pytest.approx(0.1 + 0.32 + 2.0)
    rough, thorough = (COSTS.seconds(0.01, is_rough=is_rough) for is_rough in (True, False))
    assert COSTS.judging_seconds(0.01) < rough < thorough
    assert thorough - rough > 2 * COSTS.opening_s
    assert COSTS.seconds(1e-6, is_rough=True) > COSTS.judging_seconds(1e-6) + 5e-3


def test_rounds_have_a_least_length_on_each_target() -> None:
    one, three = (replace(COSTS, n_targets=n_targets).seconds(1e-6, is_rough=True) for n_targets in (1, 3))
    assert three - COSTS.judging_seconds(1e-6) == pytest.approx(3 * (one - COSTS.judging_seconds(1e-6)))
    costs = TimingCosts(starting_s=STARTING_S, opening_s=0.0, baseline_s=1e-6, file_s=1e-6)
    found = [replace(costs, n_targets=n_targets).n_timed(20.0) for n_targets in (1, 3)]
    assert found[0] == pytest.approx(3 * found[1], abs=4)


@pytest.mark.parametrize(("scoring_s", "expected"), [(0.0, False), (0.4, False), (0.5, True)])
def test_metrics_that_take_most_of_the_time_are_known(scoring_s: float, expected: bool) -> None:
    assert replace(COSTS, scoring_s=scoring_s).is_scoring_most(0.01) == expected


@pytest.mark.parametrize("n_files", [0, 1, 7])
def test_so_many_files_are_timed_as_the_time_that_they_take_allows(n_files: int) -> None:
    costs = FileCosts(n_samples=0, opening_s=0.1)
    each_s, baseline_s = (costs.seconds(latency_s, is_rough=False) - 0.1 for latency_s in (0.02, 0.05))
    left_s = 4 * STARTING_S + (baseline_s + n_files * each_s) * WANTED_SESSIONS / LEAST_SESSIONS
    timing = TimingCosts(starting_s=STARTING_S, opening_s=0.0, baseline_s=0.05, file_s=0.02)
    found = [timing.n_timed(left_s + more_s) for more_s in (0.01, 10.0, -60.0)]
    assert n_files <= found[0] <= found[1]
    assert found[2] == 0
    assert replace(timing, opening_s=0.2).n_timed(left_s) <= found[0]


def test_the_least_processes_take_less_than_those_that_are_wanted() -> None:
    timing = TimingCosts(starting_s=STARTING_S, opening_s=0.1, baseline_s=0.02, file_s=0.02)
    assert timing.n_timed(20.0) < timing.n_least(20.0)
    assert timing.n_least(20.0, running_s=0.3) < timing.n_least(20.0, running_s=0.3, timed_share=0.5)


def test_one_process_times_all_that_it_can_where_the_least_number_has_time_for_a_few_alone() -> None:
    timing = TimingCosts(starting_s=STARTING_S, opening_s=10.0, baseline_s=0.05, file_s=0.05)
    assert [timing.n_least(left_s) for left_s in (-60.0, 1.0, 2.0, 13.0, 190.0)] == [1, 1, 3, 27, 7]


def test_a_process_that_has_compared_outputs_of_long_inferences_has_timed_all_of_them() -> None:
    timing = TimingCosts(starting_s=STARTING_S, opening_s=10.0, baseline_s=0.1, file_s=0.1, is_counted=True)
    assert timing.n_least(2.0) > 1000
    assert timing.n_least(190.0) == 7
    assert replace(timing, is_counted=False).n_least(2.0) == 1
    beside = replace(COSTS, is_beside=True)
    assert beside.seconds(0.1, is_rough=True) == beside.judging_seconds(0.1)
    for costs, latency_s in ((beside, 0.09), (COSTS, 0.1), (replace(beside, n_samples=4), 0.1)):
        assert costs.seconds(latency_s, is_rough=True) > costs.judging_seconds(latency_s)


@given(
    n_files=st.integers(1, 30),
    n_spares=st.integers(0, 30),
    n_done=st.integers(1, 6),
    left_s=st.floats(-5, 100),
    session_s=st.floats(0.1, 30),
)
def test_what_goes_on_fits_into_another_process_and_is_all_but_spares(
    n_files: int, n_spares: int, n_done: int, left_s: float, session_s: float
) -> None:
    n_spares = min(n_spares, n_files)
    found = n_continued(n_files, n_spares, n_done, left_s=left_s, session_s=session_s)
    assert 1 <= found <= n_files
    assert found == n_files or (1 + found) / (1 + n_files) * session_s <= left_s * 1.001
    assert found >= n_files - n_spares


@pytest.mark.parametrize(
    ("n_spares", "n_done", "left_s", "expected"),
    [
        (0, 1, 9.9, 9),
        (4, 1, 40.0, 9),
        (4, 1, 32.0, 7),
        (4, 1, 20.0, 5),
        (4, 1, 6.0, 5),
        (4, 1, 5.9, 9),
        (9, 1, 6.0, 1),
        (9, 4, 6.0, 5),
        (4, 5, 1.0, 9),
    ],
)
def test_spares_are_left_out_so_that_there_are_processes_enough(
    n_spares: int, n_done: int, left_s: float, expected: int
) -> None:
    """Nine files and the baseline, 10 s a process."""
    assert n_continued(9, n_spares, n_done, left_s=left_s, session_s=10.0) == expected


def test_fewer_files_are_timed_where_processes_start_slowly() -> None:
    timing = TimingCosts(starting_s=STARTING_S, opening_s=0.1, baseline_s=0.02, file_s=0.02)
    slow = replace(timing, starting_s=4.0)
    assert slow.n_least(20.0) < timing.n_least(20.0)
    assert slow.n_least(20.0 + 2 * (4.0 - STARTING_S)) == timing.n_least(20.0)
