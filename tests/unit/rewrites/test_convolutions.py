from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from autoquant.rewrites.convolutions import (
    interleave_depth,
    lower_affine,
    lower_conv_transpose,
    pool_means,
    transpose_upsampled,
)
from tests.models import constants_of, feed_of, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

CONSTANTS = {
    "w2": floats(4, 3, 2, 2),
    "w3": floats(4, 3, 3, 3),
    "many3": floats(4, 8, 3, 3),
    "w4": floats(4, 3, 4, 4),
    "k3": floats(3, 4, 3, 3),
    "k1": floats(3, 4, 1, 1),
    "each3": floats(4, 1, 3, 3),
    "double": np.array([1, 1, 2, 2], np.float32),
    "triple": np.array([1, 1, 3, 3], np.float32),
    "more": np.array([1, 1, 2.1, 2], np.float32),
    "fourfold": np.array([1, 1, 4, 4], np.float32),
    "ninefold": np.array([1, 1, 9, 9], np.float32),
    "unlike": np.array([1, 1, 2, 3], np.float32),
    "more3": floats(5, 4, 3, 3),
    "sizes": np.array([2, 4, 10, 12]),
    "line2": floats(4, 3, 2),
    "line4": floats(4, 3, 4),
    "b": floats(3),
    "scale": floats(4),
    "bands": np.array([2, 4, 5, 6]),
    "whole": np.array([2, 2, 10, 6]),
    "shift": floats(4, seed=1),
    "mean": floats(4, seed=2),
    "variance": floats(4) ** 2,
    "each": floats(4, 1, 1, seed=3),
    "other": floats(1, 4, 1, 1, seed=4),
    "number": floats(1),
    "places": np.array([-1, 2]),
    "last": np.array([-1]),
    "first": np.array([1]),
    "line": floats(4, 1),
}
STRIDED = "strides=[2,2]"
LINE = ["Reshape", "Transpose", "Reshape"]
IMAGE = ["Reshape", "Transpose", *LINE]


def model_with(body: str, *, size: str = "2,4,5,6", outputs: str = "float[] y", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[{size}] x) => ({outputs})", body, used_in(body, CONSTANTS), opset=opset)


def assert_becomes(
    rewrite: Callable[[onnx.ModelProto], onnx.ModelProto], model: onnx.ModelProto, expected: list[str]
) -> onnx.ModelProto:
    found = rewritten(rewrite, model, rtol=1e-4, atol=1e-5)
    assert op_types(found) == expected
    return found


@pytest.mark.parametrize(
    ("attributes", "weight", "behind"),
    [
        (STRIDED, "w2, b", IMAGE),
        (STRIDED, "w2", IMAGE),
        (f"{STRIDED}, pads=[2,2,2,2]", "w4, b", IMAGE),
        (f"{STRIDED}, pads=[1,1,1,1]", "w4, b", [*IMAGE, "Slice"]),
        (f"{STRIDED}, pads=[1,0,0,0], output_padding=[0,1]", "w4", [*IMAGE, "Slice"]),
        ("strides=[2,1]", "w2, b", IMAGE[2:]),
        ("strides=[1,2], pads=[1,1,1,1], output_padding=[0,1]", "many3", [*IMAGE[2:], "Slice"]),
        ("pads=[1,1,1,1]", "w3, b", []),
        ("strides=[1,1]", "w3", []),
    ],
)
def test_a_transposed_convolution_becomes_one_whose_channels_are_its_phases(
    attributes: str, weight: str, behind: list[str]
) -> None:
    model = model_with(f"y = ConvTranspose<{attributes}>(x, {weight})")
    found = assert_becomes(lower_conv_transpose, model, ["Conv", *behind])
    assert found.graph.node[0].name == "y"
    assert found.graph.node[-1].output[0] == "y"


@pytest.mark.parametrize(
    ("attributes", "weight", "behind"),
    [
        ("strides=[2]", "line2, b", LINE),
        ("strides=[2], pads=[1,1]", "line4", [*LINE, "Slice"]),
        ("pads=[1,0]", "line4", []),
    ],
)
def test_a_transposed_convolution_of_lines_of_any_length_too(attributes: str, weight: str, behind: list[str]) -> None:
    call = f"y = ConvTranspose<{attributes}>(x, {weight})"
    assert_becomes(lower_conv_transpose, model_with(call, size="2,4,5"), ["Conv", *behind])
    model = model_with(call, size="N,4,L")
    found = lower_conv_transpose(model)
    for shape in ((1, 4, 3), (2, 4, 7)):
        feed = {"x": floats(*shape)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


def test_two_that_share_a_weight_and_what_is_read_elsewhere_keep_their_values() -> None:
    call = f"ConvTranspose<{STRIDED}>(x, w2, b)"
    model = model_with(f"a = {call} c = {call} d = Relu(a) y = Add(c, d)", outputs="float[] y, float[] a")
    assert_becomes(lower_conv_transpose, model, ["Conv", *IMAGE, "Conv", *IMAGE, "Relu", "Add"])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), strides=st.lists(st.integers(1, 3), min_size=1, max_size=3), group=st.sampled_from([1, 2, 4]))
def test_every_form_that_onnxruntime_runs_keeps_its_outputs(
    data: st.DataObject, strides: list[int], group: int
) -> None:
    n_axes = len(strides)
    given_sizes = (4, 5, 6)[-n_axes:]
    is_multiple = data.draw(st.booleans())
    kernel = [
        stride * data.draw(st.integers(1, 3)) if is_multiple else data.draw(st.integers(1, 7)) for stride in strides
    ]
    pads = [data.draw(st.integers(0, size - 1)) for size in kernel * 2]
    more = [data.draw(st.integers(0, stride - 1)) for stride in strides]
    sizes = [s * (n - 1) + k for s, n, k in zip(strides, given_sizes, kernel, strict=True)]
    assume(all(n + m - a - b > 0 for n, m, a, b in zip(sizes, more, pads[:n_axes], pads[n_axes:], strict=True)))
    attributes = f"strides={strides}, pads={pads}, output_padding={more}, group={group}"
    model = model_of(
        f"(float[2,4,{','.join(map(str, given_sizes))}] x) => (float[] y)",
        f"y = ConvTranspose<{attributes}>(x, w, b)",
        {"w": floats(4, 8 // group, *kernel), "b": floats(8)},
    )
    lowered = lower_conv_transpose(model)
    (found,), (expected,) = (outputs_of(each, feed_of(model)) for each in (lowered, model))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, strict=True)
    each = zip(kernel * 2, pads, strides * 2, strict=True)
    if is_multiple:
        assert (lowered is model) == any(k // stride - 1 < pad // stride for k, pad, stride in each)


@pytest.mark.parametrize(
    "call",
    [
        f"ConvTranspose<{STRIDED}>(x, w3, b)",
        f"ConvTranspose<{STRIDED}>(x, many3)",
        "ConvTranspose<strides=[1,2]>(x, w3)",
        "ConvTranspose<dilations=[2,2]>(x, w2)",
        f'ConvTranspose<{STRIDED}, auto_pad="SAME_UPPER">(x, w4)',
        f"ConvTranspose<{STRIDED}, output_shape=[10,12]>(x, w2)",
        f"ConvTranspose<{STRIDED}>(x, r)",
        f"ConvTranspose<{STRIDED}>(x, w2, v)",
        "Conv(x, u)",
    ],
)
def test_what_phases_cannot_do_or_cost_more_products_stays(call: str) -> None:
    model = model_with(f"r = Abs(w2) v = Abs(b) u = Transpose<perm=[1,0,2,3]>(w2) y = {call}")
    assert lower_conv_transpose(model) is model


@pytest.mark.parametrize(("size", "opset"), [("2,4,H,W", 21), ("2,4,5,6", 9)])
def test_transposed_convolutions_of_images_of_unknown_size_and_of_old_opsets_stay(size: str, opset: int) -> None:
    model = model_with(f"y = ConvTranspose<{STRIDED}>(x, w2)", size=size, opset=opset)
    assert lower_conv_transpose(model) is model


def test_the_weight_holds_each_tap_once() -> None:
    found = lower_conv_transpose(model_with(f"y = ConvTranspose<{STRIDED}>(x, w4)"))
    weight = constants_of(found)["y_weight"]
    assert weight.shape == (12, 4, 2, 2)
    assert sorted(weight.ravel()) == sorted(CONSTANTS["w4"].ravel())


DOUBLED = 'Resize<mode="nearest", coordinate_transformation_mode="{}", nearest_mode="{}">(x, , double)'
FLOOR = DOUBLED.format("asymmetric", "floor")


@pytest.mark.parametrize(
    "resize",
    [
        FLOOR,
        DOUBLED.format("asymmetric", "round_prefer_floor"),
        DOUBLED.format("half_pixel", "round_prefer_floor"),
        DOUBLED.format("half_pixel", "round_prefer_ceil"),
        "Resize(x, , , sizes)",
        "Resize(x, , triple)",
        FLOOR.replace("double", "triple"),
        DOUBLED.format("half_pixel", "round_prefer_ceil").replace("double", "fourfold"),
    ],
)
@pytest.mark.parametrize("conv", ["Conv<pads=[1,1,1,1]>(u, k3, b)", 'Conv<auto_pad="SAME_UPPER">(u, k3)'])
def test_a_convolution_of_repeated_values_becomes_a_transposed_one(resize: str, conv: str) -> None:
    model = model_with(f"u = {resize} y = {conv}")
    assert_becomes(transpose_upsampled, model, ["ConvTranspose"])
    found = lower_conv_transpose(transpose_upsampled(model))
    np.testing.assert_allclose(
        outputs_of(found, feed_of(model))[0], outputs_of(model, feed_of(model))[0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (f"u = {DOUBLED.format('asymmetric', 'ceil')} y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        (f"u = {DOUBLED.format('half_pixel', 'floor')} y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        (f"u = {DOUBLED.format('align_corners', 'floor')} y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        ('u = Resize<mode="linear">(x, , double) y = Conv<pads=[1,1,1,1]>(u, k3)', "2,4,5,6"),
        ("u = Resize(x, , ninefold) y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        (
            f"u = {DOUBLED.format('asymmetric', 'round_prefer_floor').replace('double', 'triple')}"
            " y = Conv<pads=[1,1,1,1]>(u, k3)",
            "2,4,5,6",
        ),
        ("u = Resize(x, , unlike) y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        (f"u = {FLOOR} y = Conv<pads=[1,1,1,1]>(u, more3)", "2,4,5,6"),
        (f"u = {FLOOR.replace('double', 'more')} y = Conv<pads=[1,1,1,1]>(u, k3)", "2,4,5,6"),
        (f"u = {FLOOR} y = Conv<pads=[1,1,1,1]>(u, k3)", "N,4,H,W"),
        (f"u = {FLOOR} y = Conv(u, k3)", "2,4,5,6"),
        (f"u = {FLOOR} y = Conv<pads=[1,1,1,1], strides=[2,2]>(u, k3)", "2,4,5,6"),
        (f"u = {FLOOR} y = Conv<pads=[1,1,1,1], group=4>(u, each3)", "2,4,5,6"),
        (f"u = {FLOOR} y = Conv(u, k1)", "2,4,5,6"),
        (f"u = {FLOOR} c = Conv<pads=[1,1,1,1]>(u, k3) d = Conv(u, k1) y = Add(c, d)", "2,4,5,6"),
    ],
)
def test_a_convolution_of_other_values_stays(body: str, size: str) -> None:
    model = model_with(body, size=size)
    assert transpose_upsampled(model) is model


def test_where_a_resize_has_no_way_to_say_how_places_are_found_it_stays() -> None:
    model = model_with("u = Resize(x, double) y = Conv<pads=[1,1,1,1]>(u, k3)", opset=10)
    assert transpose_upsampled(model) is model


@pytest.mark.parametrize("mode", ["", ', mode="CRD"', ', mode="DCR"'])
@pytest.mark.parametrize("block", [1, 2, 3])
def test_depth_becomes_space_by_transposes_of_one_axis_each(mode: str, block: int) -> None:
    model = model_with(f"y = DepthToSpace<blocksize={block}{mode}>(x)", size="2,36,3,5")
    found = assert_becomes(interleave_depth, model, IMAGE if block > 1 else ["Reshape"])
    (one,), (other,) = (outputs_of(each, feed_of(model)) for each in (found, model))
    np.testing.assert_array_equal(one, other)


def test_depth_of_images_of_unknown_size_stays() -> None:
    model = model_with("y = DepthToSpace<blocksize=2>(x)", size="N,4,5,6")
    assert interleave_depth(model) is model


NORMALISED = "BatchNormalization<epsilon=0.01>({}, scale, shift, mean, variance)"


@pytest.mark.parametrize(
    "body",
    [
        f"r = Relu(x) y = {NORMALISED.format('r')}",
        "r = Relu(x) t = Mul(each, r) y = Add(t, other)",
        "r = Relu(x) s = Sub(r, each) t = Div(s, other) u = Mul(t, number) y = Sub(number, u)",
        f"r = Relu(x) t = Mul(r, number) y = {NORMALISED.format('t')}",
    ],
)
@pytest.mark.parametrize("size", ["2,4,5,6", "N,4,H,W"])
def test_what_scales_and_shifts_channels_becomes_a_depthwise_convolution(body: str, size: str) -> None:
    model = model_with(body, size=size)
    found = lower_affine(model)
    assert op_types(found) == ["Relu", "Conv"]
    onnx.checker.check_model(found, full_check=True)
    feed = {"x": floats(2, 4, 5, 6)}
    one, other = (outputs_of(each, feed)[0] for each in (found, model))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4, strict=True)


@pytest.mark.parametrize("body", [f"y = {NORMALISED.format('x')}", "t = Mul(x, line) y = Add(t, line)"])
def test_what_scales_and_shifts_channels_of_lines_does_too(body: str) -> None:
    assert_becomes(lower_affine, model_with(body, size="2,4,6"), ["Conv"])


LAST = "t = Transpose<perm=[0,3,1,2]>(x)", "y = Transpose<perm=[0,2,3,1]>(n)"
"""Around what has its channels last."""


@pytest.mark.parametrize(
    ("body", "size", "expected"),
    [
        (" ".join((LAST[0], f"n = {NORMALISED.format('t')}", LAST[1])), "2,5,6,4", ["Mul", "Add"]),
        (" ".join((LAST[0], "m = Mul(t, each) n = Add(m, other)", LAST[1])), "2,5,6,4", ["Mul", "Add"]),
        (
            f"t = Transpose<perm=[0,2,1]>(x) n = {NORMALISED.format('t')} y = Transpose<perm=[0,2,1]>(n)",
            "2,6,4",
            ["Mul", "Add"],
        ),
        (
            f"t = Transpose<perm=[1,0,2]>(x) n = {NORMALISED.format('t')} y = Transpose<perm=[1,0,2]>(n)",
            "4,2,6",
            ["Mul", "Add"],
        ),
        (
            f"t = Transpose<perm=[0,2,1]>(x) n = {NORMALISED.format('t')} u = Transpose<perm=[0,2,1]>(n)"
            f" m = {NORMALISED.format('u')} y = Transpose<perm=[0,2,1]>(m)",
            "2,4,4",
            ["Mul", "Add", "Conv", "Transpose"],
        ),
        (
            " ".join((LAST[0], f"n = {NORMALISED.format('t')}", "y = Transpose<perm=[0,3,1,2]>(n)")),
            "2,5,6,4",
            ["Transpose", "Conv", "Transpose"],
        ),
        (
            " ".join((LAST[0], f"n = {NORMALISED.format('t')}", LAST[1], "r = Relu(t)")),
            "2,5,6,4",
            ["Transpose", "Conv", "Transpose", "Relu"],
        ),
    ],
    ids=["images", "arithmetic", "lines", "another axis", "one behind another", "not moved back", "read beside"],
)
def test_channels_stay_last_between_transposes(body: str, size: str, expected: list[str]) -> None:
    assert_becomes(lower_affine, model_with(body, size=size), expected)


def test_what_is_read_between_ends_a_row() -> None:
    body = "t = Mul(x, each) u = Add(t, other) v = Mul(u, other) w = Sub(v, each) y = Relu(w)"
    assert_becomes(lower_affine, model_with(body, outputs="float[] y, float[] u"), ["Conv", "Conv", "Relu"])
    model = model_with("t = Mul(x, each) u = Add(t, other) y = Relu(u)", outputs="float[] y, float[] t")
    assert lower_affine(model) is model


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (f"y = {NORMALISED.format('x')}", "2,4"),
        ("v = Abs(variance) y = BatchNormalization(x, scale, shift, mean, v)", "2,4,5,6"),
        ("y, m, v = BatchNormalization<training_mode=1>(x, scale, shift, mean, variance)", "2,4,5,6"),
        ("t = Mul(x, each) y = Relu(t)", "2,4,5,6"),
        ("t = Mul(x, number) y = Add(t, number)", "2,4,5,6"),
        ("t = Mul(x, each) y = Add(t, other)", "2,1,5,6"),
        ("t = Mul(x, each) y = Add(t, other)", "2,N,5,6"),
        ("t = Mul(x, x) y = Add(t, each)", "2,4,5,6"),
        ("t = Mul(x, scale) y = Add(t, scale)", "2,4,4"),
        (f"y = {NORMALISED.format('x')}", "2,4,3,5,6"),
        (f"r = Reshape(x, bands) n = {NORMALISED.format('r')} y = Reshape(n, whole)", "2,2,10,6"),
    ],
)
def test_other_arithmetic_stays(body: str, size: str) -> None:
    model = model_with(body, size=size)
    assert lower_affine(model) is model


@pytest.mark.parametrize(
    ("call", "opset", "expected"),
    [
        ("ReduceMean(x, places)", 21, ["GlobalAveragePool"]),
        ("ReduceMean<keepdims=0>(x, places)", 21, ["GlobalAveragePool", "Reshape"]),
        ("ReduceMean<axes=[2,-1]>(x)", 13, ["GlobalAveragePool"]),
        ("ReduceL2(x, places)", 21, ["Mul", "GlobalAveragePool", "Mul", "Sqrt"]),
        ("ReduceL2<keepdims=0>(x, places)", 21, ["Mul", "GlobalAveragePool", "Mul", "Sqrt", "Reshape"]),
    ],
)
def test_a_mean_over_images_becomes_a_pool(call: str, opset: int, expected: list[str]) -> None:
    assert_becomes(pool_means, model_with(f"y = {call}", opset=opset), expected)


def test_a_mean_over_lines_does_too() -> None:
    assert_becomes(pool_means, model_with("y = ReduceMean(x, last)", size="2,4,6"), ["GlobalAveragePool"])


@pytest.mark.parametrize(
    ("call", "size"),
    [
        ("ReduceMean(x)", "2,4,5,6"),
        ("ReduceMean(x, last)", "2,4,5,6"),
        ("ReduceMean(x, last)", "4,6"),
        ("ReduceMean(x, first)", "2,4,6"),
        ("ReduceMean<keepdims=0>(x, places)", "N,4,5,6"),
        ("ReduceMax(x, places)", "2,4,5,6"),
        ("ReduceL2(x, last)", "2,4,5,6"),
        ("ReduceL2(x, places)", "2,4,N,6"),
        ("ReduceL2(x, places)", "2,4,0,6"),
    ],
)
def test_means_of_other_things_stay(call: str, size: str) -> None:
    model = model_with(f"y = {call}", size=size)
    assert pool_means(model) is model


@pytest.mark.parametrize(
    "body",
    [
        "s = Mul(x, x) m = ReduceMean(s, last) e = Add(m, number) r = Sqrt(e) y = Div(x, r)",
        "m = ReduceMean(x, last) y = Sub(x, m)",
    ],
)
def test_means_of_norms_stay(body: str) -> None:
    model = model_with(body, size="2,4,6")
    assert pool_means(model) is model
