import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autoquant.metrics.scores import accuracy, agreement, cosine

VECTORS = hnp.arrays(np.float64, 6, elements=st.floats(-1e6, 1e6, allow_subnormal=False))
SCORES = hnp.arrays(np.float32, (3, 5), elements=st.integers(-3, 3).map(float))


@given(a=VECTORS, b=VECTORS, scale=st.floats(1e-3, 1e3))
def test_the_cosine_ignores_order_of_arguments_scale_and_shape(a: np.ndarray, b: np.ndarray, scale: float) -> None:
    value = cosine(a, b)
    assert -1 <= value <= 1
    assert cosine(b, a) == pytest.approx(value, abs=1e-9)
    assert cosine(a, b * scale) == pytest.approx(value, abs=1e-6)
    assert cosine(a.reshape(2, 3), b.reshape(2, 3)) == value


def test_cosines_in_closed_form() -> None:
    x, y = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    assert cosine(x, y) == pytest.approx(np.sqrt(0.5))
    assert cosine(x, -x) == -1
    assert cosine(np.array([1e300, 0.0]), np.array([1e-300, 0.0])) == 1
    assert cosine(np.array([6e4, 6e4], np.float16), np.array([6e4, 6e4], np.float16)) == 1


def test_a_cosine_without_an_angle() -> None:
    zero, one = np.zeros(2), np.ones(2)
    assert cosine(zero, zero) == 1
    assert cosine(zero, one) == cosine(one, zero) == 0
    assert cosine(one, np.ones(3)) == 0
    assert cosine(one, np.array([1.0, np.nan])) == 0
    assert cosine(np.zeros(0), np.zeros(0)) == 1


@given(reference=SCORES, candidate=SCORES)
def test_top_1_is_equality_of_argmax(reference: np.ndarray, candidate: np.ndarray) -> None:
    expected = np.mean(reference.argmax(-1) == candidate.argmax(-1))
    assert agreement(reference, candidate, 1, -1) == pytest.approx(expected)


@given(reference=SCORES, candidate=SCORES)
def test_agreement_grows_with_k_up_to_1(reference: np.ndarray, candidate: np.ndarray) -> None:
    values = [agreement(reference, candidate, k, -1) for k in range(1, 6)]
    assert values == sorted(values)
    assert values[-1] == 1
    assert agreement(reference, reference, 1, -1) == 1


@given(reference=SCORES, candidate=SCORES, order=st.permutations(range(3)))
def test_agreement_ignores_the_order_of_positions_and_where_the_classes_are(
    reference: np.ndarray, candidate: np.ndarray, order: list[int]
) -> None:
    value = agreement(reference, candidate, 2, -1)
    assert agreement(reference[order], candidate[order], 2, -1) == pytest.approx(value)
    assert agreement(reference.T, candidate.T, 2, 0) == value


def test_scores_that_agree_nowhere() -> None:
    scores = np.array([[0.1, 0.9]])
    assert agreement(scores, np.array([[np.nan, 0.9]]), 1, -1) == 0
    assert agreement(scores, np.array([[0.1, 0.9, 0.0]]), 1, -1) == 0


@given(scores=SCORES)
def test_accuracy_is_1_with_the_own_classes_as_labels(scores: np.ndarray) -> None:
    assert accuracy(scores, scores.argmax(-1), -1) == 1
    assert accuracy(scores.T, scores.argmax(-1), 0) == 1
    assert accuracy(scores, scores.argmax(-1) + 1, -1) == 0


def test_accuracy_of_scores_and_of_classes() -> None:
    scores = np.array([[0.2, 0.8], [0.7, 0.3], [0.6, 0.4]])
    assert accuracy(scores, np.array([1, 1, 0]), -1) == pytest.approx(2 / 3)
    assert accuracy(np.array([[3]]), np.array(3), -1) == 1
    assert accuracy(np.array(["cat"]), np.array("cat"), -1) == 1
    assert accuracy(np.array([[np.nan, 1.0]]), np.array(1), -1) == 0
    assert accuracy(np.array([[np.nan, 1.0], [0.0, 1.0]]), np.array([-1, 1]), -1) == 0.5
    assert accuracy(np.array([0.0, np.nan]), np.array(-1), -1) == 0
    assert accuracy(scores, np.array([1, 1]), -1) == 0


def test_no_positions_agree() -> None:
    assert agreement(np.zeros((0, 3)), np.zeros((0, 3)), 1, -1) == 1
    assert agreement(np.zeros((0, 3)), np.zeros((1, 3)), 1, -1) == 0
    assert accuracy(np.zeros((0, 3)), np.zeros(0), -1) == 1
    assert accuracy(np.zeros((0, 3)), np.zeros(1), -1) == 0


@pytest.mark.parametrize("odd", [-np.inf, np.nan])
def test_places_where_float_is_no_number_do_not_count(odd: float) -> None:
    reference = np.array([[odd, 1.0, 2.0], [3.0, 4.0, 1.0]])
    nearly = reference + np.array([[0.0, 0.1, -0.1], [0.0, 0.0, 0.0]])
    assert cosine(reference, reference) == 1
    assert cosine(reference, nearly) == pytest.approx(cosine(np.arange(1, 6), np.arange(1, 6)), abs=0.01)
    assert cosine(reference, np.nan_to_num(reference, nan=0.0, neginf=0.0)) == 0
    assert agreement(reference, reference, 1, 1) == 1
    assert agreement(reference, np.where(np.isnan(reference), 9.0, reference), 1, 1) == 1
    assert agreement(reference, np.roll(reference, 1, axis=1), 1, 1) == 0
