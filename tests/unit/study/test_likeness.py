import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoquant.study.likeness import Likeness, alike_neighbours, alike_patterns

PATTERNS = st.lists(st.integers(0, 3), max_size=8).map(lambda numbers: np.array(numbers, dtype=np.int64))
SHARES = st.floats(0.0, 0.95)


def test_regions_of_one_pattern_are_alike_and_neighbours_are_the_more_the_nearer() -> None:
    assert alike_patterns(np.array([4, 0, 4])).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    found = alike_neighbours(4)
    assert np.diag(found).tolist() == [1.0] * 4
    assert found[0, 1] == found[3, 2] > found[0, 2] > found[0, 3] > 0


@given(PATTERNS, SHARES)
def test_a_share_of_the_variance_is_correlated_and_the_variance_stays(patterns: np.ndarray, share: float) -> None:
    correlation = (alike_patterns(patterns) + alike_neighbours(len(patterns))) / 2
    root = Likeness(correlation).root(share)
    expected = share * correlation + (1 - share) * np.eye(len(patterns))
    np.testing.assert_allclose(root @ root.T, expected, atol=1e-9)
    np.testing.assert_allclose(root, root.T, atol=1e-9)


@given(PATTERNS, SHARES, SHARES)
def test_one_share_is_undone_by_another(patterns: np.ndarray, before: float, share: float) -> None:
    likeness = Likeness(alike_patterns(patterns))
    np.testing.assert_allclose(likeness.root(before) @ likeness.root(share, before), likeness.root(share), atol=1e-9)
