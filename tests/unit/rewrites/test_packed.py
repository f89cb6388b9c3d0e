"""Which convolutions write places as channels, and that every output stays as it is."""

import itertools

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.graph.rewriting import fast_kernels, rewritten
from autoquant.model.graph import Graph
from autoquant.rewrites.packed import pack_places
from tests import rewriting
from tests.models import feed_of, floats, model_of, op_types, outputs_of


def a_conv(
    n_read: int,
    n_written: int,
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
    attributes: str = "",
    *,
    n_images: int = 1,
    opset: int = 21,
) -> onnx.ModelProto:
    given = ",".join(map(str, (n_images, n_read, *sizes)))
    call = f"y = Conv<{attributes}>(x, w, b)" if attributes else "y = Conv(x, w, b)"
    constants = {"w": floats(n_written, n_read, *kernel, scale=0.2), "b": floats(n_written)}
    return model_of(f"(float[{given}] x) => (float[] y)", call, constants, opset=opset)


def assert_equal(model: onnx.ModelProto, *, is_packed: bool = True) -> Graph:
    found = rewriting.rewritten(pack_places, model, rtol=1e-4, atol=1e-4)
    assert ("Transpose" in op_types(found)) == is_packed
    assert (found is not model) == is_packed
    return Graph(found)


@pytest.mark.parametrize(
    ("n_read", "n_written", "kernel", "shape"),
    [
        (64, 1, (3, 3), (16, 64, 6, 6)),
        (64, 3, (3, 3), (12, 64, 4, 4)),
        (32, 1, (7,), (16, 32, 22)),
        (8, 8, (3, 39), (16, 8, 3, 40)),
        (1, 1, (256,), (16, 1, 271)),
    ],
)
def test_neighbouring_places_fill_a_block_where_that_saves_products(
    n_read: int, n_written: int, kernel: tuple[int, ...], shape: tuple[int, ...]
) -> None:
    sizes = (32, 48)[: len(kernel)] if kernel != (256,) else (511,)
    graph = assert_equal(
        a_conv(n_read, n_written, kernel, tuple(s + k - 1 for s, k in zip(sizes, kernel, strict=True)))
    )
    conv = next(node for node in graph.nodes if node.op_type == "Conv")
    assert graph.shape(conv.inputs[1]) == shape


@pytest.mark.parametrize(
    ("n_read", "n_written", "kernel", "attributes"),
    [
        (64, 16, (3, 3), ""),
        (64, 8, (3, 3), ""),
        (64, 1, (1, 1), ""),
        (3, 1, (3, 3), ""),
        (64, 1, (3, 3), "dilations = [2, 2]"),
        (64, 2, (3, 3), "group = 2"),
    ],
    ids=["a block", "a small block", "no neighbours", "few read", "dilated", "groups"],
)
def test_others_stay(n_read: int, n_written: int, kernel: tuple[int, ...], attributes: str) -> None:
    model = a_conv(n_read, n_written, kernel, (36, 36), attributes)
    if attributes.startswith("group"):
        weight = {"w": floats(2, 32, 3, 3, scale=0.2)}
        model = model_of("(float[1,64,36,36] x) => (float[] y)", "y = Conv<group = 2>(x, w)", weight)
    assert_equal(model, is_packed=False)


def test_weights_that_are_computed_images_of_unknown_size_and_old_opsets_stay() -> None:
    computed = model_of(
        "(float[1,64,36,36] x, float[1,64,3,3] v) => (float[] y)", "w = Relu(v) y = Conv(x, w)", opset=21
    )
    unknown = model_of("(float[1,64,H,36] x) => (float[] y)", "y = Conv(x, w)", {"w": floats(1, 64, 3, 3)})
    for model in (computed, unknown, a_conv(64, 1, (3, 3), (36, 36), opset=9)):
        assert pack_places(model) is model


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_outputs_stay_whatever_the_padding_and_the_steps(data: st.DataObject) -> None:
    draw = data.draw
    n_axes = draw(st.sampled_from((1, 2)))
    kernel = tuple(draw(st.integers(2, 7)) for _ in range(n_axes))
    sizes = tuple(draw(st.integers(k + 20, k + 40)) for k in kernel)
    strides = [draw(st.integers(1, 3)) for _ in kernel]
    padding = draw(st.sampled_from(("pads", "SAME_UPPER", "SAME_LOWER", "VALID")))
    pads = [draw(st.integers(0, k - 1)) for k in (*kernel, *kernel)]
    spelled = f"pads = {pads}" if padding == "pads" else f'auto_pad = "{padding}"'
    n_written, n_images = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    model = a_conv(8, n_written, kernel, sizes, f"strides = {strides}, {spelled}", n_images=n_images)
    rewriting.rewritten(pack_places, model, rtol=1e-4, atol=1e-4)


def test_most_of_these_are_packed() -> None:
    """So that the test before this one tests something."""
    drawn = itertools.product((2, 3, 5, 7), (1, 2, 3), (1, 2))
    found = [
        pack_places(model) is not model
        for kernel, stride, n_written in drawn
        for model in [a_conv(8, n_written, (kernel, kernel), (40, 40), f"strides = [{stride}, {stride}]")]
    ]
    assert sum(found) > len(found) / 2


@pytest.mark.parametrize(("is_for_cpu", "is_packed"), [(True, True), (False, False)])
def test_other_providers_get_the_convolution_as_it_is(is_for_cpu: bool, is_packed: bool) -> None:
    found = rewritten(a_conv(64, 1, (3, 3), (34, 34)), fast_kernels(is_for_cpu=is_for_cpu))
    assert ("Transpose" in op_types(found)) == is_packed


def test_a_relu_stays_beside_its_convolution() -> None:
    constants = {"w": floats(4, 64, 3, 3, scale=0.2)}
    body = "c = Conv<pads=[1,1,1,1]>(x, w) y = Relu(c)"
    model = model_of("(float[1,64,32,48] x) => (float[] y)", body, constants)
    found = rewritten(model, fast_kernels(is_for_cpu=True))
    assert op_types(found)[:3] == ["Conv", "Relu", "Reshape"]
    feed = feed_of(model)
    for was, now in zip(outputs_of(model, feed), outputs_of(found, feed), strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-4, atol=1e-4)
