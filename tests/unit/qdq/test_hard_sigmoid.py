from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.scheme import Scheme
from tests.graphs import U8S8_CHANNEL, U16S8, case_of, exact, opened, optimized, run, scheme
from tests.models import floats, model_of, op_types

IMAGE = "float[1,4,6,6]"
SWISH = "c = Conv(x, w) h = HardSigmoid<alpha=0.16666667, beta=0.5>(c) m = Mul(c, h) y = Conv(m, w)"
S8 = scheme("s8:tensor:asym", "s8:channel:sym")


def a_model(body: str, outputs: str = f"{IMAGE} y") -> onnx.ModelProto:
    return model_of(f"({IMAGE} x) => ({outputs})", body, {"w": 2 * floats(4, 4, 1, 1), "one": 1.0, "zero": 0.0})


def test_a_hard_swish_between_convolutions_runs_on_integers_throughout(tmp_path: Path) -> None:
    ours = case_of(a_model(SWISH)).quantized(exact(U8S8_CHANNEL)).model
    onnx.checker.check_model(ours, full_check=True)
    assert optimized(ours, tmp_path).integer_nodes >= {"c", "h", "m", "y"}


@pytest.mark.parametrize("taken", [U8S8_CHANNEL, S8], ids=["u8", "s8"])
@settings(max_examples=30, deadline=None)
@given(alpha=st.floats(0.0625, 4, width=32), beta=st.floats(0.0625, 2, width=32), spread=st.floats(0.1, 20))
def test_the_integers_are_those_of_the_function(taken: Scheme, alpha: float, beta: float, spread: float) -> None:
    model = a_model(f"y = HardSigmoid<alpha={alpha}, beta={beta}>(x)")
    feed = {"x": (spread * floats(1, 4, 6, 6)).astype(np.float32)}
    case = case_of(model, feed)
    ours = case.quantized(taken).model
    (expected,), (fused,), (plain,) = (
        run(model, feed),
        run(ours, feed),
        opened(ours, is_optimized=False).run(None, feed),
    )
    low, high = (float(bound) for bound in case.extremes[case.graph.inputs[0]])
    step_read, step = (max(high, 0) - min(low, 0)) / 255, max(float(expected.max()), 1e-6) / 255
    np.testing.assert_allclose(plain, expected, atol=0.51 * (alpha * step_read + step) + 1e-6)
    np.testing.assert_allclose(fused, plain, atol=1.01 * step)


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) h = HardSigmoid(c) y = Conv(h, w)",
        "c = Conv(x, w) h = HardSigmoid(c) r = Relu(h) y = Conv(r, w)",
        "c = Conv(x, w) h = HardSigmoid(c) r = Clip(h, zero, one) y = Conv(r, w)",
        "h = HardSigmoid(x) t = Transpose<perm=[0,1,3,2]>(h) y = Conv(t, w)",
        "h = HardSigmoid(x) t = Tanh(h) y = Conv(h, w)",
        SWISH,
    ],
)
@pytest.mark.parametrize("outputs", [f"{IMAGE} y", f"{IMAGE} y, {IMAGE} h"])
def test_what_is_around_it_reads_what_it_would_write(body: str, outputs: str) -> None:
    case = case_of(a_model(body, outputs))
    ours = case.quantized(exact(U8S8_CHANNEL)).model
    onnx.checker.check_model(ours, full_check=True)
    assert "HardSigmoid" not in op_types(ours)
    for found, expected in zip(run(ours, case.feed), run(case.graph.model, case.feed), strict=True):
        assert 10 * np.log10((expected**2).sum() / ((found - expected) ** 2).sum()) > 25


@pytest.mark.parametrize(
    ("taken", "call"),
    [
        (scheme("u8:tensor:sym", "s8:channel:sym"), "HardSigmoid(c)"),
        (scheme("u8:tensor:asym:pow2", "s8:channel:sym:pow2"), "HardSigmoid(c)"),
        (U16S8, "HardSigmoid(c)"),
        (U8S8_CHANNEL, "HardSigmoid<beta=0.0>(c)"),
        (U8S8_CHANNEL, "HardSigmoid<alpha=-0.2>(c)"),
    ],
    ids=["symmetric", "power of two", "16 bits", "no summand", "falling"],
)
def test_formats_and_forms_whose_integers_would_not_clip_it_leave_it_float(taken: Scheme, call: str) -> None:
    ours = case_of(a_model(f"c = Conv(x, w) h = {call} y = Conv(h, w)")).quantized(taken).model
    assert op_types(ours).count("HardSigmoid") == 1
    assert "Add" not in op_types(ours)
