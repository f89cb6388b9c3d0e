"""Channels of float images that stay in blocks."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import RegionId, TensorName
from autoquant.domain.rewrite import Rewrite
from autoquant.domain.scheme import Scheme
from autoquant.model.dequantized import float_model
from autoquant.model.fragments import inline_external
from autoquant.qdq.blocks import Blocks
from autoquant.qdq.candidate import Candidate
from autoquant.qdq.plan import Plan
from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, opened, optimized, run
from tests.models import Array, floats, model_of, saved, used_in

KEPT = frozenset({Rewrite.KEPT_BLOCKS})
CONV = "Conv<pads=[1,1,1,1]>"
BESIDE = f"a = {CONV}(x, w) b = Conv(a, v) s = Add(a, b)"
"""A sum behind convolutions."""
GATE = "p = GlobalAveragePool(a) e = Conv(p, v) g = HardSigmoid(e)"
"""Of squeeze and excitation."""
CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(16, 16, 3, 3, scale=0.1),
    "v": floats(16, 16, 1, 1, scale=0.3, seed=1),
    "d": floats(16, 1, 3, 3, scale=0.3, seed=2),
    "both": floats(16, 32, 1, 1, scale=0.3, seed=5),
    "low": 0.0,
    "high": 6.0,
    "two": 2.0,
    "one": np.full((1, 1), 3, np.float32),
    "each": np.abs(floats(16, 1, 1, seed=3)) + 1,
    "last": floats(6, seed=4),
    "places": np.array([2, 3], np.int64),
    "channel": np.array([1], np.int64),
}


def a_case(body: str, n_channels: int = 16, given: str = "") -> Case:
    return case_of(model_of(given or f"(float[1,{n_channels},6,6] x) => (float[] y)", body, used_in(body, CONSTANTS)))


def whole(candidate: Candidate) -> onnx.ModelProto:
    return inline_external(candidate.skeleton, candidate.constants, {})


def in_float(case: Case) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """As it is, and with channels that are kept in blocks."""
    builder = case.builder({})
    plain = whole(builder.build({}))
    builder.write(KEPT)
    return plain, whole(builder.build({}))


def n_reordered(model: onnx.ModelProto, folder: Path) -> int:
    kernels = Counter(name.rpartition(":")[2] for name in optimized(model, folder).kernels)
    return kernels["ReorderInput"] + kernels["ReorderOutput"]


PARTED = {
    "a Clip behind an Add": f"{BESIDE} c = Clip(s, low, high) y = {CONV}(c, w)",
    "a LeakyRelu behind an Add": f"{BESIDE} c = LeakyRelu(s) y = {CONV}(c, w)",
    "a LeakyRelu beside an Add": f"a = {CONV}(x, w) c = LeakyRelu(a) b = {CONV}(c, w) s = Add(a, b) y = Conv(s, v)",
    "a number": f"a = {CONV}(x, w) r = Relu(a) m = Add(r, two) y = {CONV}(m, w)",
    "a number that comes first": f"{BESIDE} m = Mul(one, s) y = {CONV}(m, w)",
    "a number for each channel": f"{BESIDE} m = Div(s, each) n = Sub(m, each) y = {CONV}(n, w)",
    "a Clip behind a number": f"{BESIDE} m = Add(s, two) c = Clip(m, low, high) p = Mul(s, c) y = {CONV}(p, w)",
    "a pool behind": f"{BESIDE} c = Clip(s, low, high) p = GlobalAveragePool(c) y = Conv(p, v)",
    "a gate": f"{BESIDE} {GATE} m = Mul(s, g) y = {CONV}(m, w)",
    "a gate that comes first": f"{BESIDE} {GATE} m = Mul(g, s) t = Add(m, a) y = {CONV}(t, w)",
    "through others": f"{BESIDE} c = LeakyRelu(s) k = Concat<axis=1>(c, c) y = Conv(k, both)",
}


@pytest.mark.parametrize("body", PARTED.values(), ids=PARTED)
def test_nothing_is_reordered_but_what_the_model_reads_and_writes(body: str, tmp_path: Path) -> None:
    case = a_case(body)
    assert case.builder({}).possible == KEPT
    plain, kept = in_float(case)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(kept, strict_mode=True), full_check=True)
    assert n_reordered(plain, tmp_path) >= 4
    assert n_reordered(kept, tmp_path) == 2


ENTERED = "r = Transpose<perm=[0,1,3,2]>(x)"
"""In no blocks."""


@pytest.mark.parametrize(
    ("body", "n_before"),
    [
        (f"{ENTERED} a = {CONV}(r, w) s = Add(a, r) b = {CONV}(s, w) t = Add(b, s) y = Conv(t, v)", 6),
        (f"{ENTERED} a = {CONV}(r, w) s = Add(r, a) k = LeakyRelu(r) b = Conv(k, v) t = Add(b, s) y = Conv(t, v)", 6),
    ],
    ids=["sums", "an activation beside"],
)
def test_what_comes_in_another_layout_enters_a_chain_of_sums(body: str, n_before: int, tmp_path: Path) -> None:
    case = a_case(body)
    plain, kept = in_float(case)
    assert n_reordered(plain, tmp_path) == n_before
    assert n_reordered(kept, tmp_path) == 2
    convs = [node.name for node in kept.graph.node if node.name.endswith("_in_blocks")]
    assert convs == ["r_in_blocks"], "one for all sums"


def test_an_operator_keeps_its_name_as_a_conv() -> None:
    _, kept = in_float(a_case(f"{BESIDE} m = Mul(s, each) c = LeakyRelu(m) l = LeakyRelu(c) y = {CONV}(l, w)"))
    found = [(node.op_type, node.name) for node in kept.graph.node]
    assert found[3:] == [("Conv", "m"), ("LeakyRelu", "c"), ("Conv", "l_before"), ("LeakyRelu", "l"), ("Conv", "y")]


def test_a_gate_is_given_everywhere_once_for_each_size(tmp_path: Path) -> None:
    gated = "m = Mul(s, g) n = Mul(g, a) t = Add(m, n) k = MaxPool<kernel_shape=[3,3]>(t) o = Mul(k, g)"
    plain, kept = in_float(a_case(f"{BESIDE} {GATE} {gated} y = Conv(o, v)"))
    assert [node.name for node in kept.graph.node if node.op_type == "Resize"] == ["g_at_6_6", "g_at_4_4"]
    assert n_reordered(plain, tmp_path) > n_reordered(kept, tmp_path) == 2


@pytest.mark.parametrize(
    "body",
    [
        f"r = Transpose<perm=[0,1,3,2]>(x) a = {CONV}(r, w) s = Add(a, r) {GATE} m = Mul(r, g) c = Conv(m, v)"
        " b = Conv(s, v) t = Add(b, c) y = Conv(t, v)",
        "a = Conv(x, v) p = GlobalAveragePool(a) e = Conv(p, v) h = ReduceMax(x, places) t = Add(e, h) f = Conv(t, v)"
        " m = Mul(a, h) z = Conv(m, v) q = GlobalAveragePool(z) y = Add(q, f)",
    ],
    ids=["the image", "the gate"],
)
def test_what_a_sum_lets_in_is_in_no_blocks_for_a_gate(body: str) -> None:
    _, kept = in_float(a_case(body))
    assert "Resize" not in {node.op_type for node in kept.graph.node}
    assert any(node.name.endswith("_in_blocks") for node in kept.graph.node)


def test_a_gate_of_one_image_is_none_of_two() -> None:
    body = f"{BESIDE} p = GlobalAveragePool(x) f = Conv(p, v) m = Mul(s, f) y = {CONV}(m, w)"
    given = "(float[2,16,6,6] x, float[1,16,1,1] q) => (float[] y)"
    assert Rewrite.KEPT_BLOCKS in a_case(body, given=given).builder({}).possible
    assert Rewrite.KEPT_BLOCKS not in a_case(body.replace("Pool(x)", "Pool(q)"), given=given).builder({}).possible


def test_a_gate_stays_below_the_opset_at_which_a_resize_gives_it() -> None:
    body = f"{BESIDE} {GATE} m = Mul(s, g) l = LeakyRelu(s) t = Add(l, m) y = {CONV}(t, w)"
    for opset in (12, 13):
        given, used = "(float[1,16,6,6] x) => (float[] y)", {name: CONSTANTS[name] for name in ("w", "v")}
        _, kept = in_float(case_of(model_of(given, body, used, opset=opset)))
        assert ("Resize" in {node.op_type for node in kept.graph.node}) == (opset == 13)
        assert "l_before" in {node.name for node in kept.graph.node}
        opened(kept)


@given(
    steps=st.lists(
        st.sampled_from(
            [
                *(
                    "Clip(@, low, high)",
                    "LeakyRelu(@)",
                    "Relu(@)",
                    "Add(@, a)",
                    "Mul(@, a)",
                    "Add(@, r)",
                    "Add(two, @)",
                    "Mul(@, g)",
                ),
                *("Mul(@, each)", "Sub(@, one)", f"{CONV}(@, w)", "Conv<pads=[1,1,1,1], group=16>(@, d)", "Elu(@)"),
            ]
        ),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=30, deadline=None)
def test_outputs_are_the_same(steps: list[str]) -> None:
    calls = [f"t{i + 1} = {step.replace('@', f't{i}')}" for i, step in enumerate(steps)]
    case = a_case(f"r = Neg(x) a = {CONV}(x, w) {GATE} t0 = Conv(a, v) {' '.join(calls)} y = Conv(t{len(steps)}, v)")
    plain, kept = in_float(case)
    (first,), (second,) = (opened(each, is_optimized=False).run(None, dict(case.feed)) for each in (plain, kept))
    np.testing.assert_array_equal(first, second)
    (first,), (second,) = run(plain, case.feed), run(kept, case.feed)
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-4 * np.abs(first).max())


def test_a_quotient_may_be_rounded_otherwise() -> None:
    case = a_case(f"{BESIDE} m = Div(s, each) y = {CONV}(m, w)")
    (first,), (second,) = (run(each, case.feed) for each in in_float(case))
    np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantized", ["abs", "y", "bsy"])
def test_beside_integers_all_is_written_as_it_was(quantized: str) -> None:
    taken = exact(U8S8_CHANNEL)
    assert taken is not None
    case = a_case(f"{BESIDE} c = LeakyRelu(s) m = Mul(c, two) y = {CONV}(m, w)")
    plain, kept = (built(case, taken, quantized, rewrites) for rewrites in (frozenset[Rewrite](), KEPT))
    assert plain.skeleton == kept.skeleton
    assert plain.integer_nodes == kept.integer_nodes


def test_integers_are_the_same_where_floats_are_kept_in_blocks_elsewhere(tmp_path: Path) -> None:
    taken = exact(U8S8_CHANNEL)
    assert taken is not None
    case = a_case(f"q = {CONV}(x, w) {BESIDE.replace('x', 'q')} c = LeakyRelu(s) l = Conv(c, v) y = {CONV}(l, w)")
    plain, kept = (built(case, taken, "qy", rewrites) for rewrites in (frozenset[Rewrite](), KEPT))
    assert plain.integer_nodes == kept.integer_nodes == {"q", "y"}
    assert optimized(whole(kept), tmp_path).integer_nodes == {"q", "y"}
    assert n_reordered(whole(kept), tmp_path) < n_reordered(whole(plain), tmp_path)
    (first,), (second,) = (run(whole(each), case.feed) for each in (plain, kept))
    np.testing.assert_allclose(first, second, atol=0.02 * np.abs(first).max())


def built(case: Case, taken: Scheme, quantized: str, rewrites: frozenset[Rewrite]) -> Candidate:
    builder = case.builder({taken.name: taken})
    builder.write(rewrites)
    return builder.build({RegionId(name): taken.name for name in quantized})


def test_a_convolution_that_is_computed_tile_by_tile_writes_no_blocks() -> None:
    case = a_case(f"{BESIDE} c = LeakyRelu(s) y = {CONV}(c, w)")
    blocks = Blocks(case.graph)
    assert blocks.find(Plan({})).activations == {3}
    assert not blocks.find(Plan({}), {0, 1}).activations
    found = blocks.find(Plan({}), {1})
    assert found.activations == {3}
    assert found.joined == {(2, TensorName("b"))}, "into the sum with what the other one writes"


def test_the_float_model_of_a_member_has_what_was_given(tmp_path: Path) -> None:
    case = a_case(f"{BESIDE} m = Mul(s, each) c = LeakyRelu(s) t = Add(c, m) y = {CONV}(t, w)")
    _, kept = in_float(case)
    found = float_model(saved(kept, tmp_path / "m.onnx"), saved(case.graph.model, tmp_path / "p.onnx"))
    np.testing.assert_array_equal(run(found, case.feed)[0], run(case.graph.model, case.feed)[0])
    assert [node.op_type for node in found.graph.node] == [node.op_type for node in case.graph.model.graph.node]


STAY = {
    "a Conv absorbs it": f"a = {CONV}(x, w) c = LeakyRelu(a) y = {CONV}(c, w)",
    "nothing behind": f"{BESIDE} y = Clip(s, low, high)",
    "nothing before": f"c = LeakyRelu(x) y = {CONV}(c, w)",
    "another layout behind": f"{BESIDE} c = LeakyRelu(s) y = Transpose<perm=[0,2,3,1]>(c)",
    "a gate in no blocks": f"{BESIDE} g = ReduceMax(x, places) m = Mul(s, g) y = {CONV}(m, w)",
    "a gate for each place": f"{BESIDE} g = ReduceMean(s, channel) m = Mul(s, g) y = {CONV}(m, w)",
    "a gate of what is in no blocks": f"{ENTERED} a = Conv(r, v) {GATE} m = Mul(r, g) y = Conv(m, v)",
    "no sum behind what enters": f"{ENTERED} a = Conv(r, v) y = Add(a, r)",
    "a sum that is read otherwise": f"{ENTERED} a = Conv(r, v) s = Add(a, r) k = Neg(s) b = Conv(s, v) y = Add(k, b)",
    "a number for each column": f"{BESIDE} m = Mul(s, last) y = {CONV}(m, w)",
    "bounds that are computed": f"{BESIDE} h = ReduceMax<keepdims=0>(x) c = Clip(s, low, h) y = {CONV}(c, w)",
    "a difference to a constant": f"{BESIDE} m = Sub(two, s) y = {CONV}(m, w)",
}


@pytest.mark.parametrize("body", STAY.values(), ids=STAY)
def test_others_stay(body: str) -> None:
    assert Rewrite.KEPT_BLOCKS not in a_case(body).builder({}).possible
