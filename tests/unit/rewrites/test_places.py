"""Places in a row that are taken or written one by one."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.places import gather_rows, take_rows
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: dict[str, Array] = {
    "row": np.array([2, 3, 4]),
    "ends": np.array([-2, -1]),
    "all": np.arange(6),
    "apart": np.array([1, 3]),
    "back": np.array([3, 2]),
    "square": np.array([[1, 2], [2, 3]]),
    "one": np.array([4]),
    "nought": np.array(0),
    "one_axis": np.array([1]),
    "last": np.array([[-1]]),
    "twice": np.array([0, 0]),
    "table": floats(6, 2, 1),
    "rows": np.array([[1], [2]]),
    "first": np.array([[0], [1]]),
    "final": np.array([[4], [5]]),
    "every": np.arange(6)[:, None],
    "two": np.array([[1], [3]]),
    "pairs": np.array([[1, 0], [1, 1]]),
    "new": floats(2, 2, 1, seed=1),
    "points": floats(2, 1, seed=2),
    "whole": floats(6, 2, 1, seed=3),
    "picked": np.array([[4], [-1], [4], [0]]),
    "by_two": np.array([[[4], [-1]], [[4], [0]]]),
    "behind": np.array([-1]),
    "before": np.array([0]),
    "spread_batch": np.array([[[1]]]),
}


def a_model(body: str) -> onnx.ModelProto:
    return model_of("(float[6,2,1] x) => (float[] y)", body, used_in(body, CONSTANTS))


def left_of(body: str) -> list[str]:
    model = a_model(body)
    found = rewritten(take_rows, model)
    assert (found is model) is (op_types(found) == op_types(model))
    return op_types(found)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Gather(x, row)", ["Slice"]),
        ("t = Transpose(x) y = Gather<axis=-1>(t, ends)", ["Transpose", "Slice"]),
        ("y = Gather(x, all)", ["Slice"]),
        ("y = Gather<axis=2>(x, nought)", ["Reshape"]),
        ("y = Gather<axis=2>(x, last)", ["Reshape"]),
        (
            "m = ReduceMax<keepdims=0>(x) r = Reshape(m, one_axis) y = Gather(r, nought)",
            ["ReduceMax", "Reshape", "Reshape"],
        ),
        ("y = ScatterND(x, rows, new)", ["Slice", "Slice", "Concat"]),
        ("y = ScatterND(x, first, new)", ["Slice", "Concat"]),
        ("y = ScatterND(x, final, new)", ["Slice", "Concat"]),
    ],
    ids=["row", "ends", "all", "only place", "of two axes", "a scalar", "rows", "first rows", "final rows"],
)
def test_places_in_a_row_are_taken_together(body: str, expected: list[str]) -> None:
    assert left_of(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "y = Gather(x, apart)",
        "y = Gather(x, back)",
        "y = Gather(x, square)",
        "y = Gather(x, one)",
        "y = Gather<axis=2>(x, twice)",
        "y = ScatterND(x, two, new)",
        "y = ScatterND(x, pairs, points)",
        'y = ScatterND<reduction="add">(x, rows, new)',
        "y = ScatterND(x, every, whole)",
    ],
    ids=["apart", "turned", "windows", "one of some", "twice", "rows apart", "points", "added", "all rows"],
)
def test_others_stay(body: str) -> None:
    assert left_of(body) == op_types(a_model(body))


def test_of_nothing_it_stays() -> None:
    body = "s = Slice(x, one, one) t = Transpose<perm=[2,0,1]>(s) y = Gather(t, nought)"
    assert left_of(body) == ["Slice", "Transpose", "Gather"]


def test_before_slice_has_inputs_all_stays() -> None:
    model = model_of("(float[6,2,1] x) => (float[] y)", "y = Gather(x, row)", {"row": CONSTANTS["row"]}, opset=9)
    assert take_rows(model) is model


def test_what_computes_shapes_stays() -> None:
    assert left_of("i = Cast<to=7>(x) g = Gather(i, row) y = Cast<to=1>(g)") == ["Cast", "Gather", "Cast"]


def test_indices_that_others_read_too_stay() -> None:
    body = f"{AN_INDEX} u = Unsqueeze(r, behind) g = GatherND(x, u) c = Cast<to=1>(u) y = Add(g, c)"
    assert picks(body)[-4:] == ["Unsqueeze", "Gather", "Cast", "Add"]


def picks(body: str) -> list[str]:
    model = a_model(body)
    found = rewritten(gather_rows, model)
    assert (found is model) is (op_types(found) == op_types(model))
    return op_types(found)


AN_INDEX = "m = ReduceMax<keepdims=0>(x) i = Cast<to=7>(m) z = Sub(i, i) r = Reshape(z, one_axis)"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = GatherND(x, picked)", ["Gather"]),
        ("y = GatherND(x, by_two)", ["Gather"]),
        (f"{AN_INDEX} u = Unsqueeze(r, behind) y = GatherND(x, u)", [*op_types(a_model(AN_INDEX)), "Gather"]),
    ],
    ids=["constant", "of two axes", "computed"],
)
def test_rows_that_are_picked_are_gathered(body: str, expected: list[str]) -> None:
    assert picks(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "y = GatherND(x, pairs)",
        "s = Slice(x, before, one_axis) y = GatherND<batch_dims=1>(s, spread_batch)",
        f"{AN_INDEX} u = Unsqueeze(r, before) y = GatherND(x, u)",
        f"{AN_INDEX} y = GatherND(x, r)",
    ],
    ids=["points", "of each batch", "along another axis", "as it is computed"],
)
def test_what_picks_otherwise_stays(body: str) -> None:
    assert picks(body) == op_types(a_model(body))
