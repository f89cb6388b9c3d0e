"""Numbers beside tensors whose last axis has a single place."""

import numpy as np
import pytest

from autoquant.model.graph import Graph
from autoquant.rewrites.scalars import has_numbers_beside_unknown, widen_scalars
from tests.models import Array, constants_of, model_of, op_types
from tests.rewriting import rewritten

NUMBERS: dict[str, Array] = {
    "scalar": np.array(1.5, np.float32),
    "one": np.array([1.5], np.float32),
    "two": np.array(2, np.int64),
}


@pytest.mark.parametrize("op_type", ["Add", "Div", "Max", "Min", "Mul", "Pow", "Sub"])
@pytest.mark.parametrize("inputs", ["r, scalar", "one, r"])
def test_a_number_gets_as_many_axes_as_the_other_one(op_type: str, inputs: str) -> None:
    number = inputs.replace("r,", "").replace(", r", "").strip()
    body = f"r = Exp(x) y = {op_type}({inputs})"
    model = model_of("(float[2,3,4,1] x) => (float[2,3,4,1] y)", body, {number: NUMBERS[number]})
    found = rewritten(widen_scalars, model)
    assert op_types(found) == op_types(model)
    assert {name: value.shape for name, value in constants_of(found).items()} == {f"{number}_wide": (1, 1, 1, 1)}


@pytest.mark.parametrize(
    ("sizes", "body"),
    [
        ("2,3,4", "y = Add(x, scalar)"),
        ("2,N", "y = Add(x, scalar)"),
        ("2,3,1", "y = Add(x, x)"),
        ("2,1", "a = Cast<to=7>(x) b = Mul(a, two) y = Cast<to=1>(b)"),
        ("2,1", "y = PRelu(x, one)"),
    ],
)
def test_others_stay(sizes: str, body: str) -> None:
    numbers = {name: value for name, value in NUMBERS.items() if name in body}
    model = model_of(f"(float[{sizes}] x) => (float[{sizes}] y)", body, numbers)
    assert widen_scalars(model) is model


def test_norms_stay_as_onnxruntime_recognises_them() -> None:
    body = "q = Mul(x, x) v = ReduceMean<axes=[-1]>(q) e = Add(v, scalar) s = Sqrt(e) d = Div(x, s) y = Mul(d, g)"
    constants = {"scalar": NUMBERS["scalar"], "g": np.ones(4, np.float32)}
    model = model_of("(float[2,4] x) => (float[2,4] y)", body, constants, opset=17)
    assert widen_scalars(model) is model


def test_what_others_wrote_is_known_by_tensors_without_sizes() -> None:
    model = model_of("(float[2,1] x) => (float[2,1] y)", "a = Exp(x) y = Sub(a, scalar)", {"scalar": NUMBERS["scalar"]})
    assert not has_numbers_beside_unknown(Graph(model))
    del model.graph.value_info[:]
    assert has_numbers_beside_unknown(Graph(model))
