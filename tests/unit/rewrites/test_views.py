"""Shapes that are taken back."""

from collections.abc import Mapping

import numpy as np
import pytest

from autoquant.rewrites.views import drop_views
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array] = {
    "one": np.array([1]),
    "last": np.array([-1]),
    "both": np.array([0, 2]),
    "flat": np.array([24]),
    "same": np.array([2, 1, 12]),
    "other": np.array([2, 3, 4]),
    "nought": np.array([0]),
    "far": np.array([99]),
    "near": np.array([11]),
    "two": np.array([2]),
    "back": np.array([-99]),
}


def check(body: str, expected: list[str], *, sizes: str = "2,1,12", written: str = "float[] y") -> None:
    model = model_of(f"(float[{sizes}] x) => ({written})", f"a = Neg(x) {body}", used_in(body, CONSTANTS))
    found = rewritten(drop_views, model, {"x": floats(*(int(n) if n.isdigit() else 12 for n in sizes.split(",")))})
    assert op_types(found) == ["Neg", *expected]
    assert (found is model) is (op_types(found) == op_types(model))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Squeeze(a, one) u = Unsqueeze(s, one) y = Relu(u)", ["Relu"]),
        ("s = Squeeze(a, one) r = Abs(s) u = Unsqueeze(r, one) y = Relu(u)", ["Squeeze", "Abs", "Unsqueeze", "Relu"]),
        ("s = Reshape(a, flat) t = Reshape(s, other) u = Reshape(t, same) y = Relu(u)", ["Relu"]),
        ("s = Reshape(a, same) y = Relu(s)", ["Relu"]),
        ("s = Flatten<axis=1>(a) u = Unsqueeze(s, one) y = Relu(u)", ["Relu"]),
        ("s = Reshape(a, other) y = Relu(s)", ["Reshape", "Relu"]),
        ("s = Squeeze(a, one) u = Unsqueeze(s, one) r = Add(u, x) t = Abs(s) q = Unsqueeze(t, one) y = Add(r, q)",
         ["Squeeze", "Add", "Abs", "Unsqueeze", "Add"]),
        ("s = Squeeze(a, one) y = Unsqueeze(s, one)", ["Squeeze", "Unsqueeze"]),
        ("s = Slice(a, nought, far, two) y = Relu(s)", ["Relu"]),
        ("s = Slice(a, nought, far, two, one) y = Relu(s)", ["Relu"]),
        ("s = Slice(a, nought, far) y = Relu(s)", ["Relu"]),
        ("s = Squeeze(a, one) t = Slice(s, nought, far, one) u = Unsqueeze(t, one) y = Relu(u)", ["Relu"]),
        ("s = Slice(a, nought, near, two) y = Relu(s)", ["Slice", "Relu"]),
        ("s = Slice(a, last, back, two, last) y = Relu(s)", ["Slice", "Relu"]),
        ("y = Slice(a, nought, far, two)", ["Slice"]),
        ("s = Concat<axis=1>(a) y = Relu(s)", ["Relu"]),
        ("s = Concat<axis=1>(a, a) y = Relu(s)", ["Concat", "Relu"]),
    ],
    ids=[
        "pair", "work between", "chain", "alone", "other operators", "another shape", "read beside", "output",
        "all channels", "in steps of one", "first axis", "between shapes", "not all", "turned", "output of all",
        "joined with nothing", "joined",
    ],
)  # fmt: skip
def test_what_is_seen_as_before_is_read_as_it_was(body: str, expected: list[str]) -> None:
    check(body, expected)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s = Squeeze(a, one) u = Unsqueeze(s, one) y = Relu(u)", ["Relu"]),
        ("s = Unsqueeze(a, both) u = Squeeze(s, both) y = Relu(u)", ["Relu"]),
        ("s = Squeeze(a, one) u = Unsqueeze(s, last) y = Relu(u)", ["Squeeze", "Unsqueeze", "Relu"]),
        ("s = Squeeze(a) u = Unsqueeze(s, one) y = Relu(u)", ["Squeeze", "Unsqueeze", "Relu"]),
        ("s = Slice(a, nought, far, one) y = Relu(s)", ["Relu"]),
        ("s = Slice(a, nought, far, two) y = Relu(s)", ["Slice", "Relu"]),
        ("s = Slice(a, nought, far) y = Relu(s)", ["Slice", "Relu"]),
    ],
    ids=["pair", "the other way round", "other axes", "no axes", "all of one", "unknown", "all of the first"],
)
def test_of_unknown_sizes_axes_tell(body: str, expected: list[str]) -> None:
    check(body, expected, sizes="n,1,m", written="float[a,b,c] y")


def test_axes_of_what_is_written_in_an_unknown_shape_do_not_tell() -> None:
    constants = {"behind": np.array([2]), "zeroth": np.array([0])}
    model = model_of(
        "(float[1,3] x) => (float[] y)", "u = Unsqueeze(x, behind) s = Squeeze(u, zeroth) y = Relu(s)", constants
    )
    del model.graph.value_info[:]
    assert drop_views(model) is model
