"""Kernels of this processor on products that are as large as they get."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from autoquant.domain.quality import QualityMeter
from autoquant.domain.scheme import Scheme
from autoquant.domain.target import Target
from autoquant.measurement.saturation import is_saturating
from tests.graphs import Case, case_of, run, scheme
from tests.inspected import inspected
from tests.models import Floats, floats, model_of

CHANNEL, TENSOR = "s8:channel:sym", "s8:tensor:sym"
Constants = Mapping[str, Floats]


def full(*shape: int) -> Floats:
    """Weights that are nearly as large as the largest one."""
    return np.abs(floats(*shape, scale=0.1)) + np.float32(1)


CONV = "(float[1,{},6,6] x) => (float[1,{},H,W] y)"
MODELS: Mapping[str, tuple[str, str, Constants]] = {
    "pointwise": (CONV.format(7, 8), "y = Conv(x, w)", {"w": full(8, 7, 1, 1)}),
    "conv": (CONV.format(3, 8), "y = Conv(x, w)", {"w": full(8, 3, 3, 3)}),
    "conv_of_many": (CONV.format(16, 16), "y = Conv(x, w)", {"w": full(16, 16, 3, 3)}),
    "grouped": (CONV.format(6, 8), "y = Conv<group=2>(x, w)", {"w": full(8, 3, 3, 3)}),
    "multiplied": (CONV.format(4, 8), "y = Conv<group=4>(x, w)", {"w": full(8, 1, 3, 3)}),
    "depthwise": (CONV.format(8, 8), "y = Conv<group=8>(x, w)", {"w": full(8, 1, 3, 3)}),
    "one_channel": (CONV.format(1, 1), "y = Conv(x, w)", {"w": full(1, 1, 3, 3)}),
    "matmul": ("(float[2,3,9] x) => (float[2,3,5] y)", "y = MatMul(x, w)", {"w": full(9, 5)}),
    "gemm": ("(float[3,9] x) => (float[3,5] y)", "y = Gemm(x, w, b)", {"w": full(9, 5), "b": floats(5)}),
    "gemm_transposed": (
        "(float[3,8] x) => (float[3,5] y)",
        "y = Gemm<transB=1>(x, w, b)",
        {"w": full(5, 8), "b": floats(5)},
    ),
}
DYNAMIC = ("matmul", "gemm", "gemm_transposed")


def largest(name: str) -> Case:
    """A model that reads numbers which are nearly as large as the largest one."""
    case = case_of(model_of(*MODELS[name]))
    return case_of(case.graph.model, {"x": full(*case.feed["x"].shape)})


def snr_db(case: Case, chosen: Scheme) -> float:
    meter = QualityMeter([str(name) for name in case.graph.outputs])
    meter.add(run(case.graph.model, case.feed), run(case.quantized(chosen).model, case.feed))
    return meter.quality().worst_db


@pytest.mark.parametrize("weight", [CHANNEL, TENSOR])
@pytest.mark.parametrize(
    ("name", "ranges"), [(name, "min-max") for name in MODELS] + [(name, "dynamic") for name in DYNAMIC]
)
def test_unsaturated_weights_give_what_float_gives(name: str, ranges: str, weight: str) -> None:
    assert snr_db(largest(name), scheme("u8:tensor:asym", f"{weight}:unsaturated", ranges=ranges)) > 35


@pytest.mark.parametrize(
    ("name", "ranges"),
    [(name, "min-max") for name in MODELS if name not in ("depthwise", "one_channel")]
    + [(name, "dynamic") for name in DYNAMIC],
)
def test_others_saturate_where_the_processor_does(name: str, ranges: str) -> None:
    found = snr_db(largest(name), scheme("u8:tensor:asym", CHANNEL, ranges=ranges))
    assert (found < 25) is is_saturating(Target())


@pytest.mark.parametrize("weight", [CHANNEL, TENSOR, f"{CHANNEL}:unsaturated", "u8:tensor:asym"])
@pytest.mark.parametrize("activation", ["u8:tensor:asym", "s8:tensor:sym"])
@pytest.mark.parametrize("name", MODELS)
def test_an_inspection_remarks_upon_exactly_the_models_that_are_wrong_here(
    name: str, activation: str, weight: str, tmp_path: Path
) -> None:
    case, chosen = largest(name), scheme(activation, weight)
    remarks = inspected(case.quantized(chosen).model, tmp_path).remarks
    assert any("can saturate" in remark.text for remark in remarks) is (snr_db(case, chosen) < 25)


@pytest.mark.parametrize("weight", [CHANNEL, TENSOR])
def test_an_lstm_with_unsaturated_weights_gives_what_float_gives(weight: str, tmp_path: Path) -> None:
    """Its gates are small, so that the products, not their sigmoids, decide: weights that cancel in pairs of pairs."""
    signs = np.array([1, 1, -1, -1, 1], np.float32)
    constants = {"w": full(1, 16, 5) * signs * np.float32(0.2), "r": full(1, 16, 4) * signs[:4] * np.float32(0.2)}
    signature = "(float[5,3,5] x) => (float[5,1,3,4] y)"
    case = case_of(model_of(signature, "y = LSTM<hidden_size=4>(x, w, r)", constants))
    case = case_of(case.graph.model, {"x": full(5, 3, 5)})
    safe = scheme("u8:tensor:asym", f"{weight}:unsaturated", ranges="dynamic")
    assert snr_db(case, safe) > 30
    assert inspected(case.quantized(safe).model, tmp_path).remarks == ()
    unsafe = scheme("u8:tensor:asym", weight, ranges="dynamic")
    assert bool(inspected(case.quantized(unsafe).model, tmp_path).remarks) is is_saturating(Target())
    if is_saturating(Target()):
        assert snr_db(case, unsafe) < 25
