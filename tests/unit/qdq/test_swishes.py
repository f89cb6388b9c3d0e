"""SiLUs and hard swishes behind what is quantized."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

from autoquant.domain.rewrite import Rewrite, Rewrites
from autoquant.domain.scheme import Scheme
from autoquant.model.dequantized import float_model
from autoquant.qdq.swishes import swish_excerpts, swishes_of
from tests.graphs import U8S8_CHANNEL, Case, case_of, optimized, rewritten, run, scheme
from tests.models import Array, floats, model_of, saved

FUSED = frozenset({Rewrite.FUSED_SILUS, Rewrite.FUSED_HARD_SWISHES})
CONSTANTS: Mapping[str, Array] = {
    "w": floats(8, 8, 1, 1, scale=0.3),
    "v": floats(8, 8, 1, 1, scale=0.3, seed=1),
    "flat": np.array([1, 8, 36]),
}
SILU = "a = Conv(x, w) s = Sigmoid(a) m = Mul(a, s) y = Conv(m, v)"
SIXTH = "alpha=0.16666667,beta=0.5"
HARD = SILU.replace("Sigmoid", f"HardSigmoid<{SIXTH}>")


def a_case(body: str, sizes: str = "1,8,6,6") -> Case:
    return case_of(model_of(f"(float[{sizes}] x) => (float[] y)", body, CONSTANTS), {"x": floats(1, 8, 6, 6)})


def built(case: Case, quantized: str, rewrites: frozenset[Rewrite] = FUSED) -> onnx.ModelProto:
    return rewritten(case, quantized, rewrites)


def activations_of(model: onnx.ModelProto) -> list[tuple[str, str]]:
    wanted = ("Sigmoid", "HardSigmoid", "Mul", "QuickGelu", "HardSwish")
    return [(n.op_type, n.name) for n in model.graph.node if n.op_type in wanted]


def possible(body: str, taken: Scheme = U8S8_CHANNEL, sizes: str = "1,8,6,6") -> Rewrites:
    return a_case(body, sizes).builder({taken.name: taken}).possible


APART = [("Sigmoid", "s"), ("Mul", "m")]


@pytest.mark.parametrize(
    ("body", "quantized", "expected"),
    [
        (SILU, "ay", [("QuickGelu", "m")]),
        (SILU, "a", [("QuickGelu", "m")]),
        (SILU.replace("Mul(a, s)", "Mul(s, a)"), "ay", [("QuickGelu", "m")]),
        ("a = Conv(x, w) r = MaxPool<kernel_shape=[1,1]>(a) s = Sigmoid(r) m = Mul(r, s) y = Conv(m, v)", "ary", None),
        (SILU, "y", APART),
        (SILU, "", APART),
        (SILU, "asmy", APART),
        (SILU, "asy", APART),
        (SILU.replace("Mul(a, s)", "Mul(x, s)"), "ay", APART),
        (f"{SILU.replace('y =', 'k =')} y = Add(k, s)", "ak", APART),
    ],
    ids=[
        *("between", "behind", "the other way round", "behind what moves", "before", "float", "integers"),
        *("half integers", "another factor", "a gate that is read otherwise"),
    ],
)
def test_a_silu_behind_integers_is_one_operator(
    body: str, quantized: str, expected: list[tuple[str, str]] | None, tmp_path: Path
) -> None:
    case = a_case(body)
    plain, fused = built(case, quantized, frozenset()), built(case, quantized)
    assert activations_of(plain) == APART
    assert activations_of(fused) == (expected or [("QuickGelu", "m")])
    first, second = (optimized(each, tmp_path).integer_nodes for each in (plain, fused))
    assert first == second
    np.testing.assert_allclose(run(fused, case.feed)[0], run(plain, case.feed)[0], rtol=1e-5, atol=1e-6)


def test_onnxruntime_runs_one_kernel_instead_of_two(tmp_path: Path) -> None:
    plain, fused = kernels_of(SILU, tmp_path)
    counts = [[found[name] for name in ("Sigmoid", "Mul", "QuickGelu")] for found in (plain, fused)]
    assert counts == [[1, 1, 0], [0, 0, 1]]
    assert fused["DequantizeLinear"] == plain["DequantizeLinear"] - 1


def test_a_hard_swish_behind_integers_is_one_operator(tmp_path: Path) -> None:
    case = a_case(HARD)
    plain, fused = built(case, "ay", frozenset()), built(case, "ay")
    assert activations_of(plain) == [("HardSigmoid", "s"), ("Mul", "m")]
    assert activations_of(fused) == [("HardSwish", "m")]
    np.testing.assert_allclose(run(fused, case.feed)[0], run(plain, case.feed)[0], rtol=1e-5, atol=1e-6)
    assert activations_of(built(case, "ay", frozenset({Rewrite.FUSED_SILUS}))) == activations_of(plain)
    apart, together = kernels_of(HARD, tmp_path)
    assert together["DequantizeLinear"] == apart["DequantizeLinear"] - 1


@pytest.mark.parametrize("factors", ["alpha=0.2,beta=0.5", "alpha=0.16666667,beta=0.4"])
def test_another_product_with_a_hard_sigmoid_is_no_hard_swish(factors: str) -> None:
    found = activations_of(built(a_case(HARD.replace(SIXTH, factors)), "ay"))
    assert found == [("HardSigmoid", "s"), ("Mul", "m")]


def kernels_of(body: str, folder: Path) -> list[Counter[str]]:
    models = (built(a_case(body), "ay", each) for each in (frozenset[Rewrite](), FUSED))
    return [Counter(k.rpartition(":")[2] for k in optimized(each, folder).kernels) for each in models]


def test_the_file_imports_the_domain_once() -> None:
    body = "a = Conv(x, w) s = Sigmoid(a) m = Mul(a, s) b = Conv(m, v) t = Sigmoid(b) y = Mul(b, t)"
    found = built(a_case(body), "ab")
    assert [each.domain for each in found.opset_import] == ["", "com.microsoft"]
    assert activations_of(found) == [("QuickGelu", "m"), ("QuickGelu", "y")]


def test_the_float_model_of_a_member_has_what_was_given(tmp_path: Path) -> None:
    case = a_case(SILU)
    member, prepared = saved(built(case, "ay"), tmp_path / "m.onnx"), saved(case.graph.model, tmp_path / "p.onnx")
    assert [node.op_type for node in float_model(member, prepared).graph.node] == ["Conv", "Sigmoid", "Mul", "Conv"]


def test_it_is_possible_where_sizes_are_known() -> None:
    assert Rewrite.FUSED_SILUS in possible(SILU)
    assert Rewrite.FUSED_SILUS in possible("a = Conv(x, w) r = Reshape(a, flat) s = Sigmoid(r) y = Mul(r, s)")
    assert Rewrite.FUSED_SILUS not in possible(SILU, sizes="N,8,6,6")
    assert Rewrite.FUSED_SILUS not in possible("y = Sigmoid(x)")
    assert FUSED & possible(SILU) == {Rewrite.FUSED_SILUS}
    assert FUSED & possible(HARD) == {Rewrite.FUSED_HARD_SWISHES}


def test_it_is_possible_behind_what_a_scheme_may_quantize_with_a_range() -> None:
    assert Rewrite.FUSED_SILUS not in possible("a = Erf(x) s = Sigmoid(a) y = Mul(a, s)")
    assert Rewrite.FUSED_SILUS not in possible("s = Sigmoid(x) y = Mul(x, s)")
    assert Rewrite.FUSED_SILUS not in possible(SILU, scheme("u8:tensor:asym", "s8:tensor:sym", ranges="dynamic"))


def test_hard_swish_is_an_operator_from_opset_14_on() -> None:
    older = model_of("(float[1,8,6,6] x) => (float[] y)", HARD, CONSTANTS, opset=13)
    builder = case_of(older, {"x": floats(1, 8, 6, 6)}).builder({U8S8_CHANNEL.name: U8S8_CHANNEL})
    assert FUSED.isdisjoint(builder.possible)


LARGEST = {
    "between Convs": ("q = Conv(x, w) p = GlobalAveragePool(q)", "r = Relu(q)", (1, 8, 6, 6), 2),
    "alone": ("q = Conv(x, w) p = GlobalAveragePool(q)", "r = Reshape(q, flat)", (1, 8, 36), 0),
}


@pytest.mark.parametrize(("before", "largest", "shape", "n_convs"), LARGEST.values(), ids=LARGEST)
def test_the_largest_one_is_run_between_integers_both_ways(
    before: str, largest: str, shape: tuple[int, ...], n_convs: int, tmp_path: Path
) -> None:
    case = a_case(f"{before} t = Sigmoid(p) u = Mul(p, t) {largest} s = Sigmoid(r) m = Mul(r, s) y = Mul(m, m)")
    found = swish_excerpts(case.graph, swishes_of(case.graph, case.builder({}).planner), Rewrite.FUSED_SILUS)
    assert found is not None
    assert [dict(each.shapes) for each in found] == [{"x": shape}] * 2
    models = [onnx.load_from_string(each.model) for each in found]
    kernels = [Counter(k.rpartition(":")[2] for k in optimized(model, tmp_path).kernels) for model in models]
    wanted = ("QLinearConv", "Sigmoid", "Mul", "QuickGelu")
    assert [[each[name] for name in wanted] for each in kernels] == [[n_convs, 1, 1, 0], [n_convs, 0, 0, 1]]
    apart, together = (run(model, {"x": 3 * floats(*shape)})[0] for model in models)
    np.testing.assert_array_equal(apart, together)
    assert apart.dtype == np.uint8
    assert np.ptp(apart) > 20
