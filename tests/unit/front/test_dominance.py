import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.front.dominance import layers, non_dominated

Floats = npt.NDArray[np.float64]
points = st.tuples(st.integers(0, 14), st.integers(1, 3)).flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.integers(-4, 4).map(float) | st.floats(-9, 9))
)


def beats(a: Floats, b: Floats) -> bool:
    return bool((a <= b).all() and (a < b).any())


def naive(given_points: Floats) -> list[bool]:
    return [
        not any(beats(other, p) for other in given_points) and not any((other == p).all() for other in given_points[:i])
        for i, p in enumerate(given_points)
    ]


@given(points)
def test_a_point_stays_exactly_where_no_other_beats_it_and_no_equal_one_comes_before(given_points: Floats) -> None:
    assert non_dominated(given_points).tolist() == naive(given_points)


@given(points, st.randoms(use_true_random=False))
def test_order_and_duplicates_do_not_change_the_front(given_points: Floats, rng: np.random.Generator) -> None:
    order = list(range(len(given_points))) * 2
    rng.shuffle(order)
    shuffled = given_points[order]
    front = {tuple(p) for p in given_points[non_dominated(given_points)]}
    kept = [tuple(p) for p in shuffled[non_dominated(shuffled)]]
    assert set(kept) == front
    assert len(kept) == len(front)


@given(points)
def test_layers_are_fronts_of_what_is_left(given_points: Floats) -> None:
    found = layers(given_points)
    assert found.shape == (len(given_points),)
    for number in range(int(found.max(initial=-1)) + 1):
        left = found >= number
        np.testing.assert_array_equal(non_dominated(given_points[left]), found[left] == number)
        assert (found == number).any()


def test_equal_points_lie_on_different_layers() -> None:
    np.testing.assert_array_equal(layers(np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 3.0]])), [0, 1, 0])


def test_no_points_have_no_front() -> None:
    assert non_dominated(np.zeros((0, 2))).shape == (0,)
    assert layers(np.zeros((0, 2))).shape == (0,)


@given(points, st.integers(0, 16))
def test_fronts_are_found_as_far_as_they_are_wanted(given_points: Floats, least: int) -> None:
    whole, found = layers(given_points), layers(given_points, least)
    n_fronts = next((k for k in range(int(whole.max(initial=-1)) + 2) if (whole < k).sum() >= least), 99)
    np.testing.assert_array_equal(found, np.minimum(whole, n_fronts))
