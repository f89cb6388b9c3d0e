"""Convolutions of single places before what enlarges images."""

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from autoquant.rewrites.enlarged import convolve_before_enlarging
from tests.models import Array, constants_of, floats, model_of, op_types, used_in
from tests.rewriting import rewritten

POSITIONS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
CONSTANTS: dict[str, Array] = {
    "n": np.array([1, 64, 8, 8]),
    "few": floats(16, 32, 1, 1, scale=0.1),
    "five": np.array([1, 1, 5, 5]),
    "one": floats(1, 1, 1, 1),
    "same": np.array([1, 64, 8, 8]),
    "places": np.array([8, 8]),
    "factors": np.array([1, 1, 2, 2], np.float32),
    "ones": np.array([1, 1, 1, 1.01], np.float32),
    "channels": np.array([1, 1.01, 2, 2], np.float32),
    "none": np.zeros(0, np.float32),
    "region": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32),
    "w": floats(64, 64, 1, 1, scale=0.1),
    "w2": floats(64, 128, 1, 1, scale=0.1),
    "w3": floats(64, 192, 1, 1, scale=0.1),
    "many": floats(256, 64, 1, 1, scale=0.1),
    "more": floats(80, 64, 1, 1, scale=0.1),
    "k3": floats(64, 64, 3, 3, scale=0.1),
    "kd": floats(64, 1, 1, 1),
    "b": floats(64),
}
ONE = "float[1,64,4,4] a"
TWO = f"{ONE}, float[1,64,8,8] c"
THREE = f"{ONE}, float[1,64,2,2] d, float[1,64,8,8] c"
UP = 'r = Resize<mode="linear">(a, , , n)'


def a_model(inputs: str, body: str) -> onnx.ModelProto:
    return model_of(f"({inputs}) => (float[] y)", body, used_in(body, CONSTANTS))


def left_of(inputs: str, body: str) -> list[str]:
    return op_types(rewritten(convolve_before_enlarging, a_model(inputs, body), rtol=1e-4, atol=1e-4))


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        (ONE, f"{UP} y = Conv(r, w, b)", ["Conv", "Resize"]),
        (ONE, f"{UP} y = Conv<strides=[1,1], pads=[0,0,0,0], group=1, kernel_shape=[1,1]>(r, w)", ["Conv", "Resize"]),
        (ONE, "r = Resize(a, , factors) y = Conv(r, w, b)", ["Conv", "Resize"]),
        (ONE, 'r = Resize<mode="cubic">(a, none, none, n) y = Conv(r, w, b)', ["Conv", "Resize"]),
        (TWO, f"{UP} j = Concat<axis=1>(r, c) y = Conv(j, w2, b)", ["Conv", "Resize", "Conv", "Add"]),
        (
            TWO,
            f"{UP} j = Concat<axis=-3>(c, r) s = Conv(j, w2, b) y = Relu(s)",
            ["Conv", "Resize", "Conv", "Add", "Relu"],
        ),
        (
            THREE,
            f'{UP} s = Resize<mode="linear">(d, , , n) j = Concat<axis=1>(s, r, c) y = Conv(j, w3, b)',
            ["Conv", "Resize", "Conv", "Resize", "Add", "Conv", "Add"],
        ),
        (
            f"{TWO}, float[1,64,4,4] d",
            f'{UP} s = Resize<mode="linear">(d, , , same) j = Concat<axis=1>(r, c, s) y = Conv(j, w3, b)',
            ["Concat", "Conv", "Resize", "Conv", "Add"],
        ),
        (
            f"{TWO}, float[1,64,8,8] d",
            f'{UP} s = Resize<mode="linear">(d, , , n) j = Concat<axis=1>(r, c, s) y = Conv(j, w3, b)',
            ["Conv", "Resize", "Concat", "Conv", "Add"],
        ),
        (
            f"{ONE}, float[1,64,2,2] c",
            f'{UP} s = Resize<mode="linear">(c, , , n) j = Concat<axis=1>(r, s) y = Conv(j, w2, b)',
            ["Conv", "Resize", "Conv", "Resize", "Add"],
        ),
    ],
    ids=[
        *("one", "said", "nearest", "cubic", "whole", "relu", "three", "alike", "idle", "all enlarged"),
    ],
)
def test_a_convolution_comes_before_what_enlarges(inputs: str, body: str, expected: list[str]) -> None:
    assert left_of(inputs, body) == expected


@pytest.mark.parametrize(
    ("inputs", "body"),
    [
        (ONE, f"{UP} y = Conv(r, k3)"),
        (ONE, f"{UP} y = Conv<group=64>(r, kd)"),
        ("float[1,64,2,2] a", f"{UP} y = Conv<strides=[2,2]>(r, w)"),
        (ONE, f"{UP} y = Conv<pads=[1,1,1,1]>(r, w)"),
        (f"{ONE}, float[64,64,1,1] v", f"{UP} y = Conv(r, v)"),
        (ONE, f"{UP} y = Conv(r, many)"),
        (ONE, 'r = Resize<mode="cubic">(a, , , n) y = Conv(r, more)'),
        (ONE, f"{UP} z = Relu(r) y = Conv(r, w)"),
        (ONE, 'r = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(a, region, , n)'
              " y = Conv(r, w)"),
        (ONE, 'r = Resize<mode="linear", antialias=1>(a, , , n) y = Conv(r, w)'),
        ("float[1,1,4,4] a", 'r = Resize<keep_aspect_ratio_policy="not_smaller">(a, , , five) y = Conv(r, one)'),
        (ONE, 'r = Resize(a, , channels) y = Conv(r, w)'),
        (ONE, 'r = Resize<mode="linear", axes=[2,3]>(a, , , places) y = Conv(r, w)'),
        ("float[1,64,16,16] a", f"{UP} y = Conv(r, w)"),
        ("float[1,64,8,8] a", f"{UP} y = Conv(r, w)"),
        ("float[1,64,K,4] a", "r = Resize(a, , factors) y = Conv(r, w)"),
        ("float[1,16,4,4] a, float[1,16,8,8] c", "r = Resize(a, , factors) j = Concat<axis=1>(r, c) y = Conv(j, few)"),
        (f"{ONE}, float[1,0,8,8] c", f"{UP} j = Concat<axis=1>(r, c) y = Conv(j, w)"),
        (TWO, f"{UP} j = Concat<axis=1>(r, c) y = Conv(j, w2) z = Relu(j)"),
        (f"{ONE}, float[1,64,8,8] c", f"{UP} j = Concat<axis=2>(r, c) y = Conv(j, w)"),
        ("float[1,64,8,8] a", "r = Relu(a) y = Conv(r, w)"),
    ],
    ids=[
        *("windows", "groups", "strides", "pads", "computed", "many channels", "cubic", "read elsewhere", "outside"),
        *("antialias", "policy", "channels", "axes", "smaller", "idle", "unknown", "few channels"),
        *("no channels", "joined is read", "places joined", "no Resize"),
    ],
)  # fmt: skip
def test_others_stay_as_they_are(inputs: str, body: str) -> None:
    model = a_model(inputs, body)
    assert convolve_before_enlarging(model) is model


def test_a_resize_whose_sizes_are_computed_stays() -> None:
    model = a_model(f"{ONE}, int64[4] at", "r = Resize(a, , , at) y = Conv(r, w)")
    for value in (*model.graph.value_info, *model.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, (1, 64, 8, 8)))
    assert convolve_before_enlarging(model) is model


def test_a_resize_that_hardly_shifts_places_is_not_taken_for_none() -> None:
    body = "r = Resize(a, , ones) s = Resize(c, , factors) j = Concat<axis=1>(r, s) y = Conv(j, w2)"
    assert left_of("float[1,64,8,8] a, float[1,64,4,4] c", body).count("Resize") == 2


def test_one_that_shifts_places_of_an_image_of_the_same_size_stays() -> None:
    shifted = 's = Resize<coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="ceil">(c, , , n)'
    assert left_of(TWO, f"{UP} {shifted} j = Concat<axis=1>(r, s) y = Conv(j, w2)").count("Resize") == 2


def test_what_is_enlarged_for_others_too_has_to_pay_for_itself() -> None:
    body = f"{UP} j = Concat<axis=1>(r, c) s = Conv(j, w2) z = Relu(r) y = Concat<axis=1>(z, s)"
    assert left_of(TWO, body) == ["Resize", "Concat", "Conv", "Relu", "Concat"]
    wide = used_in(body, CONSTANTS | {"w2": floats(64, 512, 1, 1, scale=0.1), "n": np.array([1, 256, 8, 8])})
    model = model_of("(float[1,256,4,4] a, float[1,256,8,8] c) => (float[] y)", body, wide)
    found = rewritten(convolve_before_enlarging, model, rtol=1e-4, atol=1e-4)
    assert op_types(found) == ["Resize", "Conv", "Resize", "Conv", "Add", "Relu", "Concat"]


def test_the_bias_is_added_once() -> None:
    found = convolve_before_enlarging(a_model(TWO, f"{UP} j = Concat<axis=1>(r, c) y = Conv(j, w2, b)"))
    biased = [node for node in found.graph.node if "b" in node.input]
    assert [node.op_type for node in biased] == ["Conv"]
    assert "w2" not in constants_of(found)


@st.composite
def resizes(draw: st.DrawFn) -> tuple[str, tuple[int, int], int]:
    """Attributes, how many times as large an image becomes, and its channels."""
    factors = draw(st.sampled_from([(1, 1), (2, 2), (4, 2), (1, 4), (4, 4)]))
    mode = draw(st.sampled_from(["linear", "nearest", "cubic"]))
    position = draw(st.sampled_from([*POSITIONS, *(["tf_half_pixel_for_nn"] if mode == "nearest" else [])]))
    rounding = draw(st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"]))
    inside = f", exclude_outside={draw(st.integers(0, 1))}" if mode == "cubic" else ""
    said = f'mode="{mode}", coordinate_transformation_mode="{position}", nearest_mode="{rounding}"{inside}'
    return said, factors, draw(st.sampled_from([40, 64]))


@given(
    parts=st.lists(resizes(), min_size=1, max_size=4),
    size=st.tuples(st.sampled_from([4, 8]), st.sampled_from([4, 12])),
    n_written=st.sampled_from([3, 32]),
    has_bias=st.booleans(),
    has_sizes=st.booleans(),
)
@settings(deadline=None, max_examples=80)
def test_outputs_stay_the_same(
    parts: list[tuple[str, tuple[int, int], int]],
    size: tuple[int, int],
    n_written: int,
    has_bias: bool,
    has_sizes: bool,
) -> None:
    inputs, nodes, constants = list[str](), list[str](), dict[str, Array | float]()
    for i, (said, factors, n_channels) in enumerate(parts):
        before = [n // factor for n, factor in zip(size, factors, strict=True)]
        inputs.append(f"float[2,{n_channels},{before[0]},{before[1]}] x{i}")
        nodes.append(f"r{i} = Resize<{said}>(x{i}, , {', n' if has_sizes else 'n'}{i})")
        constants[f"n{i}"] = np.array([2, n_channels, *size]) if has_sizes else np.array([1, 1, *factors], np.float32)
    joined = ", ".join(f"r{i}" for i in range(len(parts)))
    body = f"{' '.join(nodes)} j = Concat<axis=1>({joined}) y = Conv(j, w{', b' if has_bias else ''})"
    constants["w"] = floats(n_written, sum(part[2] for part in parts), 1, 1, scale=0.1)
    constants |= {"b": floats(n_written)} if has_bias else {}
    model = model_of(f"({', '.join(inputs)}) => (float[] y)", body, constants)
    found = rewritten(convolve_before_enlarging, model, rtol=1e-4, atol=1e-4)
    is_enlarged = any(max(factors) > 1 for _, factors, _ in parts)
    assert is_enlarged or found is model
    if is_enlarged and n_written == 3:
        assert found is not model
