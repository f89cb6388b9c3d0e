"""Tensors that readers broadcast themselves."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.expands import drop_expands
from tests.models import floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS = {
    "whole": np.array([2, 3, 4]),
    "tall": np.array([5, 2, 3, 4]),
    "by_two": np.array([2, 1, 4]),
    "six": floats(2, 3, 4),
    "last": np.array([-1]),
    "first": np.array([1]),
}
COLUMN = "c = ReduceMax<keepdims=1>(x, last)"
ROW = "r = ReduceMin<keepdims=1>(x, first)"


def a_model(body: str, sizes: str = "2,3,4") -> onnx.ModelProto:
    return model_of(f"(float[{sizes}] x) => (float[] y)", body, used_in(body, CONSTANTS))


def n_expands(model: onnx.ModelProto) -> int:
    """Behind the rewrite, which leaves all else as it is."""
    found = rewritten(drop_expands, model)
    others = [[op for op in op_types(each) if op != "Expand"] for each in (model, found)]
    assert others[0] == others[1]
    return op_types(found).count("Expand")


@pytest.mark.parametrize(
    "body",
    [
        f"{COLUMN} e = Expand(c, whole) y = Div(x, e)",
        f"{COLUMN} e = Expand(c, whole) y = Sub(e, x)",
        f"{COLUMN} e = Expand(c, whole) a = Add(e, x) b = Mul(e, x) y = Sub(a, b)",
        f"{COLUMN} e = Expand(c, whole) g = Greater(x, e) y = Where(g, x, e)",
        f"{COLUMN} e = Expand(c, by_two) y = Mul(e, six)",
        "e = Expand(x, whole) y = Add(e, six)",
        f"{COLUMN} {ROW} e = Expand(c, whole) f = Expand(r, whole) y = Mul(e, f)",
    ],
    ids=["norm", "either place", "two readers", "chosen", "in part", "idle", "two of them"],
)
def test_what_readers_broadcast_is_not_expanded(body: str) -> None:
    assert n_expands(a_model(body)) == 0


@pytest.mark.parametrize(
    "body",
    [
        f"{COLUMN} e = Expand(c, whole) y = Concat<axis=0>(six, e)",
        f"{COLUMN} e = Expand(c, whole) a = Add(e, x) b = Relu(e) y = Sub(a, b)",
        f"{COLUMN} e = Expand(c, whole) y = Mul(e, e)",
        f"{COLUMN} e = Expand(c, whole) f = Expand(c, whole) y = Mul(e, f)",
        f"{COLUMN} e = Expand(c, whole) y = Mul(e, c)",
        "e = Expand(x, tall) y = Mul(e, x)",
        f"{COLUMN} y = Expand(c, whole)",
    ],
    ids=["joined", "read beside", "twice by one", "one of two", "by what is no larger", "more axes", "output"],
)
def test_what_makes_a_shape_stays(body: str) -> None:
    assert n_expands(a_model(body)) == 1


def test_of_unknown_sizes_it_stays() -> None:
    model = a_model(f"{COLUMN} e = Expand(c, whole) y = Div(x, e)", sizes="2,n,4")
    assert drop_expands(model) is model
