"""Lengths that are left open, and Loops that go through sequences."""

from pathlib import Path

import numpy as np

from autoquant.domain.region import TensorName
from autoquant.graph.preprocess import prepare
from tests.models import floats, model_of, saved
from tests.unit.graph.preprocessed import assert_equals_original


def test_a_batch_is_known_behind_what_is_sliced_and_expanded_to_a_length(path: Path) -> None:
    """As BERT's positions and types of tokens are, whose sum a projection with a bias reads."""
    body = """s = Shape(n) e = Gather<axis=0>(s, one) i = Slice(places, zero, e, one)
              p = Gather(table, i) q = Equal(s, none) c = Where(q, ones, s) k = Expand(kinds, c) t = Gather(types, k)
              w = Gather(words, n) a = Add(w, p) b = Add(a, t) m = MatMul(b, weight) o = Add(m, bias) y = Tanh(o)"""
    constants = {
        "one": np.array([1]),
        "zero": np.array([0]),
        "places": np.arange(16)[None],
        "kinds": np.zeros((1, 1), np.int64),
        "table": floats(16, 8),
        "types": floats(2, 8),
        "words": floats(50, 8),
        "none": np.array([-1, -1]),
        "ones": np.array([1, 1]),
        "weight": floats(8, 6),
        "bias": floats(6),
    }
    model = model_of("(int64[B,N] n) => (float[B,N,6] y)", body, constants)
    feeds = [{"n": np.arange(length)[None] % 50} for length in (5, 7, 11)]
    prepared = prepare(saved(model, path), feeds)
    assert [node.op_type for node in prepared.graph.nodes if node.op_type in ("Gemm", "MatMul", "Where")] == ["Gemm"]
    assert prepared.graph.sizes(TensorName("y")) == (1, None, 6)
    assert_equals_original(prepared, feeds)


def test_what_a_loop_multiplies_step_by_step_is_outside(path: Path) -> None:
    body = """y = Loop(steps, go, h) <body = inner (int64 i, bool c, float[2,5] s) => (bool d, float[2,5] t) {
              d = Identity(c) g = Gather(x, i) p = MatMul(g, w) r = Tanh(s) u = Add(r, p) m = Sigmoid(u)
              t = Mul(u, m) }>"""
    constants = {"steps": np.array(3), "go": np.array(True), "w": floats(4, 5)}
    model = model_of("(float[3,2,4] x, float[2,5] h) => (float[2,5] y)", body, constants)
    feeds = [{"x": floats(3, 2, 4, seed=seed), "h": floats(2, 5, seed=seed)} for seed in range(2)]
    prepared = prepare(saved(model, path), feeds)
    assert "Gemm" in [node.op_type for node in prepared.graph.nodes]
    assert "MatMul" not in prepared.graph.op_types_in_bodies
    assert_equals_original(prepared, feeds)
