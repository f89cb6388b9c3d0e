import math

import pytest

from autoquant.api.run import _trial_seconds


@pytest.mark.parametrize(
    ("first_s", "left_s", "expected"),
    [
        (0.1, math.inf, 20.0),
        (0.1, 100.0, 20.0),
        (0.1, 60.0, 15.0),
        (0.1, 26.0, 10.0),
        (10.0, math.inf, 200.0),
        (10.0, 100.0, 25.0),
        (20.0, 100.0, 40.0),
    ],
)
def test_a_trial_that_hangs_leaves_time_for_others(first_s: float, left_s: float, expected: float) -> None:
    assert _trial_seconds(first_s, left_s) == expected
