"""What onnxruntime computes number by number."""

import numpy as np
import onnx
import pytest

from autoquant.model.by_element import BROADCASTING, FUNCTIONS
from tests.models import floats, model_of, outputs_of

OF_NO_NUMBER = ("Log", "Reciprocal")
"""Functions that are infinite at zero."""
TO_BE_SAID = {"Clip": "y = Clip(x, low, high)"}


def a_function(op_type: str) -> onnx.ModelProto:
    domain, _, name = op_type.rpartition(":")
    body = TO_BE_SAID.get(op_type, f"y = {domain}{'.' if domain else ''}{name}(x)")
    bounds = {"low": -0.5, "high": 0.5} if op_type == "Clip" else {}
    return model_of("(float[N] x) => (float[N] y)", body, bounds, opset=24 if op_type == "Swish" else 21)


@pytest.mark.parametrize("op_type", sorted(FUNCTIONS))
def test_each_number_is_computed_of_itself_alone(op_type: str) -> None:
    values = np.abs(floats(64)) if op_type in ("Log", "Sqrt") else floats(64)
    (whole,) = outputs_of(a_function(op_type), {"x": values})
    each = [outputs_of(a_function(op_type), {"x": value})[0] for value in values.reshape(-1, 1)]
    np.testing.assert_allclose(whole, np.concatenate(each), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", sorted(FUNCTIONS))
def test_which_are_finite_at_zero(op_type: str) -> None:
    (at_zero,) = outputs_of(a_function(op_type), {"x": np.zeros(1, np.float32)})
    assert np.isfinite(at_zero).all() == (op_type not in OF_NO_NUMBER)


@pytest.mark.parametrize("op_type", sorted(BROADCASTING))
def test_each_number_is_computed_of_those_at_its_place(op_type: str) -> None:
    model = model_of("(float[M,N] x, float[N] z) => (float[M,N] y)", f"y = {op_type}(x, z)")
    x, z = np.abs(floats(3, 5)), np.abs(floats(5, seed=1))
    (whole,) = outputs_of(model, {"x": x, "z": z})
    for place in np.ndindex(whole.shape):
        (one,) = outputs_of(model, {"x": x[place].reshape(1, 1), "z": z[place[1]].reshape(1)})
        assert whole[place] == pytest.approx(one.item(), rel=1e-5)
