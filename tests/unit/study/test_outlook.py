import pytest

from autoquant.study.outlook import Outlook, Pace


def test_expectations_count_as_far_as_they_came_true() -> None:
    pace = Pace()
    assert pace.factor == 1
    for _ in range(60):
        pace.count(0.01, 0.002)
    assert pace.factor == pytest.approx(0.2, abs=0.01)
    for _ in range(60):
        pace.count(0.01, 0.01)
    assert pace.factor == pytest.approx(1.0)


def test_a_gain_beyond_what_was_expected_promises_no_more() -> None:
    pace = Pace()
    pace.count(0.001, 0.1)
    assert pace.factor == 1


def test_the_share_is_of_what_is_attainable() -> None:
    assert Outlook(saving=0.3, attainable=0.4, next_gain=0.0, noise=0.0, demands_db=(8.0, 64.0)).share == pytest.approx(
        0.75
    )
    assert Outlook(saving=0.0, attainable=0.0, next_gain=0.0, noise=0.0, demands_db=(8.0, 64.0)).share == 1
