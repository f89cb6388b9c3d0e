"""Constants that outputs or bodies read beside operators."""

import numpy as np

from autoquant.rewrites.owned import own_constants
from tests.models import floats, model_of
from tests.rewriting import rewritten

WEIGHT = {"w": floats(4, 4)}
SHAPE, TRUE = np.array([1, 4]), np.array(True)
BODIES = (
    "t = If(c) <then_branch = a () => (float[1,4] u) { u = MatMul(x, w) }, else_branch = b () => (float[1,4] v)"
    " { v = Neg(x) }> y = Add(s, t)"
)


def test_a_weight_that_is_an_output_is_read_under_a_name_of_its_own() -> None:
    model = model_of("(float[1,4] x) => (float[1,4] y, float[4,4] w)", "s = MatMul(x, w) y = MatMul(s, w)", WEIGHT)
    found = rewritten(own_constants, model)
    assert [node.input[1] for node in found.graph.node] == ["w_copy", "w_copy"]
    assert [tensor.name for tensor in found.graph.initializer] == ["w", "w_copy"]


def test_so_is_one_that_a_body_reads() -> None:
    model = model_of("(float[1,4] x, bool c) => (float[1,4] y)", f"s = MatMul(x, w) {BODIES}", WEIGHT)
    found = rewritten(own_constants, model, {"x": floats(1, 4), "c": TRUE})
    assert found.graph.node[0].input[1] == "w_copy"


def test_what_nothing_else_reads_or_no_operator_quantizes_stays() -> None:
    alone = model_of("(float[1,4] x) => (float[1,4] y)", "y = MatMul(x, w)", WEIGHT)
    moved = model_of("(float[1,4] x) => (float[1,4] y, int64[2] k)", "y = Reshape(x, k)", {"k": SHAPE})
    float_ = model_of("(float[4,4] x) => (float[4,4] y, float[4,4] w)", "y = Mod<fmod=1>(x, w)", WEIGHT)
    for model in (alone, moved, float_):
        assert own_constants(model) is model
