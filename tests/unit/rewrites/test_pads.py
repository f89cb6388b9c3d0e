import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.rewrites.pads import concatenate_zeros, crop, drop_pads, fold_pads, spell_pads
from tests.models import constants_of, feed_of, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

CONSTANTS = {
    "w": floats(3, 4, 3, 3),
    "v": floats(3, 4, 1, 1),
    "tall": floats(3, 4, 8, 1),
    "line": floats(3, 4, 3),
    "around": np.array([0, 0, 1, 2, 0, 0, 3, 0]),
    "ends": np.array([1, 2]),
    "columns": np.array([-1]),
    "inside": np.array([0, 0, -1, 0, 0, 0, -2, -1]),
    "shorter": np.array([-1, -2]),
    "shifted": np.array([0, 0, -1, 0, 0, 0, 1, 0]),
    "nothing": np.array([0, 0, 0, 0, 0, 0, 0, 0]),
    "behind": np.array([0, 0, 0, 0, 0, 3, 0, 0]),
    "both": np.array([0, 1, 0, 0, 0, 3, 0, 0]),
    "three": np.array([0, 3]),
    "mixed": np.array([0, 1, 1, 0, 0, 3, 0, 0]),
    "cut": np.array([0, -1, 0, 0, 0, 3, 0, 0]),
    "samples": np.array([1, 0, 0, 0, 0, 0, 0, 0]),
    "channels": np.array([-3]),
    "zero": np.zeros((), np.float32),
    "one": np.ones((), np.float32),
}


def padded(call: str, *, size: str = "2,4,5,6", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => (float[] y)", call, used_in(call, CONSTANTS), opset=opset)


@pytest.mark.parametrize(
    ("call", "opset", "channels"),
    [
        ("Pad(x, behind)", 21, [3]),
        ("Pad(x, both, zero)", 21, [1, 3]),
        ("Pad(x, three, , channels)", 21, [3]),
        ('Pad<mode="constant">(x, both)', 13, [1, 3]),
        ("Pad<pads=[0,2,0,0,0,0,0,0], value=0.0>(x)", 10, [2]),
    ],
)
def test_channels_of_zeros_are_concatenated(call: str, opset: int, channels: list[int]) -> None:
    model = padded(f"y = {call}", opset=opset)
    found = rewritten(concatenate_zeros, model)
    assert op_types(found) == ["Concat"]
    assert [array.shape for array in constants_of(found).values()] == [(2, n, 5, 6) for n in channels]


@pytest.mark.parametrize(
    ("body", "size"),
    [
        ("y = Pad(x, mixed)", "2,4,5,6"),
        ("y = Pad(x, cut)", "2,4,5,6"),
        ("y = Pad(x, samples)", "2,4,5,6"),
        ("y = Pad(x, behind, one)", "2,4,5,6"),
        ('y = Pad<mode="edge">(x, behind)', "2,4,5,6"),
        ("a = Abs(behind) y = Pad(x, a)", "2,4,5,6"),
        ("y = Pad(x, behind)", "N,4,5,6"),
        ("i = Cast<to=6>(x) z = Cast<to=6>(zero) p = Pad(i, behind, z) y = Cast<to=1>(p)", "2,4,5,6"),
    ],
)
def test_what_is_no_channel_of_zeros_stays(body: str, size: str) -> None:
    model = padded(body, size=size)
    assert concatenate_zeros(model) is model


@pytest.mark.parametrize(
    ("call", "size", "opset"),
    [
        ("Pad(x, inside)", "2,4,5,6", 21),
        ("Pad(x, shorter, , columns)", "N,4,H,W", 21),
        ("Pad<pads=[0,-1,0,0,0,0,0,-2]>(x)", "2,4,5,6", 10),
    ],
)
def test_a_pad_of_negative_numbers_is_a_slice(call: str, size: str, opset: int) -> None:
    model = padded(f"y = {call}", size=size, opset=opset)
    found = crop(model)
    assert op_types(found) == ["Slice"]
    onnx.checker.check_model(found, full_check=True)
    feed = {"x": floats(2, 4, 5, 6)}
    one, other = (outputs_of(each, feed)[0] for each in (found, model))
    np.testing.assert_array_equal(one, other, strict=True)


@pytest.mark.parametrize("pads", ["shifted", "nothing", "around"])
def test_what_adds_something_too_is_no_slice(pads: str) -> None:
    model = padded(f"y = Pad(x, {pads})")
    assert crop(model) is model


def assert_folds(model: onnx.ModelProto, expected: list[str], x: npt.NDArray[np.float32]) -> None:
    found = fold_pads(model)
    assert op_types(found) == expected
    onnx.checker.check_model(found, full_check=True)
    one, other = (outputs_of(each, {"x": x})[0] for each in (found, model))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, strict=True)


@pytest.mark.parametrize(
    ("body", "size", "opset"),
    [
        ("p = Pad(x, around) y = Conv(p, w)", "2,4,5,6", 21),
        ("p = Pad(x, around, zero) y = Conv<pads=[1,0,0,1]>(p, w)", "2,4,5,6", 21),
        ("p = Pad(x, ends, , columns) y = Conv<strides=[2,2]>(p, w)", "2,4,5,6", 21),
        ('p = Pad(x, around) y = Conv<auto_pad="VALID">(p, w)', "N,4,H,W", 13),
        ("p = Pad<pads=[0,0,1,0,0,1], value=0.0>(x) y = Conv(p, line)", "2,4,5", 10),
    ],
)
def test_zeros_around_images_become_the_padding_of_a_conv(body: str, size: str, opset: int) -> None:
    x = floats(2, 4, 5) if "line" in body else floats(2, 4, 5, 6)
    assert_folds(padded(body, size=size, opset=opset), ["Conv"], x)


def test_several_convs_of_one_padded_image_are_padded_each() -> None:
    body = "p = Pad(x, around) a = Conv<strides=[3,3]>(p, w) b = Conv<strides=[3,3]>(p, w) y = Add(a, b)"
    assert_folds(padded(body), ["Conv", "Conv", "Add"], floats(2, 4, 5, 6))


@settings(max_examples=40, deadline=None)
@given(
    pads=st.lists(st.integers(0, 3), min_size=4, max_size=4), own=st.lists(st.integers(0, 2), min_size=4, max_size=4)
)
def test_both_paddings_add_up(pads: list[int], own: list[int]) -> None:
    constants = {"w": floats(3, 4, 3, 3), "pads": np.array([0, 0, *pads[:2], 0, 0, *pads[2:]])}
    body = f"p = Pad(x, pads) y = Conv<pads={own}>(p, w)"
    model = model_of("(float[1,4,5,6] x) => (float[] y)", body, constants)
    assert_folds(model, ["Conv"] if any(pads) else ["Pad", "Conv"], floats(1, 4, 5, 6))


@pytest.mark.parametrize(
    "body",
    [
        "p = Pad(x, around, one) y = Conv(p, w)",
        'p = Pad<mode="edge">(x, around) y = Conv(p, w)',
        "p = Pad(x, shifted) y = Conv(p, w)",
        "p = Pad(x, mixed) s = Relu(w) y = Conv(s, p)",
        'p = Pad(x, around) y = Conv<auto_pad="SAME_UPPER">(p, w)',
        "p = Pad(x, around) r = Relu(p) c = Conv(p, v) y = Concat<axis=1>(r, c)",
        "p = Pad(x, around) y = Conv(p, tall)",
        "p = Pad(x, around) y = MaxPool<kernel_shape=[2,2]>(p)",
    ],
)
def test_other_pads_around_images_stay(body: str) -> None:
    model = padded(body)
    assert fold_pads(model) is model


@pytest.mark.parametrize(
    "call", ["Pad(x, ends, , columns)", 'Pad<mode="reflect">(x, ends, , columns)', "Pad(x, ends, one, columns)"]
)
@pytest.mark.parametrize("size", ["2,4,5,6", "N,4,H,W"])
def test_a_pad_that_names_axes_says_the_same_of_all(call: str, size: str) -> None:
    model = padded(f"y = {call}", size=size)
    found = spell_pads(model)
    assert op_types(found) == ["Pad"]
    assert len(found.graph.node[0].input) == 3
    assert constants_of(found)["y_pads"].tolist() == [0, 0, 0, 1, 0, 0, 0, 2]
    onnx.checker.check_model(found, full_check=True)
    feed = {"x": floats(2, 4, 5, 6)}
    np.testing.assert_array_equal(outputs_of(found, feed)[0], outputs_of(model, feed)[0])


@pytest.mark.parametrize("call", ["Pad(x, around)", "Pad(x, ends, , a)", "Relu(x)"])
def test_a_pad_of_all_axes_or_of_computed_ones_stays(call: str) -> None:
    model = padded(f"a = Abs(columns) y = {call}")
    assert spell_pads(model) is model


@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_a_pad_of_nothing_is_left_out(mode: str) -> None:
    body = f'p = Pad<mode = "{mode}">(x, none) a = Relu(p) q = Pad<mode = "{mode}">(p, none) y = Add(a, q)'
    model = model_of("(float[1,3,4,4] x) => (float[] y)", body, {"none": np.zeros(8, np.int64)})
    found = drop_pads(model)
    assert op_types(found) == ["Relu", "Add"]
    np.testing.assert_array_equal(outputs_of(found, feed_of(model))[0], outputs_of(model, feed_of(model))[0])


def test_a_pad_of_something_or_that_writes_an_output_stays() -> None:
    constants = {"none": np.zeros(8, np.int64), "some": np.array([0, 0, 1, 0, 0, 0, 0, 0])}
    for body in ("r = Relu(x) y = Pad(r, none)", "p = Pad(x, some) y = Relu(p)"):
        model = model_of("(float[1,3,4,4] x) => (float[] y)", body, constants)
        assert drop_pads(model) is model
