"""Masks that hide nothing."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.masks import drop_idle_masks
from tests.models import floats, model_of, op_types, used_in
from tests.rewriting import rewritten

MASK = np.zeros((1, 1, 5), np.float32)
BEFORE_LAST = np.where(np.arange(5) < 4, 0, -np.inf).astype(np.float32)
CONSTANTS = {
    "k": floats(6, 5),
    "zeros": MASK,
    "tall": np.zeros((3, 1, 1, 1), np.float32),
    "finite": np.where(np.arange(5) < 4, 0, -100).astype(np.float32),
    "infinite": BEFORE_LAST,
    "root": np.array(0.5, np.float32),
    "nought": np.array(0, np.float32),
    "row": np.zeros(5, np.float32),
    "one": np.array(1, np.float32),
    "flat": np.array([8, 6]),
    "endless": np.full((6, 5), -np.inf, np.float32),
    "least": np.full(5, np.finfo(np.float32).min),
}
SCORES = "p = MatMul(x, k)"
GUARD = "w = Softmax(s) n = IsNaN(w) y0 = Where(n, nought, w) y = Neg(y0)"


def a_model(body: str) -> onnx.ModelProto:
    return model_of("(float[2,4,6] x) => (float[] y)", body, used_in(body, CONSTANTS))


def left_of(body: str) -> list[str]:
    model = a_model(body)
    found = rewritten(drop_idle_masks, model)
    assert (found is model) is (op_types(found) == op_types(model))
    return op_types(found)


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (f"{SCORES} s = Add(p, zeros)", ["MatMul"]),
        (f"{SCORES} s = Add(zeros, p)", ["MatMul"]),
        (f"{SCORES} q = Mul(p, root) s = Add(q, zeros)", ["MatMul", "Mul"]),
        (f"{SCORES} s = Div(p, root)", ["MatMul", "Div"]),
        (f"{SCORES} s = Add(p, finite)", ["MatMul", "Add"]),
    ],
)
def test_attention_without_a_mask_is_a_softmax(scores: str, expected: list[str]) -> None:
    assert left_of(f"{scores} {GUARD}") == [*expected, "Softmax", "Neg"]


@pytest.mark.parametrize(
    "body",
    [
        f"{SCORES} s = Add(p, infinite) {GUARD}",
        f"{SCORES} m = Neg(p) s = Add(p, m) {GUARD}",
        f"s = Add(x, x) {GUARD}",
        f"{SCORES} s = Exp(p) {GUARD}",
        f"s = Gemm(u, k, row) {GUARD}".replace("s =", "f = Reshape(x, flat) s =").replace("(u,", "(f,"),
        f"{SCORES} s = Div(p, nought) {GUARD}",
        f"{SCORES} s = Div(one, p) {GUARD}",
        f"m = MatMul(x, endless) s = Mul(m, one) {GUARD}",
        f"{SCORES} a = Add(p, least) s = Add(a, least) {GUARD}",
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("nought", "one"),
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("nought", "row"),
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("IsNaN(w)", "IsNaN(s)"),
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("IsNaN(w)", "IsInf(w)"),
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("nought, w)", "w, nought)"),
        f"{SCORES} s = Mul(p, root) {GUARD}".replace("Softmax(s)", "Exp(s)"),
        f"{SCORES} s = Mul(p, root) w = Softmax(s) n = IsNaN(w) y = Where(n, nought, w)",
        f"{SCORES} y = Add(p, zeros)",
        f"{SCORES} s = Add(p, tall) y = Neg(s)",
        f"{SCORES} s = Sub(p, zeros) y = Neg(s)",
        f"{SCORES} s = Add(p, one) y = Neg(s)",
    ],
    ids=[
        "infinite mask", "mask that is computed", "scores from outside", "scores that may overflow",
        "what a Gemm adds", "divided by nothing", "divided by scores", "infinite matrix", "two masks", "ones",
        "zeros of a row", "another question", "infinities", "the other way round", "no Softmax", "output",
        "output of the sum", "more axes", "difference", "sum of others",
    ],
)  # fmt: skip
def test_masks_that_may_hide_something_stay(body: str) -> None:
    assert left_of(body) == op_types(a_model(body))
