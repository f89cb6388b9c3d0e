"""Against ``quantize_dynamic``: the same integers, and outputs equal to the last bits."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.graphs import case_of, run, scheme
from tests.models import Array, floats, model_of, saved

UNSIGNED = ("u8:tensor:asym", QuantType.QUInt8, False)
"""Not for an LSTM: there ``quantize_dynamic`` writes s8 whatever is asked for."""
FORMATS = (("s8:tensor:sym", QuantType.QInt8, False), ("s8:channel:sym", QuantType.QInt8, True), UNSIGNED)
LSTM = 'LSTM<hidden_size=4, direction="{}">(x, w, r, b, , h, c)'
MODELS: dict[str, tuple[str, str, Mapping[str, Array | float]]] = {
    "matmul": ("(float[2,3,8] x) => (float[2,3,6] y)", "y = MatMul(x, w)", {"w": floats(8, 6)}),
    "matmul_add": (
        "(float[5,8] x) => (float[5,6] y)",
        "p = MatMul(x, w) y = Add(p, b)",
        {"w": floats(8, 6), "b": floats(6)},
    ),
    "gemm": ("(float[5,8] x) => (float[5,6] y)", "y = Gemm(x, w, b)", {"w": floats(8, 6), "b": floats(6)}),
    "gemm_transposed": (
        "(float[5,8] x) => (float[5,6] y)",
        "y = Gemm<transB=1>(x, w, b)",
        {"w": floats(6, 8), "b": floats(6)},
    ),
    "two_readers": (
        "(float[5,8] x) => (float[5,6] y)",
        "p = MatMul(x, w) q = MatMul(x, v) r = Relu(p) y = Add(r, q)",
        {"w": floats(8, 6), "v": floats(8, 6, seed=1)},
    ),
    **{
        f"lstm_{direction}": (
            f"(float[5,3,6] x) => (float[5,{n},3,4] y, float[{n},3,4] y_h, float[{n},3,4] y_c)",
            f"y, y_h, y_c = {LSTM.format(direction)}",
            {
                "w": floats(n, 16, 6, scale=0.5),
                "r": floats(n, 16, 4, scale=0.5),
                "b": floats(n, 32),
                "h": floats(n, 3, 4),
                "c": floats(n, 3, 4, seed=1),
            },
        )
        for direction, n in (("forward", 1), ("reverse", 1), ("bidirectional", 2))
    },
}


def integers(model: onnx.ModelProto) -> list[tuple[str, tuple[int, ...], bytes]]:
    """Of the weights, in any order."""
    arrays = [numpy_helper.to_array(t) for t in model.graph.initializer]
    return sorted((str(a.dtype), a.shape, a.tobytes()) for a in arrays if a.dtype.itemsize == 1 and a.ndim > 1)


@pytest.mark.parametrize(
    ("name", "weight", "dtype", "per_channel"),
    [(name, *form) for name in MODELS for form in FORMATS if not (name.startswith("lstm") and form == UNSIGNED)],
)
def test_integers_and_outputs_are_those_of_quantize_dynamic(
    name: str, weight: str, dtype: QuantType, per_channel: bool, tmp_path: Path
) -> None:
    signature, body, constants = MODELS[name]
    case = case_of(model_of(signature, body, constants))
    ours = case.quantized(scheme("u8:tensor:asym", weight, ranges="dynamic")).model
    quantize_dynamic(
        saved(case.graph.model, tmp_path / "float.onnx"),
        tmp_path / "theirs.onnx",
        op_types_to_quantize=["MatMul", "Gemm", "LSTM"],
        per_channel=per_channel,
        weight_type=dtype,
    )
    theirs = onnx.load(tmp_path / "theirs.onnx")
    assert [shape for _, shape, _ in integers(ours)] == [shape for _, shape, _ in integers(theirs)]
    assert integers(ours) == integers(theirs)
    for a, b in zip(run(ours, case.feed), run(theirs, case.feed), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
