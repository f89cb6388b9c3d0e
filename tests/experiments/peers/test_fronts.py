import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.peers.fronts import REACH, left_undominated, point_of, within_reach
from experiments.remeasure import Row, mean_saving

POINTS = st.lists(st.tuples(st.floats(-20, 90), st.floats(0.1, 2.0)), max_size=12)


def a_row(name: str, snr_db: float, ratio: float, half_width: float = 0.01) -> Row:
    return Row(
        name=name,
        snr_db=snr_db,
        median_ms=10 * ratio,
        ratio=ratio,
        ratio_low=ratio - half_width,
        ratio_high=ratio + half_width,
        process_ratios=(ratio,),
    )


def test_what_a_careful_measurement_may_not_save_is_out_of_reach() -> None:
    points = {
        "fast": (20.0, 0.5),
        "near": (20.0, 0.58),
        "slow": (20.0, 0.7),
        "better": (40.0, 0.9),
        "noise": (-1.0, 0.2),
    }
    assert within_reach(points) == ["fast", "near", "better"]


def test_slower_than_float_is_out_of_reach_however_accurate() -> None:
    assert within_reach({"slow": (80.0, 1.2), "level": (80.0, 1.05)}) == ["level"]
    assert within_reach({}) == []


@given(POINTS)
def test_what_is_left_out_never_saves(found: list[tuple[float, float]]) -> None:
    points = {str(i): point for i, point in enumerate(found)}
    kept = [points[name] for name in within_reach(points)]
    assert mean_saving(kept) == pytest.approx(mean_saving(found))
    assert set(within_reach(points, 0.0)) <= set(within_reach(points))


def test_a_point_is_left_where_the_intervals_are_apart() -> None:
    ours = [a_row("a", 40.0, 0.60), a_row("b", 20.0, 0.50)]
    theirs = [a_row("level", 30.0, 0.585), a_row("ahead", 30.0, 0.57), a_row("beaten", 15.0, 0.52)]
    assert [row.name for row in left_undominated(theirs, ours)] == ["ahead"]


def test_float_is_one_of_ours() -> None:
    theirs = [a_row("even", 70.0, 0.995), a_row("ahead", 70.0, 0.9), a_row("noise", -3.0, 0.1)]
    assert [row.name for row in left_undominated(theirs, [])] == ["ahead"]


def test_only_the_front_of_what_is_left_is_told() -> None:
    theirs = [a_row("one", 30.0, 0.4), a_row("other", 30.0, 0.5), a_row("equal", 30.0, 0.4), a_row("more", 50.0, 0.6)]
    assert [row.name for row in left_undominated(theirs, [])] == ["one", "equal", "more"]


def test_an_equal_model_dominates() -> None:
    row = a_row("same", math.inf, 0.8)
    assert left_undominated([row], [row]) == []


def test_a_point_is_snr_and_ratio() -> None:
    assert point_of(a_row("a", 40.0, 0.6)) == (40.0, 0.6)


def test_the_reach_is_wider_than_the_noise() -> None:
    assert within_reach({"fast": (20.0, 0.5), "edge": (20.0, 0.5 + REACH)}) == ["fast", "edge"]
