"""Kernels of this processor on products that are as large as they get."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from autoquant.domain.quality import QualityMeter
from autoquant.domain.scheme import Scheme
from autoquant.domain.target import Target
from autoquant.measurement.saturation import is_saturating
from tests.graphs import Case, case_of, run, scheme
from tests.inspected import FLOAT_PRODUCTS, inspected
from tests.models import Array, Floats, floats, model_of

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


NUMBERS: Mapping[str, Array | float] = {
    "s": 1.0,
    "large": 1100.0,
    "z": np.array(0, np.uint8),
    "wz": np.array(0, np.int8),
    "w": np.full((8, 40), 127, np.int8),
    "v": np.full((40, 8, 1, 1), 127, np.int8),
}
PAIR = "{0}_q = QuantizeLinear({0}, {1}, z) {0}_d = DequantizeLinear({0}_q, {1}, z)"
STORED: Mapping[str, tuple[str, str]] = {
    "MatMulInteger": ("(uint8[2,8] x) => (int32[2,40] y)", "y = MatMulInteger(x, w, z, wz)"),
    **FLOAT_PRODUCTS,
    "QLinearConv": ("(uint8[1,8,2,2] x) => (uint8[1,40,2,2] y)", "y = QLinearConv(x, s, z, v, s, wz, large, z)"),
    "QLinearMatMul": ("(uint8[2,8] x) => (uint8[2,40] y)", "y = QLinearMatMul(x, s, z, w, s, wz, large, z)"),
    "Q/DQ around MatMul": (
        "(float[2,8] x) => (float[2,40] y)",
        f"{PAIR.format('x', 's')} w_d = DequantizeLinear(w, s, wz) m = MatMul(x_d, w_d) {PAIR.format('m', 'large')}"
        " y = Identity(m_d)",
    ),
    "Q/DQ around Conv": (
        "(float[1,8,2,2] x) => (float[1,40,2,2] y)",
        f"{PAIR.format('x', 's')} v_d = DequantizeLinear(v, s, wz) m = Conv(x_d, v_d) {PAIR.format('m', 'large')}"
        " y = Identity(m_d)",
    ),
}
"""Products of the largest numbers, as files have them."""


def first_output(model: onnx.ModelProto, *, is_precise: bool) -> float:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", str(int(is_precise)))
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    dtype = np.uint8 if "uint8" in given.type else np.float32
    (found,) = session.run(None, {"x": np.full(given.shape, 255, dtype)})
    return float(found.flat[0])


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("name", STORED)
def test_a_session_option_helps_all_but_qlinearmatmul_of_opset_21(name: str, opset: int) -> None:
    """The option is for processors that saturate; elsewhere it changes nothing."""
    model = model_of(*STORED[name], NUMBERS, opset=opset)
    exact = 8 * 255 * 127
    unit = NUMBERS["large"] if "large" in STORED[name][1] else 1.0
    expected = round(exact / float(unit)) * (1.0 if name.startswith("QLinear") else float(unit))
    assert (first_output(model, is_precise=False) == expected) is not is_saturating(Target())
    is_helped = (name, opset) != ("QLinearMatMul", 21)
    assert (first_output(model, is_precise=True) == expected) is (is_helped or not is_saturating(Target()))
