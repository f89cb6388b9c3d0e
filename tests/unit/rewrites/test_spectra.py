"""Short-time Fourier transforms as convolutions."""

import numpy as np
import onnx
import pytest

from autoquant.rewrites.spectra import lower_stft
from tests.models import Array, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

CONSTANTS: dict[str, Array] = {
    "window": np.hanning(12).astype(np.float32),
    "eight": floats(8),
    "square": floats(12, 12),
    "step": np.array(5),
    "twelve": np.array(12),
    "eleven": np.array(11),
    "as_vector": np.array([12]),
}


def a_model(body: str, sizes: str = "2,40,1", dtype: str = "float", **more: Array) -> onnx.ModelProto:
    return model_of(f"({dtype}[{sizes}] x) => ({dtype}[] y)", body, used_in(body, {**CONSTANTS, **more}))


@pytest.mark.parametrize("sizes", ["2,40,1", "1,12,1", "3,41,1"])
@pytest.mark.parametrize(
    "body",
    [
        "y = STFT<onesided=1>(x, step, window, twelve)",
        "y = STFT<onesided=0>(x, step, window, twelve)",
        "y = STFT<onesided=1>(x, step, window)",
        "y = STFT<onesided=1>(x, step, , twelve)",
        "y = STFT<onesided=1>(x, step, eight)",
        "y = STFT<onesided=1>(x, step, , eleven)",
    ],
    ids=["half", "whole", "no length", "no window", "power of two", "odd"],
)
def test_a_spectrum_stays_as_it_is(body: str, sizes: str) -> None:
    model = a_model(body, sizes)
    found = rewritten(lower_stft, model, atol=2e-5)
    assert op_types(found) == ["Reshape", "Conv", "Reshape", "Transpose"]


def test_other_operators_stay_beside_it() -> None:
    model = a_model("p = MatMul(square, x) y = STFT<onesided=1>(p, step, window)", "1,12,1")
    found = rewritten(lower_stft, model, atol=2e-5)
    assert op_types(found) == ["MatMul", "Reshape", "Conv", "Reshape", "Transpose"]


@pytest.mark.parametrize(
    ("body", "sizes", "dtype"),
    [
        ("w = Abs(x) v = Reshape(w, as_vector) y = STFT<onesided=1>(x, step, v, twelve)", "1,12,1", "float"),
        ("y = STFT<onesided=0>(x, step, window, twelve)", "2,40,2", "float"),
        ("y = STFT<onesided=1>(x, step, window, twelve)", "2,n,1", "float"),
        ("y = STFT<onesided=1>(x, step, window, twelve)", "0,40,1", "float"),
        ("y = STFT<onesided=1>(x, step, , twelve)", "2,40,1", "double"),
        ("y = STFT<onesided=1>(x, step, long)", "1,2050,1", "float"),
    ],
    ids=["window of the signal", "complex", "any length", "no signals", "double", "long"],
)
def test_others_stay(body: str, sizes: str, dtype: str) -> None:
    model = a_model(body, sizes, dtype, long=np.ones(2048, np.float32))
    assert lower_stft(model) is model
