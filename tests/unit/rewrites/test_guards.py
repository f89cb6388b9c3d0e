"""Choices between sizes and what stands for none."""

import numpy as np
import onnx
import pytest
from onnx import shape_inference

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.rewrites.guards import drop_guards
from tests.models import floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS = {
    "none": np.array([-1, -1, -1]),
    "mixed": np.array([-1, 0, -1]),
    "ones": np.array([1, 1, 1]),
    "minus": np.array(-1),
    "first": np.array([0]),
    "two": np.array([2]),
    "less": np.array([-1]),
    "order": np.array([0, 1, 2]),
}
PARTS = "s = Shape(x) n = Slice(s, first, two)"
SIGNATURE = "(float[1,N,4] x) => (float[?,?,?] y)"


def a_model(body: str, signature: str = SIGNATURE) -> onnx.ModelProto:
    return model_of(signature, body, used_in(body, CONSTANTS))


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape(x) e = Equal(s, none) w = Where(e, ones, s) y = Expand(x, w)",
        "s = Shape(x) e = Equal(none, s) w = Where(e, ones, s) y = Expand(x, w)",
        "s = Shape(x) e = Equal(s, minus) w = Where(e, ones, s) y = Expand(x, w)",
        f"{PARTS} c = Concat<axis=0>(n, two) e = Equal(c, none) w = Where(e, ones, c) z = Cast<to=1>(w) y = Add(x, x)",
        "s = Shape(x) g = Gather(s, order) e = Equal(g, none) w = Where(e, ones, g) y = Expand(x, w)",
    ],
    ids=["of a shape", "the other way round", "one number", "put together", "gathered"],
)
def test_a_size_is_never_negative(body: str) -> None:
    assert "Where" not in op_types(rewritten(drop_guards, a_model(body), {"x": floats(1, 3, 4)}))


@pytest.mark.parametrize(
    "body",
    [
        "s = Shape(x) e = Equal(s, mixed) w = Where(e, ones, s) y = Expand(x, w)",
        f"{PARTS} c = Concat<axis=0>(n, less) e = Equal(c, none) w = Where(e, ones, c) y = Expand(x, w)",
        "s = Shape(x) d = Sub(s, two) e = Equal(d, none) w = Where(e, ones, s) y = Expand(x, w)",
        "s = Shape(x) e = Less(s, none) w = Where(e, ones, s) y = Expand(x, w)",
        "s = Shape(x) e = Equal(s, none) w = Where(e, ones, first) y = Expand(x, w)",
    ],
    ids=["a size may be 0", "one that stands for none", "a difference", "another comparison", "broadcast"],
)
def test_other_choices_stay(body: str) -> None:
    model = a_model(body)
    assert drop_guards(model) == model


def test_one_that_is_an_output_stays() -> None:
    body = "s = Shape(x) e = Equal(s, none) w = Where(e, ones, s) y = Expand(x, w)"
    model = a_model(body, "(float[1,N,4] x) => (float[?,?,?] y, int64[3] w)")
    assert drop_guards(model) == model


def test_sizes_are_inferred_behind_it() -> None:
    body = "s = Shape(x) e = Equal(s, none) w = Where(e, ones, s) z = Expand(x, w) y = Relu(z)"
    model = a_model(body)
    assert Graph(model).sizes(TensorName("z")) == (None, None, 4)
    found = drop_guards(model)
    del found.graph.value_info[:]
    assert Graph(shape_inference.infer_shapes(found, data_prop=True)).sizes(TensorName("z")) == (1, None, 4)
