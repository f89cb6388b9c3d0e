import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.search.yardsticks import hypervolume, improvements, non_beaten

POINTS = st.lists(st.tuples(st.floats(-20, 120), st.floats(0.1, 1.5)), max_size=12)


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], 0.0),
        ([(30.0, 0.5)], 15.0),
        ([(90.0, 0.5)], 30.0),  # the ceiling is 60 dB
        ([(-5.0, 0.5), (40.0, 1.2)], 0.0),  # worse than the reference point
        ([(20.0, 0.4), (40.0, 0.8)], 20 * 0.6 + 20 * 0.2),
        ([(20.0, 0.4), (15.0, 0.6), (40.0, 0.8)], 20 * 0.6 + 20 * 0.2),  # one is dominated
    ],
)
def test_the_area_to_the_reference_point(points: list[tuple[float, float]], expected: float) -> None:
    assert hypervolume(points) == pytest.approx(expected)


@given(POINTS)
def test_it_is_what_counting_cells_gives(points: list[tuple[float, float]]) -> None:
    demands = np.linspace(0, 60, 6001)[:-1] + 0.005
    savings = [
        max((1 - ratio for snr, ratio in points if snr >= demand and ratio < 1), default=0) for demand in demands
    ]
    assert hypervolume(points) == pytest.approx(60 * np.mean(savings), abs=0.02)


@given(POINTS, st.randoms(use_true_random=False))
def test_order_duplicates_and_beaten_points_change_nothing(points: list[tuple[float, float]], rng: object) -> None:
    shuffled = points + points
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert hypervolume(shuffled) == pytest.approx(hypervolume(points))
    assert hypervolume(non_beaten(points)) == pytest.approx(hypervolume(points))


@given(POINTS)
def test_improvements_are_where_a_prefix_has_more(points: list[tuple[float, float]]) -> None:
    prefixes = [hypervolume(points[: i + 1]) for i in range(len(points))]
    found = improvements(points)
    assert all(area == pytest.approx(prefixes[i]) for i, area in found)
    assert (found[-1][1] if found else 0.0) == pytest.approx(prefixes[-1] if prefixes else 0.0)
