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
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, optimized, run
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
FUSIBLE = {
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
    assert counted(fused, "Attention", "Expand") == [2, 1]
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


def test_it_is_possible_in_float_alone() -> None:
    builder = a_case(PLAIN).builder({})
    assert Rewrite.FUSED_ATTENTIONS in builder.possible
    assert builder.excerpts(Rewrite.FUSED_ATTENTIONS) is not None
    assert Rewrite.FUSED_ATTENTIONS not in a_case(OTHERWISE["one head"]).builder({}).possible
