"""Attention as one operator."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.region import RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.model.fragments import inline_external
from autoquant.qdq.attentions import attention_excerpts, attentions_of
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, optimized, run, scheme
from tests.models import Array, floats, model_of

FUSED = frozenset({Rewrite.FUSED_ATTENTIONS})
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


def built(case: Case, quantized: Sequence[str] = "", rewrites: frozenset[Rewrite] = FUSED) -> onnx.ModelProto:
    taken = exact(U8S8_CHANNEL)
    assert taken is not None
    builder = case.builder({taken.name: taken})
    builder.write(rewrites)
    candidate = builder.build({RegionId(name): taken.name for name in quantized})
    return inline_external(candidate.skeleton, candidate.constants, {})


def counted(model: onnx.ModelProto, *op_types: str) -> list[int]:
    found = Counter(node.op_type for node in model.graph.node)
    return [found[op_type] for op_type in op_types]


@pytest.mark.parametrize(
    ("name", "batch"), [*((name, 1) for name in FUSIBLE), *((name, 2) for name in sorted(OF_ANY_BATCH))]
)
def test_attention_is_one_operator_that_computes_the_same(name: str, batch: int, tmp_path: Path) -> None:
    case = a_case(FUSIBLE[name], batch)
    plain, fused = built(case, rewrites=frozenset()), built(case)
    assert counted(fused, "Attention", "Softmax", "Transpose") == [1, 0, 0]
    assert [each.version for each in fused.opset_import if not each.domain] == [23]
    onnx.checker.check_model(fused)
    np.testing.assert_allclose(run(fused, case.feed)[0], run(plain, case.feed)[0], rtol=1e-5, atol=1e-6)
    assert "Attention" in {kernel.rpartition(":")[2] for kernel in optimized(fused, tmp_path).kernels}


@pytest.mark.parametrize("body", OTHERWISE.values(), ids=OTHERWISE)
def test_what_only_resembles_it_stays(body: str) -> None:
    case = a_case(body)
    assert not attentions_of(case.graph)
    assert [each.version for each in built(case).opset_import if not each.domain] == [21]


def test_it_needs_an_opset_that_means_the_same_and_known_sizes() -> None:
    assert attentions_of(a_case(PLAIN).graph)
    assert not attentions_of(a_case(PLAIN, opset=20).graph)
    unknown = model_of(SIGNATURE.format(b="N"), PLAIN, CONSTANTS)
    assert not attentions_of(case_of(unknown, a_case(PLAIN).feed).graph)


def test_a_product_without_its_reshape_is_read_behind_it() -> None:
    taken = scheme("u8:tensor:asym", "s8:channel:sym", ranges="dynamic")
    case = a_case(ALONG_FOUR_AXES)
    builder = case.builder({taken.name: taken})
    builder.write(FUSED)
    for quantized in ([], ["q2"], ["q2", "k2", "v2"]):
        candidate = builder.build({RegionId(name): taken.name for name in quantized})
        model = inline_external(candidate.skeleton, candidate.constants, {})
        onnx.checker.check_model(model)
        assert counted(model, "Attention", "MatMulInteger") == [not quantized, len(quantized)]


def test_shapes_may_be_known_behind_a_reshape_alone() -> None:
    fixed = {**CONSTANTS, "heads": np.array([1, S, H, D])}
    model = model_of(SIGNATURE.format(b="N"), PLAIN, fixed)
    assert len(attentions_of(case_of(model, a_case(PLAIN).feed).graph)) == 1


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min, -3.4e38, -1e4])
@pytest.mark.parametrize("rows", [[2], range(S)])
def test_rows_that_are_masked_throughout_are_those_of_the_products(low: float, rows: Sequence[int]) -> None:
    mask = np.triu(np.full((S, S), low, np.float32), 1)
    mask[rows] = low
    model = model_of(SIGNATURE.format(b=1).replace("[1,1,1,6]", f"[1,1,{S},{S}]"), masked("mask"), CONSTANTS)
    case = case_of(model, {**a_case(PLAIN).feed, "mask": np.maximum(mask, np.float32(-3.4e38))[None, None]})
    expected = run(built(case, rewrites=frozenset()), case.feed)[0]
    found = run(built(case), {**case.feed, "mask": mask[None, None]})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_kept", [0, 2, S])
def test_a_guard_does_nothing_behind_a_mask_without_infinity(n_kept: int) -> None:
    case = a_case(guarded("w", before=CHOSEN.replace("infinite", "least")))
    feed = {**case.feed, "mask": (np.arange(S) < n_kept).astype(np.float32).reshape(1, 1, 1, S)}
    fused = built(case)
    assert counted(fused, "Attention", "IsNaN", "Max") == [1, 0, 1]
    np.testing.assert_allclose(
        run(fused, feed)[0], run(built(case, rewrites=frozenset()), feed)[0], rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("n_kept", [0, 2, S])
def test_rows_that_a_guard_makes_0_stay_0(n_kept: int) -> None:
    case = a_case(guarded("w"))
    feed = {**case.feed, "mask": (np.arange(S) < n_kept).astype(np.float32).reshape(1, 1, 1, S)}
    plain, fused = built(case, rewrites=frozenset()), built(case)
    assert counted(fused, "Attention", "IsNaN", "Where", "Max") == [1, 0, 1, 0]
    expected = run(plain, feed)[0]
    assert np.any(expected) == (n_kept > 0)
    np.testing.assert_allclose(run(fused, feed)[0], expected, rtol=1e-5, atol=1e-6)


def test_it_stays_where_a_part_runs_on_integers() -> None:
    case = a_case(PLAIN)
    assert counted(built(case, "qkv"), "Attention", "Softmax") == [1, 0]
    for part in (["s"], ["o"], ["v", "v4"], ["o", "b"]):
        assert counted(built(case, part), "Attention", "Softmax") == [0, 1]


def test_what_follows_reads_integers(tmp_path: Path) -> None:
    case = a_case(f"{PLAIN.replace('y =', 'z =')} y = MatMul(z, wq)")
    plain, fused = built(case, "zy", frozenset()), built(case, "zy")
    assert counted(fused, "Attention") == [1]
    first, second = (optimized(each, tmp_path).integer_nodes for each in (plain, fused))
    assert first == second
    assert "y" in second
    np.testing.assert_allclose(run(fused, case.feed)[0], run(plain, case.feed)[0], rtol=1e-5, atol=1e-5)


def test_a_mask_is_expanded_once() -> None:
    layer = f"{START} t = Add(s, mask) p = Softmax(t) {BACK}"
    again = re.sub(r"\b(q|k|v|q4|k4|v4|qh|kh|vh|s|t|p|o|b)\b", r"\1_2", layer).replace("(x,", "(x2,")
    layer = layer.replace("y =", "x2 =")
    case = a_case(f"{layer} {again}")
    fused = built(case)
    assert counted(fused, "Attention", "Expand", "Max") == [2, 1, 1]
    plain = built(case, rewrites=frozenset())
    np.testing.assert_allclose(run(fused, case.feed)[0], run(plain, case.feed)[0], rtol=1e-5, atol=1e-6)


def test_it_has_the_name_of_the_product_with_the_values() -> None:
    found = built(a_case(PLAIN))
    assert [node.name for node in found.graph.node if node.op_type == "Attention"] == ["o"]


def test_the_largest_one_is_run_alone_both_ways() -> None:
    assert attention_excerpts(a_case(OTHERWISE["one head"]).graph, {}) is None
    for body in (masked("mask"), masked("bias"), PACKED, CROSS):
        graph = a_case(body).graph
        found = attention_excerpts(graph, attentions_of(graph))
        assert found is not None
        apart, together = found
        assert dict(apart.shapes) == dict(together.shapes)
        feed = {str(name): floats(*shape, seed=i) for i, (name, shape) in enumerate(apart.shapes.items())}
        models = [onnx.load_from_string(each.model) for each in found]
        assert [counted(model, "Attention") for model in models] == [[0], [1]]
        first, second = (run(model, feed)[0] for model in models)
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_of_two_the_one_with_more_scores_is_run() -> None:
    cross = re.sub(r"\b(c|e|w|q4|qh|kh|vh|s|p|o|y)\b", r"\1_3", CROSS.partition(PROJECTED)[2])
    body = f"{PLAIN.replace('y =', 'z =')} {cross.replace('y_3', 'n')} y = Add(z, z)"
    graph = a_case(body).graph
    found = attentions_of(graph)
    assert sorted(each.shape for each in found.values()) == [(1, H, S, T), (1, H, S, S)]
    excerpts = attention_excerpts(graph, found)
    assert excerpts is not None
    assert set(excerpts[0].shapes) == {"q", "k", "v"}


def test_it_is_possible_in_float_alone() -> None:
    builder = a_case(PLAIN).builder({})
    assert Rewrite.FUSED_ATTENTIONS in builder.possible
    assert builder.excerpts(Rewrite.FUSED_ATTENTIONS) is not None
    assert Rewrite.FUSED_ATTENTIONS not in a_case(OTHERWISE["one head"]).builder({}).possible
