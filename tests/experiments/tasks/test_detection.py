import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from experiments.tasks.boxes import Detections, average_precision, overlaps, suppress
from experiments.tasks.detection import characters, characters_map, faces, faces_ap50, faces_map

CORNERS = hnp.arrays(np.float64, (5, 2), elements=st.integers(0, 50).map(float))
SIZES = hnp.arrays(np.float64, (5, 2), elements=st.integers(1, 30).map(float))
SCORES = hnp.arrays(np.float64, 5, elements=st.floats(0.1, 1), unique=True)


def found(*boxes: list[float]) -> Detections:
    """Boxes with falling scores."""
    return Detections(np.array(boxes, np.float64).reshape(-1, 4), np.linspace(0.9, 0.5, len(boxes)))


def test_overlaps_in_closed_form() -> None:
    box = np.array([0.0, 0.0, 2.0, 2.0])
    others = np.array([[0.0, 0, 2, 2], [1, 0, 3, 2], [2, 2, 4, 4], [0, 0, 1, 1], [5, 5, 5, 5]])
    np.testing.assert_allclose(overlaps(box, others), [1, 1 / 3, 0, 1 / 4, 0])


@given(corners=CORNERS, sizes=SIZES, scores=SCORES)
def test_what_is_kept_does_not_overlap_and_suppression_is_done_once(
    corners: np.ndarray, sizes: np.ndarray, scores: np.ndarray
) -> None:
    kept = suppress(Detections(np.concatenate([corners, corners + sizes], axis=1), scores), 0.4)
    assert kept.scores[0] == scores.max()
    assert all((overlaps(box, np.delete(kept.boxes, i, 0)) <= 0.4).all() for i, box in enumerate(kept.boxes))
    again = suppress(kept, 0.4)
    np.testing.assert_array_equal(again.boxes, kept.boxes)


def test_the_lower_of_two_overlapping_boxes_goes() -> None:
    kept = suppress(found([0, 0, 10, 10], [1, 0, 11, 10], [20, 0, 30, 10]), 0.5)
    assert kept.boxes[:, 0].tolist() == [0, 20]


A, B, C = [0.0, 0, 10, 10], [20.0, 0, 30, 10], [40.0, 0, 50, 10]


@pytest.mark.parametrize(
    ("true", "detections", "expected"),
    [
        ([A, B], found(A, B), 1.0),
        ([A, B], found(A, B, C), 1.0),  # the fault comes last
        ([A, B], found(C, A, B), 2 / 3),  # precision 0, 1/2, 2/3, made falling
        ([A, B], found(A), 0.5),
        ([A, B], found(A, A), 0.5),  # a second box on one object is a fault
        ([A, B], found(A, C, B), (1 + 2 / 3) / 2),
        ([A], found(C), 0.0),
        ([A], found(), 0.0),
        ([], found(), 1.0),
        ([], found(A), 0.0),
    ],
)
def test_average_precision_in_closed_form(true: list[list[float]], detections: Detections, expected: float) -> None:
    assert average_precision([np.array(true).reshape(-1, 4)], [detections]) == pytest.approx(expected)


def test_a_box_counts_from_the_overlap_on_that_is_asked() -> None:
    true, shifted = [np.array([A])], [found([2, 0, 12, 10])]  # overlap 2/3
    assert average_precision(true, shifted, 0.6) == 1
    assert average_precision(true, shifted, 0.7) == 0


@given(order=st.permutations(range(4)))
def test_average_precision_ignores_the_order_of_pictures(order: list[int]) -> None:
    true = [np.array([A]), np.array([A, B]), np.zeros((0, 4)), np.array([C])]
    detections = [
        Detections(np.array([box]), np.array([score]))
        for box, score in zip([A, B, C, A], [0.9, 0.4, 0.7, 0.6], strict=True)
    ]
    expected = average_precision(true, detections)
    assert 0 < expected < 1
    assert average_precision([true[i] for i in order], [detections[i] for i in order]) == pytest.approx(expected)


def centerface(row: int, column: int, score: float, log_size: float = 1.0) -> dict[str, np.ndarray]:
    heat = np.zeros((1, 1, 80, 80), np.float32)
    heat[0, 0, row, column] = score
    return {"537": heat, "538": np.full((1, 2, 80, 80), log_size), "539": np.full((1, 2, 80, 80), 0.25)}


def test_a_face_is_where_the_heat_map_says() -> None:
    side = 4 * np.e
    detections = faces(centerface(10, 20, 0.8))
    x, y = 4 * (20 + 0.25 + 0.5), 4 * (10 + 0.25 + 0.5)
    np.testing.assert_allclose(detections.boxes, [[x - side / 2, y - side / 2, x + side / 2, y + side / 2]])
    np.testing.assert_allclose(detections.scores, [0.8], rtol=1e-6)


def test_a_character_is_where_its_cell_says() -> None:
    values = np.zeros((1, 52 * 52 + 26 * 26 + 13 * 13, 6), np.float32)
    values[0, 52 * 52 + 26 * 3 + 5] = [0.5, 0.5, 0, np.log(2), 0.9, 0.5]  # row 3, column 5 of the grid of stride 16
    detections = characters({"output": values})
    np.testing.assert_allclose(detections.boxes, [[80, 40, 96, 72]], rtol=1e-6)
    np.testing.assert_allclose(detections.scores, [0.45], rtol=1e-6)
    labels = {"float:output": [values]}
    assert characters_map([{"output": values}], [], labels) == 1


def test_agreement_with_float_is_1_for_float_and_falls_with_faces_that_are_missed_or_moved() -> None:
    floats = [centerface(10, 20, 0.8), centerface(30, 40, 0.6)]
    labels = {f"float:{name}": [sample[name] for sample in floats] for name in floats[0]}
    assert faces_map(floats, [], labels) == faces_ap50(floats, [], labels) == 1
    assert faces_ap50([floats[0], centerface(30, 40, 0.0)], [], labels) == 0.5
    larger = [floats[0], centerface(30, 40, 0.6, log_size=1.2)]  # overlap 0.67
    assert faces_ap50(larger, [], labels) == 1
    assert 0.5 < faces_map(larger, [], labels) < 1
