"""Attention in the spellings of exporters, and what only resembles it."""

from collections.abc import Mapping

import numpy as np

from tests.graphs import Case, case_of
from tests.models import Array, floats, model_of

B, S, H, D, T = 1, 6, 4, 8, 5
CONSTANTS: Mapping[str, Array | float] = {
    "wq": floats(32, 32, scale=0.4),
    "wk": floats(32, 32, scale=0.4, seed=1),
    "wv": floats(32, 32, scale=0.4, seed=2),
    "packed": floats(32, 96, scale=0.4, seed=3),
    "heads": np.array([-1, S, H, D]),
    "heads_of_keys": np.array([-1, T, H, D]),
    "wide_heads": np.array([-1, T, H, 2 * D]),
    "one_head": np.array([-1, S, 1, 32]),
    "rows": np.array([-1, S, 32]),
    "five": np.array([1, S, 3, H, D]),
    "six": np.array([S, H, D]),
    "scrambled": np.array([1, H, D, S]),
    "as_batch": np.array([1, H, S, D]),
    "flat": np.array([H * S, S]),
    "scores": np.array([1, H, S, S]),
    "matrix": np.array([B * S * H, D]),
    "wh": floats(D, D, scale=0.4, seed=10),
    "by_head": floats(1, H, 1, 1, seed=11),
    "five_axes": np.ones((1, 1, 1, 1, 1), np.float32),
    "negative": -0.3,
    "nothing": 0.0,
    "tiny": 1e-25,
    "one_tenth": 0.1,
    "infinite": -np.inf,
    "least": float(np.finfo(np.float32).min),
    "holes": np.where(np.tri(S, dtype=bool), 0, -np.inf).astype(np.float32),
    "lowest": np.where(np.tri(S, dtype=bool), 0, np.finfo(np.float32).min).astype(np.float32),
    "one": np.array([1]),
    "two": np.array([2]),
    "one_and_all": np.array([1, 1, H * S, S]),
    "long": np.array([1, H, S * S // 2, 2]),
    "parts": np.array([1, 1, 1]),
    "first": np.array([0]),
    "third": np.array([2]),
    "ws": np.array([32, 32, 32]),
    "root": D**0.5,
    "scale": D**-0.5,
    "part": np.full((1, 1, 1), D**-0.25, np.float32),
    "bias": floats(1, H, S, S, seed=4),
    "bias_of_heads": floats(H, 1, S, seed=5),
    "square": floats(S, S, seed=6),
    "wider": floats(2, 1, 1, 1, seed=7),
}
PROJECTED = "q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)"
HEADS = "q4 = Reshape(q, heads) k4 = Reshape(k, heads) v4 = Reshape(v, heads)"
MOVED = (
    "qh = Transpose<perm=[0,2,1,3]>(q4) kh = Transpose<perm=[0,2,3,1]>(k4) vh = Transpose<perm=[0,2,1,3]>(v4)"
    " s = MatMul(qh, kh)"
)
BACK = "o = MatMul(p, vh) b = Transpose<perm=[0,2,1,3]>(o) y = Reshape(b, rows)"
START = f"{PROJECTED} {HEADS} {MOVED}"
SCALED = f"{START} a = Div(s, root)"
PLAIN = f"{SCALED} p = Softmax(a) {BACK}"
CROSS = (
    f"{PROJECTED} q4 = Reshape(q, heads) qh = Transpose<perm=[0,2,1,3]>(q4) c = Reshape(m, heads_of_keys)"
    " kh = Transpose<perm=[0,2,3,1]>(c) e = Concat<axis=2>(m, m) w = Reshape(e, wide_heads)"
    " vh = Transpose<perm=[0,2,1,3]>(w) s = MatMul(qh, kh) p = Softmax(s) o = MatMul(p, vh)"
    " y = Transpose<perm=[0,2,1,3]>(o)"
)
SDPA = (
    f"{PROJECTED} {HEADS} qh = Transpose<perm=[0,2,1,3]>(q4) qs = Mul(part, qh) kt = Transpose<perm=[0,2,1,3]>(k4)"
    " kh = Transpose<perm=[0,1,3,2]>(kt) ks = Mul(kh, part) vh = Transpose<perm=[0,2,1,3]>(v4) s = MatMul(qs, ks)"
    f" p = Softmax<axis=3>(s) {BACK}"
)
PACKED = (
    "u = MatMul(x, packed) f = Reshape(u, five) q5, k5, v5 = Split<axis=2>(f, parts)"
    " qt = Transpose<perm=[2,0,3,1,4]>(q5) qh = Squeeze(qt, first) ku = Squeeze(k5, third)"
    " kh = Transpose<perm=[0,2,3,1]>(ku) vt = Transpose<perm=[2,0,3,1,4]>(v5) vh = Squeeze(vt, first)"
    f" qs = Mul(qh, scale) s = MatMul(qs, kh) p = Softmax(s) {BACK}"
)
MERGED = (
    f"{PROJECTED} q4 = Reshape(q, six) k4 = Reshape(k, six) v4 = Reshape(v, six) qh = Transpose<perm=[1,0,2]>(q4)"
    " kh = Transpose<perm=[1,2,0]>(k4) vh = Transpose<perm=[1,0,2]>(v4) s = MatMul(qh, kh) p = Softmax(s)"
    " o = MatMul(p, vh) b = Transpose<perm=[1,0,2]>(o) y = Reshape(b, rows)"
)
LENGTH_FIRST = (
    f"{PROJECTED} q3 = Reshape(q, six) qt = Transpose<perm=[1,0,2]>(q3) qh = Reshape(qt, as_batch)"
    " k4 = Reshape(k, heads) kh = Transpose<perm=[0,2,3,1]>(k4) v4 = Reshape(v, heads)"
    " vh = Transpose<perm=[0,2,1,3]>(v4) s = MatMul(qh, kh) p = Softmax(s) o = MatMul(p, vh)"
    " b = Transpose<perm=[2,0,1,3]>(o) y = Reshape(b, rows)"
)
FLAT = f"{SCALED} f = Flatten<axis=3>(a) r = Softmax(f) p = Reshape(r, scores) {BACK}"


def masked(mask: str, order: str = "s, {}") -> str:
    return f"{START} t = Add({order.format(mask)}) p = Softmax(t) {BACK}"


SIGNATURE = "(float[{b},6,32] x, float[{b},5,32] m, float[{b},1,1,6] mask) => (float[] y)"
ALONG_FOUR_AXES = (
    "x4 = Reshape(x, heads) f = Reshape(x4, matrix) q2 = MatMul(f, wh) q = Reshape(q2, heads)"
    " g = Reshape(x4, matrix) k2 = MatMul(g, wh) k = Reshape(k2, heads)"
    " h = Reshape(x4, matrix) v2 = MatMul(h, wh) v = Reshape(v2, heads)"
    " qh = Transpose<perm=[0,2,1,3]>(q) kh = Transpose<perm=[0,2,3,1]>(k)"
    " vh = Transpose<perm=[0,2,1,3]>(v) s = MatMul(qh, kh) p = Softmax(s) o = MatMul(p, vh)"
    " y = Transpose<perm=[0,2,1,3]>(o)"
)
GUARD = "r = Softmax(t) n = IsNaN(r) p = Where(n, nothing, r)"
CHOSEN = "b1 = Cast<to=9>(mask) w = Where(b1, nothing, infinite)"


def guarded(mask: str, guard: str = GUARD, before: str = CHOSEN) -> str:
    return f"{before} {START} t = Add(s, {mask}) {guard} {BACK}"


FUSIBLE = {
    "a guard against empty rows": guarded("w"),
    "a guard without a mask": f"{SCALED} {GUARD.replace('(t)', '(a)')} {BACK}",
    "a guard with a constant mask": guarded("holes"),
    "a guard with a mask of the least number": guarded("lowest"),
    "plain": PLAIN,
    "a mask": f"{SCALED} t = Add(a, mask) p = Softmax(t) {BACK}",
    "a mask before the scores": masked("mask", "{}, s"),
    "a bias of each head": masked("bias"),
    "a bias of three axes": masked("bias_of_heads"),
    "a bias of two axes": masked("square"),
    "factors on both sides": SDPA,
    "packed": PACKED,
    "no batch": MERGED,
    "length first": LENGTH_FIRST,
    "flat scores": FLAT,
    "other keys and values": CROSS,
}
OF_ANY_BATCH = FUSIBLE.keys() - {"packed", "no batch", "length first", "flat scores"}
OTHERWISE = {
    "one head": PLAIN.replace("heads)", "one_head)"),
    "scores along queries": PLAIN.replace("Softmax(a)", "Softmax<axis=2>(a)"),
    "scores that are read": f"{PLAIN.replace('y =', 'z =')} g = ReduceMean<keepdims=0>(s) y = Add(z, g)",
    "factors behind the mask": f"{START} t = Add(s, mask) a = Div(t, root) p = Softmax(a) {BACK}",
    "values that are scaled": PLAIN.replace("o = MatMul(p, vh)", "vs = Mul(vh, root) o = MatMul(p, vs)"),
    "heads that stay": PLAIN.replace("b = Transpose<perm=[0,2,1,3]>(o)", "b = Transpose<perm=[0,1,2,3]>(o)"),
    "heads in another order": PLAIN.replace("kh = Transpose<perm=[0,2,3,1]>(k4)", "kh = Reshape(k4, scrambled)"),
    "factors of each head": PLAIN.replace("Div(s, root)", "Mul(s, by_head)"),
    "factors that widen": PLAIN.replace("Div(s, root)", "Mul(s, five_axes)").replace(
        "p = Softmax(a)", "z = Squeeze(a, first) p = Softmax(z)"
    ),
    "a negative factor": PLAIN.replace("Div(s, root)", "Mul(s, negative)"),
    "a factor of 0": PLAIN.replace("Div(s, root)", "Mul(s, nothing)"),
    "factors whose product is 0": PLAIN.replace("Div(s, root)", "Mul(s, tiny)")
    .replace("MatMul(qh, kh)", "MatMul(qs, kh)")
    .replace("s = MatMul", "qs = Mul(qh, tiny) s = MatMul"),
    "scores beside themselves": f"{START} t = Add(s, s) p = Softmax(t) {BACK}",
    "one head of keys": PLAIN.replace(
        "k4 = Reshape(k, heads)", "kr = Reshape(k, heads) k4 = Slice(kr, first, one, two)"
    ),
    "probabilities of other heads": PLAIN.replace("p = Softmax(a)", "r = Softmax(a) p = Reshape(r, one_and_all)"),
    "probabilities of other rows": PLAIN.replace(
        "p = Softmax(a)", "f = Reshape(a, long) r = Softmax(f) p = Reshape(r, scores)"
    ),
    "a guard with a mask that may hold the least number": guarded("mask"),
    "a guard with both": guarded("w", before=CHOSEN.replace("nothing", "least")),
    "a guard that puts something else": guarded("w", GUARD.replace("nothing", "one_tenth")),
    "a guard that is turned round": guarded("w", GUARD.replace("nothing, r", "r, nothing")),
    "a guard of something else": guarded("w", "r = Softmax(t) n = IsNaN(s) p = Where(n, nothing, r)"),
    "no Softmax": PLAIN.replace("Softmax(a)", "Relu(a)"),
}


def a_case(body: str, batch: int = 1, opset: int = 21) -> Case:
    feed = {"x": floats(batch, S, 32), "m": floats(batch, T, 32, seed=8), "mask": floats(batch, 1, 1, S, seed=9)}
    return case_of(model_of(SIGNATURE.format(b=batch), body, CONSTANTS, opset=opset), feed)
