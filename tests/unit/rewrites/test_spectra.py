"""Short-time Fourier transforms as convolutions, others as products."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.graph.preprocess import prepare
from autoquant.rewrites.spectra import lower_dft, lower_stft
from tests.models import Array, floats, model_of, op_types, outputs_of, saved, used_in
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


PRODUCT = ["Reshape", "MatMul", "Reshape"]
ALONG_ANOTHER_AXIS = ["Transpose", *PRODUCT, "Transpose"]
DFT_CONSTANTS: dict[str, Array] = {
    "last": np.array(-2),
    "parts": np.array(3),
    "beyond": np.array(-5),
    "none": np.array(0),
    "four": np.array(4),
    "six": np.array(6),
    "ten": np.array(10),
    "large": np.array(4096),
    "flags": np.zeros((2, 3, 6, 1), np.float32),
    "ones": np.ones((2, 3, 6, 1), np.float32),
}


def a_transform(body: str, sizes: str, outputs: str = "float[] y", *, opset: int = 20) -> onnx.ModelProto:
    return model_of(f"(float[{sizes}] x) => ({outputs})", body, used_in(body, DFT_CONSTANTS), opset=opset)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), opset=st.sampled_from([17, 20]), inverse=st.integers(0, 1), onesided=st.integers(0, 1))
def test_a_product_is_what_the_transform_is(data: st.DataObject, opset: int, inverse: int, onesided: int) -> None:
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    axis = data.draw(st.integers(0, len(sizes) - 1))
    n = sizes[axis]
    halves = [length for length in (2 * n - 2, 2 * n - 1, 0) if length or n > 1]
    length = data.draw(st.sampled_from(halves) if inverse and onesided else st.integers(0, 24))  # 0: it is left out
    n_parts = 1 + inverse if onesided else data.draw(st.integers(1, 2))
    spelled = data.draw(st.sampled_from([axis, axis - len(sizes) - 1]))
    attributes = f"inverse={inverse}, onesided={onesided}" + (f", axis={spelled}" if opset < 20 else "")
    read = f"x, {'length' if length else ''}" + (", axis" if opset >= 20 else "")
    body = f"y = DFT<{attributes}>({read.removesuffix(', ')})"
    model = model_of(
        f"(float[{','.join(map(str, [*sizes, n_parts]))}] x) => (float[] y)",
        body,
        used_in(read, {"length": np.array(length), "axis": np.array(spelled)}),
        opset=opset,
    )
    found = rewritten(lower_dft, model, atol=1e-3)
    assert op_types(found) == (PRODUCT if axis == len(sizes) - 1 else ALONG_ANOTHER_AXIS)


@pytest.mark.parametrize(
    ("body", "opset", "axis"), [("y = DFT(x)", 17, 1), ("y = DFT(x)", 20, 2), ("y = DFT(x, four)", 20, 2)]
)
def test_an_axis_that_is_left_out_is_the_opsets(body: str, opset: int, axis: int) -> None:
    found = rewritten(lower_dft, a_transform(body, "2,5,6,2", opset=opset), atol=1e-5)
    assert op_types(found) == (PRODUCT if axis == 2 else ALONG_ANOTHER_AXIS)


@pytest.mark.parametrize("body", ["y = DFT<onesided=1>(x, , last)", "y = DFT<onesided=1>(x, ten, last)"])
@pytest.mark.parametrize("shape", [(3, 4, 6, 1), (0, 4, 6, 1)])
def test_other_dimensions_may_be_open(body: str, shape: tuple[int, ...]) -> None:
    found = rewritten(lower_dft, a_transform(body, "n,m,6,1"), {"x": floats(*shape)}, atol=1e-5)
    assert op_types(found) == PRODUCT


def test_it_is_nearer_to_numbers_of_64_bits_than_the_transform() -> None:
    model = model_of("(float[4,400,1] x) => (float[] y)", "y = DFT<onesided=1, axis=1>(x)", opset=17)
    x = floats(4, 400, 1)
    spectrum = np.fft.rfft(x[..., 0].astype(np.float64))
    exact = np.stack([spectrum.real, spectrum.imag], -1)
    was, now = (np.abs(outputs_of(m, {"x": x})[0] - exact).max() for m in (model, lower_dft(model)))
    assert now < 2e-4 < was


@pytest.mark.parametrize(
    ("body", "outputs", "n_rows", "expected"),
    [
        ("c = Concat<axis=3>(x, flags) y = DFT(c, , last)", "float[] y", 6, PRODUCT),
        ("c = Concat<axis=-1>(x, flags) y = DFT<inverse=1>(c, four, last)", "float[] y", 6, PRODUCT),
        ("c = Concat<axis=3>(x, flags) y = DFT(c, , last)", "float[] y, float[] c", 12, ["Concat", *PRODUCT]),
        ("c = Concat<axis=3>(x, ones) y = DFT(c, , last)", "float[] y", 12, ["Concat", *PRODUCT]),
        ("c = Concat<axis=3>(flags, x) y = DFT(c, , last)", "float[] y", 12, ["Concat", *PRODUCT]),
        ("c = Concat<axis=0>(x, flags) y = DFT(c, , last)", "float[] y", 6, ["Concat", *PRODUCT]),
        ("c = Concat<axis=3>(x) y = DFT(c, , last)", "float[] y", 6, ["Concat", *PRODUCT]),
        ("c = Sub(x, flags) y = DFT(c, , last)", "float[] y", 6, ["Sub", *PRODUCT]),
        (
            "c = Concat<axis=3>(x, flags) y = DFT<onesided=1, inverse=1>(c, ten, last)",
            "float[] y",
            12,
            ["Concat", *PRODUCT],
        ),
    ],
    ids=["zeros", "inverse", "read", "ones", "before", "batch", "alone", "difference", "half"],
)
def test_zeros_behind_real_numbers_are_left_out(body: str, outputs: str, n_rows: int, expected: list[str]) -> None:
    model = a_transform(body, "2,3,6,1", outputs)
    found = rewritten(lower_dft, model, atol=1e-5)
    assert op_types(found) == expected
    weight = next(tensor for tensor in found.graph.initializer if tensor.name.startswith("y_weight"))
    assert weight.dims[0] == n_rows


def test_no_zeros_behind_complex_numbers_leave_them_as_they_are() -> None:
    body = "c = Concat<axis=3>(x, nothing) y = DFT(c, , last)"
    constants = {**DFT_CONSTANTS, "nothing": np.zeros((2, 3, 6, 0), np.float32)}
    model = model_of("(float[2,3,6,2] x) => (float[] y)", body, used_in(body, constants), opset=20)
    assert op_types(rewritten(lower_dft, model, atol=1e-5)) == ["Concat", *PRODUCT]


def test_zeros_tell_how_long_a_line_of_real_numbers_is() -> None:
    model = a_transform("c = Concat<axis=3>(x, flags) y = DFT(c, , last)", "n,m,k,1")
    assert op_types(rewritten(lower_dft, model, {"x": floats(2, 3, 6, 1)}, atol=1e-5)) == PRODUCT


@pytest.mark.parametrize(
    ("body", "sizes", "opset"),
    [
        ("y = DFT(x, , last)", "2,n,1", 20),
        ("y = DFT(x, length, last)", "2,6,1", 20),
        ("y = DFT(x, four, axis)", "2,6,1", 20),
        ("y = DFT<onesided=1, inverse=1>(x, six, last)", "2,6,2", 20),
        ("y = DFT<onesided=1, inverse=1>(x, six, last)", "2,3,2", 20),
        ("y = DFT<onesided=1, inverse=1>(x, , last)", "2,1,2", 20),
        ("y = DFT<onesided=1>(x, , last)", "2,6,2", 20),
        ("y = DFT<onesided=1, inverse=1>(x, six, last)", "2,4,1", 20),
        ("y = DFT(x, none, last)", "2,6,1", 20),
        ("y = DFT(x, , last)", "6,1", 20),
        ("y = DFT(x, , parts)", "2,3,6,1", 20),
        ("y = DFT(x, , beyond)", "2,3,6,1", 20),
        ("y = DFT(x, , last)", "2,6,3", 20),
        ("y = DFT(x, , last)", "2,6,k", 20),
        ("y = DFT<axis=1>(x)", "2,512,2", 17),
        ("y = DFT<axis=1>(x)", "2,513,2", 17),
        ("y = DFT<axis=1, onesided=1>(x)", "2,1024,1", 17),
        ("y = DFT<axis=1, onesided=1>(x, large)", "2,128,1", 17),
        ("y = DFT<axis=1>(x)", "1,128,1,2", 17),
    ],
    ids=[
        *(
            "any length",
            "any dft length",
            "any axis",
            "spectrum too long",
            "spectrum too short",
            "no signal",
            "half of complex",
        ),
        *("half spectrum of real", "nothing", "no lines", "axis of parts", "axis beyond", "three parts", "any parts"),
        *("long power of two", "long", "long and half", "long and padded", "one line"),
    ],
)
def test_other_transforms_stay(body: str, sizes: str, opset: int) -> None:
    signature = f"(float[{sizes}] x, int64 length, int64 axis) => (float[] y)"
    model = model_of(signature, body, used_in(body, DFT_CONSTANTS), opset=opset)
    assert lower_dft(model) is model


@pytest.mark.parametrize(
    ("sizes", "attributes"),
    [
        ("2,512,1", ", onesided=1"),
        ("2,256,2", ""),
        ("2,500,2", ""),
        ("2,1000,1", ", onesided=1"),
        ("1,64,2", ""),
        ("1,100,2", ""),
    ],
)
def test_these_are_not_too_long(sizes: str, attributes: str) -> None:
    found = rewritten(lower_dft, a_transform(f"y = DFT<axis=1{attributes}>(x)", sizes, opset=17), atol=5e-2)
    assert op_types(found) == PRODUCT


@pytest.mark.parametrize("dtype", ["double", "float16"])
def test_other_types_stay(dtype: str) -> None:
    model = model_of(f"({dtype}[2,6,1] x) => ({dtype}[] y)", "y = DFT<axis=1>(x)", opset=17)
    assert lower_dft(model) is model


def test_a_network_of_transforms_is_prepared_without_any(tmp_path: Path) -> None:
    body = """c = Concat<axis=3>(x, flags) s = DFT(c, , last) t = DFT(s, , one) r = Gather<axis=3>(t, zero)
              h = MatMul(r, w) y = Relu(h)"""
    constants = {"one": np.array(1), "zero": np.array(0), "w": floats(6, 6)}
    model = model_of("(float[2,3,6,1] x) => (float[] y)", body, used_in(body, {**DFT_CONSTANTS, **constants}), opset=20)
    prepared = prepare(saved(model, tmp_path / "model.onnx"), [{"x": floats(2, 3, 6, 1, seed=i)} for i in range(2)])
    assert "DFT" not in op_types(prepared.graph.model)
    assert prepared.difference_db > 80
