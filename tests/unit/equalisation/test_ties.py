import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.equalisation.ties import FIXED, Ties

N = 12


def test_fresh_channels_are_tied_to_nothing() -> None:
    ties = Ties()
    channels = ties.fresh(3)
    assert len(set(ties.numbers()[channels])) == 3
    assert not ties.is_fixed(channels)


def test_a_fixed_channel_fixes_all_that_are_tied_to_it_before_and_after() -> None:
    ties = Ties()
    a, b, c = ties.fresh(2), ties.fresh(2), ties.fresh(2)
    ties.tie(a, b)
    ties.fix(a[:1])
    ties.tie(b, c)
    assert ties.is_fixed(c[:1])
    assert not ties.is_fixed(c)
    assert ties.numbers()[[a[0], b[0], c[0]]].tolist() == [0, 0, 0]


def test_channels_of_unlike_shape_are_broadcast() -> None:
    ties = Ties()
    one, many = ties.fresh(1), ties.fresh(4)
    ties.tie(one.reshape(1, 1), many.reshape(4, 1))
    assert len(set(ties.numbers()[many])) == 1


@given(st.lists(st.tuples(st.integers(0, N), st.integers(0, N)), max_size=15))
def test_sets_are_the_components_of_the_graph_of_ties(pairs: list[tuple[int, int]]) -> None:
    ties = Ties()
    ties.fresh(N)
    reach = np.eye(N + 1, dtype=bool)
    for a, b in pairs:
        ties.tie(np.array([a]), np.array([b]))
        reach[a, b] = reach[b, a] = True
    for _ in range(N):
        reach = reach @ reach
    numbers = ties.numbers()
    np.testing.assert_array_equal(numbers[:, None] == numbers, reach)
    assert numbers[FIXED] == 0
