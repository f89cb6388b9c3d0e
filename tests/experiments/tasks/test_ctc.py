import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.tasks.ctc import decode, edit_distance
from experiments.tasks.ocr import line_accuracy, text_accuracy

TEXTS = st.lists(st.integers(1, 4), max_size=8)


def scores(path: list[int]) -> np.ndarray:
    return np.eye(6)[path] if path else np.zeros((0, 6))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([], []),
        ([0, 0, 0], []),
        ([1, 1, 1], [1]),
        ([1, 0, 1], [1, 1]),
        ([0, 3, 3, 0, 0, 3, 5, 5], [3, 3, 5]),
    ],
)
def test_repetitions_are_joined_and_blanks_left_out(path: list[int], text: list[int]) -> None:
    assert decode(scores(path)) == text


@given(text=TEXTS, times=st.integers(1, 3))
def test_a_text_between_blanks_is_read_back_however_long_its_characters(text: list[int], times: int) -> None:
    path = [step for character in text for step in [*[character] * times, 0]]
    assert decode(scores(path)) == text


@pytest.mark.parametrize(
    ("a", "b", "distance"), [("kitten", "sitting", 3), ("flaw", "lawn", 2), ("", "abc", 3), ("abc", "abc", 0)]
)
def test_edit_distances_as_published(a: str, b: str, distance: int) -> None:
    assert edit_distance([ord(c) for c in a], [ord(c) for c in b]) == distance


@given(a=TEXTS, b=TEXTS, c=TEXTS)
def test_the_edit_distance_is_a_metric(a: list[int], b: list[int], c: list[int]) -> None:
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, b) == edit_distance(b, a)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


def test_the_accuracy_of_lines_and_of_their_characters() -> None:
    outputs = [{"softmax": scores(path)[np.newaxis]} for path in ([1, 0, 2, 3], [4, 4, 0, 5], [0, 0, 0, 0])]
    labels = {"label": np.array([[1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0]])}
    assert text_accuracy(outputs, [], labels) == [1, 0.5, 1]
    assert line_accuracy(outputs, [], labels) == [True, False, True]
