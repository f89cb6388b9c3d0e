import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from experiments.tasks.sentences import nearest_agreement, ranks, similarity_ranking, spearman

VALUES = hnp.arrays(np.float64, 8, elements=st.integers(-20, 20).map(float), unique=True)


def test_equal_values_share_their_rank() -> None:
    assert ranks(np.array([10.0, 30.0, 20.0, 10.0])).tolist() == [0.5, 3, 2, 0.5]


@given(a=VALUES, b=VALUES)
def test_without_ties_it_is_spearmans_formula(a: np.ndarray, b: np.ndarray) -> None:
    expected = 1 - 6 * np.square(ranks(a) - ranks(b)).sum() / (8 * (64 - 1))
    assert spearman(a, b) == pytest.approx(expected)


@given(a=VALUES)
def test_only_the_order_counts(a: np.ndarray) -> None:
    assert spearman(a, np.exp(a / 10)) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(a, np.zeros(8)) == 0


def test_turned_embeddings_are_as_similar_as_before() -> None:
    rng = np.random.default_rng(0)
    true, (turn, _) = rng.normal(size=(6, 1, 4)), np.linalg.qr(rng.normal(size=(4, 4)))
    labels = {"float:embedding": list(true)}
    outputs = [{"ids": np.zeros((1, 2), np.int64), "embedding": 3 * sample @ turn} for sample in true]
    assert similarity_ranking(outputs, [], labels) == pytest.approx(1)
    assert nearest_agreement(outputs, [], labels).all()
    shuffled = [outputs[i] for i in (1, 2, 3, 4, 5, 0)]
    assert similarity_ranking(shuffled, [], labels) < 0.9
    assert not nearest_agreement(shuffled, [], labels).all()
