import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.crops import crop_windows
from tests.models import floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

FAR = np.iinfo(np.int64).max
CONSTANTS = {
    "w": floats(4, 3, 3),
    "t": floats(3, 4, 6),
    "short": floats(3, 4, 2),
    "images": floats(4, 3, 3, 3),
    "b": floats(4),
    "zero": np.array([0]),
    "one": np.array([1]),
    "two": np.array([2]),
    "channels_too": np.array([1, 2]),
    "both": np.array([2, 3]),
    "ones": np.array([1, 1]),
    "minus": np.array([-1]),
    "minus_two": np.array([-2]),
    "minus_four": np.array([-4]),
    "minus_ones": np.array([-1, -1]),
    "end": np.array([FAR]),
    "seven": np.array([7]),
}
CAUSAL = "c = Conv<pads=[4,4], dilations=[2]>(x, w, b)"


def model_with(body: str, *, signature: str = "(float[2,3,12] x) => (float[] y)") -> onnx.ModelProto:
    return model_of(signature, body, used_in(body, CONSTANTS))


def cropped(model: onnx.ModelProto) -> onnx.ModelProto:
    return rewritten(crop_windows, model, rtol=1e-5, atol=1e-6)


def pads_of(model: onnx.ModelProto) -> list[int]:
    (conv,) = model.graph.node
    (pads,) = [list(attribute.ints) for attribute in conv.attribute if attribute.name == "pads"]
    return pads


@pytest.mark.parametrize(
    ("body", "pads"),
    [
        (f"{CAUSAL} y = Slice(c, zero, minus_four, two)", [4, 0]),
        (f"{CAUSAL} y = Slice(c, one, minus, minus)", [3, 3]),
        (f"{CAUSAL} y = Slice(c, two, end, two, one)", [2, 4]),
        ("c = Conv<pads=[2,2]>(x, w) y = Slice(c, zero, minus_two, two)", [2, 0]),
        ("c = ConvTranspose<strides=[3]>(x, t) y = Slice(c, one, minus_two, two)", [1, 2]),
        ("c = ConvTranspose<strides=[3], pads=[1,0], output_padding=[1]>(x, t) y = Slice(c, one, end, two)", [2, 0]),
        ('c = ConvTranspose<strides=[3], auto_pad="VALID">(x, t) y = Slice(c, zero, minus, two)', [0, 1]),
    ],
)
def test_what_is_cut_off_is_no_longer_computed(body: str, pads: list[int]) -> None:
    found = cropped(model_with(body))
    assert pads_of(found) == pads


@pytest.mark.parametrize(
    ("conv", "pick", "pads"),
    [
        ("Conv<pads=[1,2,2,1]>", "ones, minus_ones, both", [0, 1, 1, 0]),
        ("Conv<pads=[1,2,2,1], strides=[1,2]>", "one, minus, two", [0, 2, 1, 1]),
        ("Conv<pads=[1,2,2,1], strides=[2,1]>", "one, minus, minus", [1, 1, 2, 0]),
    ],
)
def test_each_axis_of_images_may_be_cut(conv: str, pick: str, pads: list[int]) -> None:
    model = model_with(f"c = {conv}(x, images) y = Slice(c, {pick})", signature="(float[1,3,6,5] x) => (float[] y)")
    assert pads_of(cropped(model)) == pads


@pytest.mark.parametrize("n", [1, 5])
def test_lines_may_be_of_any_length(n: int) -> None:
    model = model_with(f"{CAUSAL} y = Slice(c, zero, minus_four, two)", signature="(float[1,3,n] x) => (float[] y)")
    found, feed = crop_windows(model), {"x": floats(1, 3, n)}
    assert pads_of(found) == [4, 0]
    np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "body",
    [
        f"{CAUSAL} y = Relu(c)",
        f"{CAUSAL} y = Slice(c, zero, end, two)",
        f"{CAUSAL} y = Slice(c, zero, minus, one)",
        f"{CAUSAL} y = Slice(c, zero, minus_four, two, two)",
        f"{CAUSAL} y = Slice(c, zero, k, two)",
        f"{CAUSAL} y = Slice(c, ones, minus_ones, channels_too)",
        f"{CAUSAL} y = Slice(c, seven, end, two)",
        f"{CAUSAL} s = Slice(c, zero, minus_four, two) r = ReduceMax(c) y = Add(s, r)",
        f"{CAUSAL} y = Slice(c, two, one, two)",
        "c = Conv<pads=[2,2], strides=[2]>(x, w) y = Slice(c, zero, minus, two)",
        'c = Conv<auto_pad="SAME_UPPER">(x, w) y = Slice(c, zero, minus, two)',
        "c = ConvTranspose(x, t) y = Slice(c, seven, end, two)",
        "c = ConvTranspose<output_shape=[16]>(x, t) y = Slice(c, zero, minus, two)",
        "y = Slice(x, zero, minus, two)",
    ],
)
def test_what_no_padding_does_stays(body: str) -> None:
    model = model_with(body, signature="(float[2,3,12] x, int64[1] k) => (float[] y)")
    assert crop_windows(model) is model


@pytest.mark.parametrize(
    "body",
    [
        f"{CAUSAL} y = Slice(c, zero, seven, two)",
        f"{CAUSAL} y = Slice(c, minus_two, end, two)",
        "c = Conv<pads=[2,1]>(x, w) y = Slice(c, zero, minus_two, two)",
        "c = Conv<pads=[1,1]>(x, w) y = Slice(c, zero, minus, two)",
        "c = ConvTranspose<strides=[3]>(x, short) y = Slice(c, one, minus, two)",
    ],
)
def test_of_lines_of_any_length_some_are_too_short(body: str) -> None:
    model = model_with(body, signature="(float[1,3,n] x) => (float[] y)")
    assert crop_windows(model) is model


def test_an_output_of_the_model_stays_whole() -> None:
    model = model_with(
        f"{CAUSAL} y = Slice(c, zero, minus_four, two)", signature="(float[2,3,12] x) => (float[] y, float[] c)"
    )
    assert crop_windows(model) is model


@settings(max_examples=40, deadline=None)
@given(kernel=st.integers(1, 4), dilation=st.integers(1, 3), size=st.integers(1, 9), data=st.data())
def test_any_cut_gives_the_same_values(kernel: int, dilation: int, size: int, data: st.DataObject) -> None:
    pads = [data.draw(st.integers(0, 5), label="pad") for _ in range(2)]
    n = size + sum(pads) - dilation * (kernel - 1)
    if n < 1:
        return
    start, stop = sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True)))
    model = model_of(
        f"(float[1,2,{size}] x) => (float[] y)",
        f"c = Conv<pads={pads}, dilations=[{dilation}]>(x, w) y = Slice(c, a, b, axis)",
        {"w": floats(3, 2, kernel), "a": np.array([start]), "b": np.array([stop]), "axis": np.array([2])},
    )
    fits = (start, stop) != (0, n) and start <= pads[0] and n - stop <= pads[1]
    assert op_types(cropped(model)) == (["Conv"] if fits else ["Conv", "Slice"])
