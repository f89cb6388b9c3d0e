from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.feed import Feed
from autoquant.rewrites.piecewise import clip_first, merge_clips, split_prelu
from tests.models import Array, constants_of, feed_of, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

BEFORE_A_CLIP: Mapping[str, Array | float] = {
    "w": floats(4, 3, 3, 3),
    "axes": np.array([0]),
    "zero": 0.0,
    "six": 6.0,
    "one": 1.0,
    "below": -1.0,
}


def clipped(body: str, *, outputs: str = "float[] y") -> onnx.ModelProto:
    return model_of(f"(float[2,3,8,6] x) => ({outputs})", body, used_in(body, BEFORE_A_CLIP))


ODD = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30], np.float32)


def assert_equal(found: onnx.ModelProto, expected: onnx.ModelProto, *feeds: Feed) -> None:
    onnx.checker.check_model(found)
    for each in feed_of(expected), *feeds:
        for one, other in zip(outputs_of(found, each), outputs_of(expected, each), strict=True):
            np.testing.assert_array_equal(one, other, strict=True)


def assert_equal_everywhere(found: onnx.ModelProto, expected: onnx.ModelProto) -> None:
    """For infinities, NaN and zeros too; the sign of a zero counts for nothing."""
    odd = {name: np.resize(ODD, values.shape).astype(values.dtype) for name, values in feed_of(expected).items()}
    assert_equal(found, expected, odd)


@pytest.mark.parametrize("clip", ["Relu(p)", "Clip(p, zero, six)", "Clip(p, below)", "Clip(p)"])
@pytest.mark.parametrize(
    "pool",
    [
        "kernel_shape=[2,2], strides=[2,2]",
        "kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]",
        'kernel_shape=[3,2], auto_pad="SAME_UPPER", dilations=[1,1]',
    ],
)
def test_a_clip_behind_a_max_pool_goes_directly_behind_the_conv(clip: str, pool: str) -> None:
    model = clipped(f"c = Conv(x, w) p = MaxPool<{pool}>(c) y = {clip}")
    first = clip_first(model)
    assert op_types(first) == ["Conv", clip.partition("(")[0], "MaxPool"]
    assert [node.name for node in first.graph.node] == ["c", "y", "p"]
    assert first.graph.node[-1].output[0] == "y"
    assert_equal(first, model)


def test_a_relu_goes_before_all_that_only_moves_elements() -> None:
    body = "c = Conv(x, w) t = Transpose(c) p = MaxPool<kernel_shape=[1,2]>(t) u = Unsqueeze(p, axes) r = Relu(u)"
    model = clipped(f"{body} y = Sigmoid(r)")
    first = clip_first(model)
    assert op_types(first) == ["Conv", "Relu", "Transpose", "MaxPool", "Unsqueeze", "Sigmoid"]
    assert_equal(first, model)


def test_a_relu_goes_before_what_makes_a_larger_image() -> None:
    model = clipped("c = Conv(x, w) d = DepthToSpace<blocksize=2>(c) y = Relu(d)")
    first = clip_first(model)
    assert op_types(first) == ["Conv", "Relu", "DepthToSpace"]
    assert_equal(first, model)


def test_each_of_several_relus_goes_behind_its_own_conv() -> None:
    pool = "MaxPool<kernel_shape=[2,2]>"
    body = f"c = Conv(x, w) p = {pool}(c) r = Relu(p) d = Conv(r, v) q = {pool}(d) s = Relu(q) y = Relu(s)"
    model = model_of("(float[1,3,8,8] x) => (float[] y)", body, {"w": floats(3, 3, 3, 3), "v": floats(2, 3, 1, 1)})
    first = clip_first(model)
    assert op_types(first) == ["Conv", "Relu", "MaxPool", "Conv", "Relu", "MaxPool", "Relu"]
    assert_equal(first, model)


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv(x, w) y = Relu(c)",
        "p = MaxPool<kernel_shape=[2,2]>(x) y = Relu(p)",
        "c = Sigmoid(x) p = MaxPool<kernel_shape=[2,2]>(c) y = Relu(p)",
        "c = Conv(x, w) p = AveragePool<kernel_shape=[2,2]>(c) y = Relu(p)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(c) y = Relu(p)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2], dilations=[2,2]>(c) y = Relu(p)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) y = Clip(p, one, six)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) m = ReduceMax<keepdims=0>(c) y = Clip(p, zero, m)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) y = LeakyRelu(p)",
        "c = Conv(x, w) p = MaxPool<kernel_shape=[2,2]>(c) r = Relu(p) s = Sigmoid(c) y = Concat<axis=0>(r, s)",
    ],
)
def test_a_clip_that_no_conv_would_absorb_or_that_would_change_the_values_stays(body: str) -> None:
    model = clipped(body)
    assert clip_first(model) is model


@pytest.mark.parametrize(
    ("pool", "outputs"),
    [
        ("p = MaxPool<kernel_shape=[2,2]>(c)", "float[] y, float[] p"),
        ("p = MaxPool<kernel_shape=[2,2]>(c)", "float[] y, float[] c"),
        ("p, i = MaxPool<kernel_shape=[2,2]>(c)", "float[] y, int64[] i"),
    ],
)
def test_a_pool_of_which_more_is_read_than_the_clip_does_stays(pool: str, outputs: str) -> None:
    model = clipped(f"c = Conv(x, w) {pool} y = Relu(p)", outputs=outputs)
    assert clip_first(model) is model


@settings(max_examples=30, deadline=None)
@given(
    kernel=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    strides=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    data=st.data(),
)
def test_pools_of_any_window_see_the_same_values(kernel: list[int], strides: list[int], data: st.DataObject) -> None:
    pads = [data.draw(st.integers(0, size - 1)) for size in kernel * 2]
    model = clipped(f"c = Conv(x, w) p = MaxPool<kernel_shape={kernel}, strides={strides}, pads={pads}>(c) y = Relu(p)")
    first = clip_first(model)
    assert op_types(first) == ["Conv", "Relu", "MaxPool"]
    assert_equal(first, model)


BOUNDS: Mapping[str, Array | float] = {
    "zero": 0.0,
    "one": np.ones(1, np.float32),
    "third": np.full((1, 1), 1 / 3, np.float32),
    "below": -0.5,
    "some": 0.25,
    "much": 2.0,
    "wide": np.zeros((1, 1, 1, 1), np.float32),
    "each": floats(4),
    "none": np.array(np.nan, np.float32),
}


def bounded(body: str, *, outputs: str = "float[2,3,4] y", opset: int = 21) -> onnx.ModelProto:
    return model_of(f"(float[2,3,4] x) => ({outputs})", body, used_in(body, BOUNDS), opset=opset)


@pytest.mark.parametrize(
    ("body", "low", "high"),
    [
        ("y = Max(x, below)", -0.5, np.inf),
        ("y = Max(zero, x)", 0.0, np.inf),
        ("y = Min(x, one)", -np.inf, 1.0),
        ("r = Relu(x) y = Min(r, one)", 0.0, 1.0),
        ("a = Min(one, x) y = Max(a, below)", -0.5, 1.0),
        ("r = Relu(x) a = Min(r, one) y = Max(a, third)", 1 / 3, 1.0),
        ("c = Clip(x, below, much) y = Relu(c)", 0.0, 2.0),
        ("c = Clip(x, some, much) y = Min(c, zero)", 0.0, 0.0),
        ("a = Max(x, third) y = Min(a, below)", -0.5, -0.5),
    ],
)
def test_what_clips_in_a_row_becomes_one_clip(body: str, low: float, high: float) -> None:
    model = bounded(body)
    merged = merge_clips(model)
    assert op_types(merged) == ["Clip"]
    (clip,), constants = merged.graph.node, constants_of(merged)
    assert [float(constants[name]) for name in clip.input[1:]] == pytest.approx([low, high])
    assert (clip.name, clip.output[0]) == ("y", "y")
    assert_equal_everywhere(merged, model)


@pytest.mark.parametrize(
    "body",
    [
        "y = Relu(x)",
        "y = Clip(x, zero, much)",
        "y = Max(x, each)",
        "y = Max(x, none)",
        "s = Sigmoid(x) y = Max(x, s)",
        "y = Max(x, zero, one)",
        "y = Max(x)",
        "r = Relu(x) s = Sigmoid(r) c = Clip(r, zero, much) y = Add(s, c)",
    ],
)
def test_what_clips_by_itself_or_is_more_than_a_clip_stays(body: str) -> None:
    model = bounded(body)
    assert merge_clips(model) is model


def test_a_bound_that_widens_the_output_stays() -> None:
    model = bounded("y = Max(x, wide)", outputs="float[1,2,3,4] y")
    assert merge_clips(model) is model


def test_before_bounds_were_tensors_nothing_is_merged() -> None:
    model = bounded("y = Max(x, zero)", opset=10)
    assert merge_clips(model) is model


def test_integers_are_not_clipped() -> None:
    model = model_of("(int64[4] x) => (int64[4] y)", "y = Max(x, one)", {"one": np.array(1)})
    assert merge_clips(model) is model


@pytest.mark.parametrize("outputs", ["float[2,3,4] y, float[2,3,4] a", "float[2,3,4] y, float[2,3,4] s"])
def test_what_is_read_between_two_clips_stays(outputs: str) -> None:
    model = bounded("a = Max(x, zero) y = Min(a, one) s = Sigmoid(a)", outputs=outputs)
    merged = merge_clips(model)
    assert op_types(merged) == ["Clip", "Clip", "Sigmoid"]
    assert_equal_everywhere(merged, model)


SLOPES: Mapping[str, Array] = {
    "one": np.full(1, 0.25, np.float32),
    "scalar": np.array(1.5, np.float32),
    "small": np.array([[[0.1]], [[-0.3]], [[1.0]]], np.float32),
    "large": np.array([[[1.0]], [[3.0]], [[1.5]]], np.float32),
    "mixed": np.array([[[0.1]], [[3.0]], [[-1.5]]], np.float32),
    "each": floats(3, 2, 4) / 10,
}


def sloped(name: str, *, opset: int = 21) -> onnx.ModelProto:
    source, slope = "(float[2,3,2,4] x) => (float[2,3,2,4] y)", {"slope": SLOPES[name]}
    return model_of(source, "y = PRelu(x, slope)", slope, opset=opset)


@pytest.mark.parametrize(
    ("slope", "expected"),
    [
        ("one", ["LeakyRelu"]),
        ("scalar", ["LeakyRelu"]),
        ("small", ["Mul", "Max"]),
        ("each", ["Mul", "Max"]),
        ("large", ["Mul", "Min"]),
    ],
)
def test_a_prelu_with_a_constant_slope_is_written_with_faster_operators(slope: str, expected: list[str]) -> None:
    model = sloped(slope)
    split = split_prelu(model)
    assert op_types(split) == expected
    assert (split.graph.node[-1].name, split.graph.node[-1].output[0]) == ("y", "y")
    assert_equal_everywhere(split, model)


@settings(max_examples=30, deadline=None)
@given(slopes=st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=4))
def test_a_prelu_of_any_slope_gives_the_same_numbers(slopes: list[float]) -> None:
    slope = np.array(slopes, np.float32).reshape(-1, 1, 1)
    source = f"(float[1,{len(slopes)},128,128] x) => (float[1,{len(slopes)},128,128] y)"
    model = model_of(source, "y = PRelu(x, slope)", {"slope": slope})
    split = split_prelu(model)
    has_two = min(slopes) >= 1 or (max(slopes) <= 1 and 0 not in slopes)
    assert len(op_types(split)) == (1 if len(set(slopes)) == 1 else 2 if has_two else 4)
    assert_equal_everywhere(split, model)


def behind_a_conv(slopes: npt.NDArray[np.float32], before: str = "c = Conv(x, w)") -> onnx.ModelProto:
    """PRelu of 4 x 4 places, between two Convs."""
    n = slopes.shape[-3]
    constants: dict[str, Array | float] = {"w": floats(n, n, 1, 1), "slope": slopes}
    signature = f"(float[2,{n},4,4] x) => (float[2,{n},4,4] y)"
    return model_of(signature, f"{before} p = PRelu(c, slope) y = Conv(p, w)", constants)


@settings(max_examples=20, deadline=None)
@given(
    bounds=st.sampled_from([(-2.0, 1.0), (0.0, 1.0), (-1.0, 3.0), (1.5, 2.0)]),
    n_blocks=st.integers(1, 3),
    has_batch=st.booleans(),
    before=st.sampled_from(["c = Conv(x, w)", "a = Conv(x, w) c = Add(a, x)"]),
)
def test_a_prelu_behind_a_conv_is_written_with_convs(
    bounds: tuple[float, float], n_blocks: int, has_batch: bool, before: str
) -> None:
    n = 16 * n_blocks
    slopes = np.random.default_rng(n).uniform(*bounds, (*[1] * has_batch, n, 1, 1)).astype(np.float32)
    model = behind_a_conv(slopes, before)
    split = rewritten(split_prelu, model, rtol=1e-4, atol=1e-4)
    order = ["Conv", "Relu"] if bounds[1] <= 1 else ["Relu", "Conv"]
    assert op_types(split)[-5:] == ["Conv", *order, "Add", "Conv"]
    assert split.graph.node[-2].name == "p"


@pytest.mark.parametrize(
    "model",
    [
        behind_a_conv(floats(24, 1, 1)),
        behind_a_conv(floats(16, 4, 1)),
        behind_a_conv(floats(16, 1, 1), "c = MatMul(x, x)"),
        behind_a_conv(floats(16, 1, 1), "a = MatMul(x, x) c = Add(a, x)"),
    ],
    ids=["no blocks", "rows", "no Conv", "sum without one"],
)
def test_other_prelus_are_no_convs(model: onnx.ModelProto) -> None:
    assert op_types(split_prelu(model)).count("Conv") == op_types(model).count("Conv")


def test_a_prelu_whose_slope_is_computed_or_not_finite_stays() -> None:
    signature = "(float[2,4] x, float[4] s) => (float[2,4] y)"
    infinite = {"slope": np.array([1, 2, np.inf, 3], np.float32)}
    for model in (model_of(signature, "y = PRelu(x, s)"), model_of(signature, "y = PRelu(x, slope)", infinite)):
        assert split_prelu(model) is model


def test_a_prelu_with_a_slope_of_zero_is_not_multiplied_with_infinity() -> None:
    slope = {"slope": np.array([0.0, 0.5], np.float32).reshape(-1, 1, 1)}
    model = model_of("(float[1,2,128,128] x) => (float[1,2,128,128] y)", "y = PRelu(x, slope)", slope)
    split = split_prelu(model)
    assert op_types(split) == ["Max", "Min", "Mul", "Add"]
    assert_equal_everywhere(split, model)


def test_a_prelu_of_mixed_slopes_stays_in_a_small_tensor() -> None:
    model = sloped("mixed")
    assert split_prelu(model) is model


def test_a_prelu_of_an_old_opset_stays() -> None:
    model = sloped("small", opset=9)
    assert split_prelu(model) is model
