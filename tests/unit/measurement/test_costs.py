from dataclasses import replace

import pytest

from autoquant.measurement.costs import FileCosts

COSTS = FileCosts(n_samples=32, opening_s=0.1, scoring_s=2.0)


def test_a_file_is_run_scored_and_timed_in_several_processes() -> None:
    assert COSTS.judging_seconds(0.01) == pytest.approx(0.1 + 0.32 + 2.0)
    rough, thorough = (COSTS.seconds(0.01, is_rough=is_rough) for is_rough in (True, False))
    assert COSTS.judging_seconds(0.01) < rough < thorough
    assert thorough - rough > 2 * COSTS.opening_s
    assert COSTS.seconds(1e-6, is_rough=True) > COSTS.judging_seconds(1e-6) + 5e-3


@pytest.mark.parametrize(("scoring_s", "expected"), [(0.0, False), (0.4, False), (0.5, True)])
def test_metrics_that_take_most_of_the_time_are_known(scoring_s: float, expected: bool) -> None:
    assert replace(COSTS, scoring_s=scoring_s).is_scoring_most(0.01) == expected
