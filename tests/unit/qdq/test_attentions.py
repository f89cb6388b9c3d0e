"""Attention as one operator."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.region import RegionId
from autoquant.domain.rewrite import Rewrite
from autoquant.model.attentions import attentions_of
from autoquant.model.fragments import inline_external
from autoquant.qdq.attentions import attention_excerpts
from tests.attentions import (
    ALONG_FOUR_AXES,
    BACK,
    CHOSEN,
    CONSTANTS,
    CROSS,
    FUSIBLE,
    OF_ANY_BATCH,
    OTHERWISE,
    PACKED,
    PLAIN,
    PROJECTED,
    SIGNATURE,
    START,
    H,
    S,
    T,
    a_case,
    guarded,
    masked,
)
from tests.graphs import Case, case_of, optimized, rewritten, run, scheme
from tests.models import floats, model_of

FUSED = frozenset({Rewrite.FUSED_ATTENTIONS})


def built(case: Case, quantized: Sequence[str] = "", rewrites: frozenset[Rewrite] = FUSED) -> onnx.ModelProto:
    return rewritten(case, quantized, rewrites)


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
