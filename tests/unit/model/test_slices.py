"""Sizes of what is sliced to ends that are not known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.rewrite import infer_shapes
from autoquant.model.slices import with_slice_sizes
from tests.models import model_of, outputs_of, used_in

CONSTANTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "last": np.array([-1]),
    "both": np.array([1, 2]),
    "zeros": np.array([0, 0]),
    "table": np.zeros((1, 512), np.float32),
}


def sizes(body: str, signature: str) -> tuple[int | None, ...] | None:
    """Of ``s``."""
    model = model_of(signature, f"{body} y = Relu(s)", used_in(body, CONSTANTS))
    return Graph(infer_shapes(model)).sizes(TensorName("s"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Slice(x, zero, n, one)", (2, None, 4)),
        ("s = Slice(x, zero, n, one, one)", (2, None, 4)),
        ("s = Slice(x, n, one, last)", (2, 3, None)),
        ("m = Concat<axis=0>(n, n) s = Slice(x, zeros, m, both)", (2, None, None)),
        ("a = Slice(x, zero, n, one) s = Slice(a, zero, n, last)", (2, None, None)),
        ("a = Slice(x, zero, n, one) s = Relu(a)", (2, None, 4)),
    ],
)
def test_axes_that_are_not_cut_keep_their_sizes(body: str, expected: tuple[int | None, ...]) -> None:
    assert sizes(body, "(float[2,3,4] x, int64[1] n) => (float[?,?,?] y)") == expected


def test_of_a_constant_too() -> None:
    assert sizes("s = Slice(table, zero, n, one)", "(int64[1] n) => (float[?,?] y)") == (1, None)


@pytest.mark.parametrize("body", ["s = Slice(x, zero, n)", "s = Slice(x, zero, n, a)"])
def test_nothing_is_said_where_the_axes_are_not_known(body: str) -> None:
    signature = "(float[2,3] x, int64[1] n, int64[1] a) => (float[?,?] y)"
    model = infer_shapes(model_of(signature, f"{body} y = Relu(s)", used_in(body, CONSTANTS)))
    assert with_slice_sizes(model) is model
    assert Graph(model).sizes(TensorName("s")) == (None, None)


def test_sizes_that_are_not_known_stay_so() -> None:
    assert sizes("s = Slice(x, zero, n, one)", "(float[N,3,M] x, int64[1] n) => (float[?,?,?] y)") == (None, None, None)


@settings(max_examples=20, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    axis=st.integers(0, 3),
    end=st.integers(0, 6),
)
def test_what_is_said_is_what_is_written(shape: list[int], axis: int, end: int) -> None:
    axis %= len(shape)
    listed = ",".join(map(str, shape))
    unknown = ",".join("?" * len(shape))
    model = model_of(
        f"(float[{listed}] x, int64[1] n) => (float[{unknown}] y)",
        "s = Slice(x, zero, n, axes) y = Relu(s)",
        {"zero": np.array([0]), "axes": np.array([axis])},
    )
    said = Graph(infer_shapes(model)).sizes(TensorName("s"))
    given_x = np.zeros(shape, np.float32)
    (written,) = outputs_of(model, {"x": given_x, "n": np.array([end])})
    assert said is not None
    assert said[axis] in (None, written.shape[axis])
    assert said[:axis] + said[axis + 1 :] == written.shape[:axis] + written.shape[axis + 1 :]
