"""Norms that are written as nodes, beside what is quantized."""

from pathlib import Path

import numpy as np
import pytest

from tests.graphs import U8S8_CHANNEL, Case, case_of, exact, optimized, run
from tests.models import Array, floats, model_of

RMS = "q = Pow(x, two) m = ReduceMean(q, axes) v = Add(m, e) s = Sqrt(v) n = Div(x, s) k = Mul(n, w)"
CENTRED = RMS.replace("q = Pow(x", "c = ReduceMean(x, axes) d = Sub(x, c) q = Pow(d").replace("Div(x", "Div(d")
NORMS = {"SimplifiedLayerNormalization": RMS, "LayerNormalization": f"{CENTRED.replace('k =', 'j =')} k = Add(j, w)"}
BEFORE = {"sum": "x = Add(a, b)", "moved sum": "t = Add(a, b) u = Reshape(t, flat) x = Reshape(u, back)"}


def a_residual_block(before: str, norm: str) -> Case:
    constants: dict[str, Array | float] = {"axes": np.array([-1]), "two": 2.0, "e": 1e-5, "w": floats(8)}
    constants |= {"p": floats(8, 8)} | ({"flat": np.array([48]), "back": np.array([6, 8])} if "flat" in before else {})
    body = f"{before} {norm} g = Gemm(k, p) y = Add(g, x)"
    return case_of(model_of("(float[6,8] a, float[6,8] b) => (float[6,8] y)", body, constants))


@pytest.mark.parametrize("fused", NORMS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_norm_of_integers_is_float_and_fused_and_all_around_it_is_not(
    before: str, fused: str, tmp_path: Path
) -> None:
    case = a_residual_block(BEFORE[before], NORMS[fused])
    found = case.quantized(exact(U8S8_CHANNEL)).model
    kernels = optimized(found, tmp_path).kernels
    assert fused in kernels
    assert not {"Pow", "ReduceMean", "Sqrt", "Div", "Mul"} & set(kernels)
    assert kernels.count("com.microsoft:QLinearAdd") == 2
    assert "com.microsoft:QGemm" in kernels
    (expected,), (computed,) = run(case.graph.model, case.feed), run(found, case.feed)
    assert np.linalg.norm(computed - expected) < 0.03 * np.linalg.norm(expected)


@pytest.mark.parametrize("fused", NORMS)
def test_a_norm_of_floats_reads_them_as_they_are(fused: str) -> None:
    case = a_residual_block("x = Exp(a) z = Neg(b)", NORMS[fused])
    assert "Sum" not in [node.op_type for node in case.quantized(U8S8_CHANNEL).model.graph.node]
