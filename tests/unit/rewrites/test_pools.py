import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.domain.region import TensorName
from autoquant.model.graph import Graph
from autoquant.model.rewrite import drop_inferable_types, infer_shapes
from autoquant.rewrites.pools import (
    convolve_first,
    drop_idle_dilations,
    lower_average_pool,
    spell_ceiled,
    weigh_pools,
)
from tests.models import constants_of, feed_of, floats, model_of, op_types, outputs_of
from tests.rewriting import rewritten

HALVED = "AveragePool<kernel_shape=[2,2], strides=[2,2]>"
PADDED = "kernel_shape=[3,3], pads=[1,1,1,1]"
IMAGE, LINE = "2,4,6,9", "2,4,9"


def behind_conv(body: str, *, size: str = IMAGE, opset: int = 21) -> onnx.ModelProto:
    """A model whose body reads ``c``, what a Conv of four channels makes of the input."""
    ones = (1,) * (size.count(",") - 1)
    return model_of(
        f"(float[{size}] x) => (float[] y)", f"c = Conv(x, w) {body}", {"w": floats(4, 4, *ones)}, opset=opset
    )


def assert_becomes(model: onnx.ModelProto, expected: list[str]) -> onnx.ModelProto:
    found = rewritten(lower_average_pool, model, rtol=1e-4, atol=1e-5)
    assert op_types(found) == expected
    return found


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("kernel_shape=[2,3]", IMAGE),
        ("kernel_shape=[1,1], strides=[2,3]", IMAGE),
        (f"{PADDED}, count_include_pad=1", IMAGE),
        ("kernel_shape=[3,3], pads=[0,1,2,0], count_include_pad=1", IMAGE),
        ("kernel_shape=[2,3], strides=[2,3], ceil_mode=1", IMAGE),
        ("kernel_shape=[3,3], strides=[2,2], pads=[1,0,0,0], ceil_mode=1, count_include_pad=1", IMAGE),
        ("kernel_shape=[3,3], dilations=[2,3]", IMAGE),
        ('kernel_shape=[3,3], auto_pad="VALID"', IMAGE),
        ('kernel_shape=[2,3], strides=[2,3], auto_pad="SAME_UPPER"', IMAGE),
        ('kernel_shape=[2,3], auto_pad="SAME_LOWER", count_include_pad=1', IMAGE),
        ("kernel_shape=[6,3]", IMAGE),
        ("kernel_shape=[6,9], pads=[1,1,1,1], count_include_pad=1", IMAGE),
        ("kernel_shape=[14,14]", "1,4,14,15"),
        ("kernel_shape=[3], strides=[2]", LINE),
        ("kernel_shape=[3], pads=[1,1], count_include_pad=1", LINE),
    ],
)
def test_means_of_as_many_places_become_a_depthwise_convolution(attributes: str, size: str) -> None:
    found = assert_becomes(behind_conv(f"y = AveragePool<{attributes}>(c)", size=size), ["Conv", "Conv"])
    assert found.graph.node[1].name == "y"
    assert len(np.unique(constants_of(found)["y_weight"])) == 1


@pytest.mark.parametrize("opset", [7, 11, 18, 19])
def test_pools_of_every_opset_do(opset: int) -> None:
    assert_becomes(behind_conv(f"y = {HALVED}(c)", opset=opset), ["Conv", "Conv"])


def test_nodes_between_and_other_convolutions_do_not_matter() -> None:
    body = f"r = Relu(c) k = Concat<axis=1>(x, r) a = {HALVED}(k) b = {HALVED}(a) y = Relu(b)"
    found = assert_becomes(behind_conv(body, size="2,4,8,8"), ["Conv", "Relu", "Concat", "Conv", "Conv", "Relu"])
    assert constants_of(found)["a_weight"].shape == (8, 1, 2, 2)
    model = model_of(
        f"(float[{IMAGE}] x) => (float[] y)", f"t = ConvTranspose(x, w) y = {HALVED}(t)", {"w": floats(4, 3, 1, 1)}
    )
    assert_becomes(model, ["ConvTranspose", "Conv"])


def test_images_may_be_of_unknown_size() -> None:
    attributes = f"{PADDED}, count_include_pad=1, strides=[2,2]"
    model = behind_conv(f"y = AveragePool<{attributes}>(c)", size="N,4,H,W")
    found = lower_average_pool(model)
    assert op_types(found) == ["Conv", "Conv"]
    for shape in ((1, 4, 5, 6), (2, 4, 8, 3)):
        feed = {"x": floats(*shape)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        (PADDED, IMAGE),
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", IMAGE),
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1, count_include_pad=1", IMAGE),
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", "2,4,H,W"),
        ('kernel_shape=[2,3], auto_pad="SAME_UPPER"', IMAGE),
        ('kernel_shape=[2,2], strides=[2,2], auto_pad="SAME_UPPER"', "2,4,H,W"),
        ('kernel_shape=[1,1], strides=[3,3], auto_pad="SAME_UPPER", count_include_pad=1', IMAGE),
        ('kernel_shape=[2,2], dilations=[2,2], auto_pad="SAME_UPPER", count_include_pad=1', IMAGE),
        ("kernel_shape=[6,9]", IMAGE),
        ("kernel_shape=[2,2], dilations=[5,8]", IMAGE),
        ("kernel_shape=[9]", LINE),
        ("kernel_shape=[2,10]", IMAGE),
        ("kernel_shape=[14,15]", "1,4,14,16"),
        ("kernel_shape=[2,2,2]", "2,4,3,4,5"),
    ],
)
def test_means_of_unlike_numbers_of_places_of_whole_images_and_of_large_windows_stay(
    attributes: str, size: str
) -> None:
    model = behind_conv(f"y = AveragePool<{attributes}>(c)", size=size)
    assert lower_average_pool(model) is model


@pytest.mark.parametrize(
    ("body", "size"),
    [
        (f"y = {HALVED}(x)", IMAGE),
        (f"r = Relu(x) p = {HALVED}(r) y = Conv(p, w)", IMAGE),
        (f"c = Conv(x, w) d = Abs(c) p = {HALVED}(x) q = {HALVED}(p) s = ReduceMean(d) y = Mul(q, s)", IMAGE),
        ("c = Conv(x, w) y = MaxPool<kernel_shape=[2,2]>(c)", IMAGE),
        (f"c = Conv(x, v) y = {HALVED}(c)", IMAGE),
    ],
)
def test_pools_before_any_convolution_of_unknown_channels_and_others_stay(body: str, size: str) -> None:
    model = model_of(f"(float[{size}] x, float[M,4,1,1] v) => (float[] y)", body, {"w": floats(4, 4, 1, 1)})
    assert lower_average_pool(model) is model


def test_doubles_stay() -> None:
    signature, body = f"(double[{IMAGE}] x, double[4,4,1,1] v) => (double[] y)", f"c = Conv(x, v) y = {HALVED}(c)"
    model = model_of(signature, body)
    assert lower_average_pool(model) is model


@settings(max_examples=80, deadline=None)
@given(data=st.data(), is_line=st.booleans())
def test_every_form_that_onnxruntime_runs_keeps_its_outputs(data: st.DataObject, *, is_line: bool) -> None:
    n_axes = 1 if is_line else 2

    def drawn(low: int, high: int, n: int = n_axes) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    sizes, window, strides, dilations = drawn(5, 9), drawn(1, 3), drawn(1, 3), drawn(1, 2)
    automatic = data.draw(st.sampled_from(["NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    pads = [min(pad, size - 1) for pad, size in zip(drawn(0, 2, 2 * n_axes), window * 2, strict=True)]
    flags = {name: data.draw(st.integers(0, 1)) for name in ("ceil_mode", "count_include_pad")}
    attributes = {"kernel_shape": window, "strides": strides, "dilations": dilations, **flags}
    padding = f"pads={pads}" if automatic == "NOTSET" else f'auto_pad="{automatic}"'
    written = ", ".join(f"{name}={value}" for name, value in attributes.items())
    model = behind_conv(f"y = AveragePool<{written}, {padding}>(c)", size=f"2,4,{','.join(map(str, sizes))}")
    (expected,) = outputs_of(model, feed_of(model))
    for rewrite in (lower_average_pool, weigh_pools):
        (found,) = outputs_of(rewrite(model), feed_of(model))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize(
    ("attributes", "size", "axes"),
    [
        ("kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]", 7, 0),
        ("kernel_shape=[2,2], strides=[2,2]", 7, 1),
        ("kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1]", 7, 0),
        ("kernel_shape=[3,3], strides=[2,2], pads=[0,0,1,1]", 9, 1),
        ("kernel_shape=[1,1], strides=[3,3]", 5, 0),
        ('kernel_shape=[2,2], strides=[3,3], auto_pad="SAME_LOWER"', 5, 1),
    ],
)
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
def test_ceil_mode_stays_where_it_adds_a_window_alone(op_type: str, attributes: str, size: int, axes: int) -> None:
    model = model_of(f"(float[1,2,{size},{size}] x) => (float[] y)", f"y = {op_type}<{attributes}, ceil_mode=1>(x)")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = spell_ceiled(model)
    assert next(a.i for a in found.graph.node[0].attribute if a.name == "ceil_mode") == axes
    feed = feed_of(model)
    (expected,), (other,) = (outputs_of(each, feed) for each in (model, found))
    np.testing.assert_array_equal(other, expected, strict=True)
    assert Graph(infer_shapes(found)).shape(TensorName("y")) == expected.shape


def test_sizes_behind_a_pool_are_those_that_onnxruntime_makes() -> None:
    pool = "MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>"
    model = model_of("(float[1,2,9,9] x) => (float[] y)", f"a = {pool}(x) b = {pool}(a) y = Neg(b)")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    found = infer_shapes(spell_ceiled(drop_inferable_types(model)))
    assert [Graph(found).shape(TensorName(name)) for name in "aby"] == [(1, 2, 5, 5), (1, 2, 3, 3), (1, 2, 3, 3)]
    assert outputs_of(found, feed_of(model))[0].shape == (1, 2, 3, 3)


def test_pools_of_unknown_sizes_and_others_stay() -> None:
    unknown = model_of("(float[1,2,H,H] x) => (float[] y)", "y = MaxPool<kernel_shape=[2,2], ceil_mode=1>(x)")
    assert spell_ceiled(unknown).graph.node == unknown.graph.node
    plain = model_of("(float[1,2,7,7] x) => (float[] y)", "y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)")
    assert spell_ceiled(plain) is plain


def assert_swapped(model: onnx.ModelProto, expected: list[str]) -> None:
    found = rewritten(convolve_first, model, rtol=1e-4, atol=1e-5)
    assert op_types(found) == expected
    assert (found is model) is (expected == op_types(model))


def pooled(attributes: str, conv: str = "Conv", size: str = "2,6,5,7") -> onnx.ModelProto:
    window = (1,) * (size.count(",") - 1)
    body = f"p = AveragePool<{attributes}>(x) y = {conv}(p, w, b)"
    return model_of(f"(float[{size}] x) => (float[] y)", body, {"w": floats(4, 6, *window), "b": floats(4)})


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("kernel_shape=[3,3], pads=[1,1,1,1]", "2,6,5,7"),
        ('kernel_shape=[3,2], auto_pad="SAME_UPPER", strides=[1,1]', "2,6,5,7"),
        ("kernel_shape=[3,3], ceil_mode=1", "2,6,5,7"),
        ("kernel_shape=[2,2], count_include_pad=1", "2,6,5,7"),
        ("kernel_shape=[3], pads=[1,1]", "2,6,9"),
    ],
)
def test_a_convolution_to_fewer_channels_comes_before_the_means(attributes: str, size: str) -> None:
    assert_swapped(pooled(attributes, size=size), ["Conv", "AveragePool"])


def test_what_reads_them_reads_the_means_of_fewer_channels() -> None:
    body = f"a = Relu(x) p = AveragePool<{PADDED}>(a) c = Conv(p, w, b) r = Relu(c) y = Add(r, c)"
    model = model_of("(float[2,6,5,7] x) => (float[] y)", body, {"w": floats(4, 6, 1, 1), "b": floats(4)})
    assert_swapped(model, ["Relu", "Conv", "AveragePool", "Relu", "Add"])


@pytest.mark.parametrize(
    "model",
    [
        pooled("kernel_shape=[2,2], strides=[2,2]"),
        pooled("kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1"),
        pooled('kernel_shape=[3,3], auto_pad="SAME_UPPER", count_include_pad=1'),
        pooled(PADDED, "Conv<strides=[2,2]>"),
        pooled(PADDED, "Conv<pads=[0,1,0,1]>"),
        model_of(
            "(float[1,6,5,5] x) => (float[] y)",
            f"p = AveragePool<{PADDED}>(x) y = Conv(p, w)",
            {"w": floats(6, 6, 1, 1)},
        ),
        model_of(
            "(float[1,6,5,5] x) => (float[] y)",
            f"p = AveragePool<{PADDED}>(x) y = Conv(p, w)",
            {"w": floats(4, 6, 3, 3)},
        ),
        model_of(
            "(float[1,6,5,5] x) => (float[] y)",
            f"p = AveragePool<{PADDED}>(x) y = Conv<group=2>(p, w)",
            {"w": floats(2, 3, 1, 1)},
        ),
        model_of(
            "(float[1,6,5,5] x) => (float[] y)",
            f"p = AveragePool<{PADDED}>(x) c = Conv(p, w) m = ReduceMax(p) y = Mul(c, m)",
            {"w": floats(4, 6, 1, 1)},
        ),
    ],
    ids=[
        "strides",
        "zeros count",
        "zeros count around all places",
        "strided Conv",
        "padded Conv",
        "no fewer",
        "wide Conv",
        "groups",
        "two readers",
    ],
)
def test_other_means_stay_before_convolutions(model: onnx.ModelProto) -> None:
    assert_swapped(model, op_types(model))


def assert_weighed(body: str, expected: list[str], *, size: str = "2,5,6,9", opset: int = 21) -> None:
    model = model_of(f"(float[{size}] x) => (float[] y)", body, opset=opset)
    feed = {"x": floats(*(7 if n == "n" else int(n) for n in size.split(",")))}
    assert op_types(rewritten(weigh_pools, model, feed, rtol=1e-4, atol=1e-5)) == expected


@pytest.mark.parametrize(
    ("attributes", "size", "expected"),
    [
        (PADDED, "2,5,6,9", ["Conv", "Mul"]),
        ("kernel_shape=[3,2], pads=[1,0,2,1], strides=[2,1]", "2,5,6,9", ["Conv", "Mul"]),
        ("kernel_shape=[2,2], strides=[2,2]", "2,5,6,9", ["Conv"]),
        (f"{PADDED}, count_include_pad=1", "2,5,6,9", ["Conv"]),
        ("kernel_shape=[3], pads=[1,1]", "2,5,9", ["Conv", "Mul"]),
        ("kernel_shape=[3,3], pads=[2,2,2,2], dilations=[2,2]", "2,5,6,9", ["Conv", "Mul"]),
        ("kernel_shape=[1,1], strides=[2,2]", "2,5,6,9", ["MaxPool"]),
    ],
    ids=["edges", "uneven", "even", "padding counts", "lines", "dilated", "single places"],
)
def test_pools_whose_channels_fill_no_block_are_weighed(attributes: str, size: str, expected: list[str]) -> None:
    assert_weighed(f"y = AveragePool<{attributes}>(x)", expected, size=size)


@pytest.mark.parametrize(
    ("body", "size", "opset"),
    [
        (f"y = AveragePool<{PADDED}>(x)", "2,8,6,9", 21),
        (f"y = AveragePool<{PADDED}>(x)", "2,5,6,9", 18),
        (f"y = AveragePool<{PADDED}>(x)", "2,5,n,9", 21),
        ("y = AveragePool<kernel_shape=[2,2], strides=[3,3], ceil_mode=1>(x)", "2,5,6,9", 21),
        ('y = AveragePool<kernel_shape=[2,2], auto_pad="SAME_UPPER">(x)', "2,5,6,9", 21),
        ("y = AveragePool<kernel_shape=[15,15]>(x)", "2,5,16,16", 21),
        (f"y = MaxPool<{PADDED}>(x)", "2,5,6,9", 21),
    ],
    ids=["blocks", "old opset", "unknown size", "partial window", "padding by itself", "large window", "no mean"],
)
def test_other_pools_are_left(body: str, size: str, opset: int) -> None:
    assert_weighed(body, ["MaxPool" if "MaxPool" in body else "AveragePool"], size=size, opset=opset)


@pytest.mark.parametrize(("dilations", "is_kept"), [("[1,1]", False), ("[2,1]", True)])
def test_dilations_that_leave_nothing_out_are_dropped(dilations: str, *, is_kept: bool) -> None:
    model = model_of("(float[2,5,6,9] x) => (float[] y)", f"y = AveragePool<{PADDED}, dilations={dilations}>(x)")
    (pool,) = rewritten(drop_idle_dilations, model, rtol=1e-6, atol=1e-6).graph.node
    assert any(attribute.name == "dilations" for attribute in pool.attribute) is is_kept
    assert {attribute.name for attribute in pool.attribute} >= {"kernel_shape", "pads"}
