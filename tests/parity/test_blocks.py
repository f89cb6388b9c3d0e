"""Weights in blocks, held against what ``MatMulNBitsQuantizer`` of onnxruntime stores."""

import numpy as np
import pytest
from onnx import numpy_helper
from onnxruntime.capi import _pybind_state

from autoquant.domain.scheme import DType
from tests.graphs import case_of, scheme
from tests.models import floats, model_of

BY_ONNXRUNTIME = {DType.S8: _pybind_state.quantize_matmul_8bits, DType.S4: _pybind_state.quantize_matmul_4bits}
"""What ``MatMulNBitsQuantizer`` calls, which itself needs ``onnx_ir``."""


@pytest.mark.parametrize("dtype", BY_ONNXRUNTIME)
@pytest.mark.parametrize(("n_inputs", "block"), [(64, 16), (96, 32), (100, 32), (256, 128)])
def test_integers_and_scales_are_those_of_onnxruntime(dtype: DType, n_inputs: int, block: int) -> None:
    weight, n_blocks = floats(n_inputs, 24), -(-n_inputs // block)
    weight[:block, 3] = 0.0
    weight[0, 4], weight[1, 4] = 4.0, -4.0
    size = block * dtype.bits // 8
    stored, scales = np.zeros((24, n_blocks, size), np.uint8), np.zeros(24 * n_blocks, np.float32)
    zero_points = np.zeros((24, n_blocks), np.uint8)
    BY_ONNXRUNTIME[dtype](stored, weight, scales, zero_points, block, 24, n_inputs, True)

    taken = scheme(f"s8:block-{block}:sym", f"{dtype}:block-{block}:sym", ranges="dynamic")
    case = case_of(model_of(f"(float[3,{n_inputs}] x) => (float[3,24] y)", "y = MatMul(x, w)", {"w": weight}))
    model = case.quantized(taken).model
    ours = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    np.testing.assert_allclose(ours["w_scale"].ravel(), scales, rtol=1e-6)
    used = n_inputs * dtype.bits // 8
    ours_there, theirs = (found.reshape(24, -1)[:, :used] for found in (ours["w_quantized"], stored))
    assert np.mean(ours_there != theirs) < 1e-3, "they round halves away from 0"
