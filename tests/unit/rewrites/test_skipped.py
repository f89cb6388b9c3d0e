from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoquant.model.graph import Graph
from autoquant.rewrites.skipped import skip_places
from tests.models import Array, floats, model_of, op_types, outputs_of, used_in
from tests.rewriting import rewritten

CONSTANTS: Mapping[str, Array | float] = {
    "w": floats(4, 4, 3, 3),
    "v": floats(4, 4, 1, 1),
    "u": floats(4, 4, 1, 1, seed=1),
    "wide": floats(4, 8, 1, 1),
    "depth": floats(4, 1, 3, 3),
    "c": floats(4, 1, 1),
    "places": floats(1, 4, 9, 8),
    "rows": floats(9, 1),
    "last": np.array([3]),
    "scale": np.abs(floats(4)) + 0.1,
    "s": floats(4),
    "half": 0.5,
}
THREE = "Conv<pads=[1,1,1,1]>"
BY_TWO = "Conv<strides=[2,2]>"
BLOCK = f"a = Conv(x, v) r = Relu(a) b = {THREE}(r, w) q = Relu(b) d = Conv(q, u) e = Add(x, d) t = Relu(e)"
NEXT = f"f = {BY_TWO}(t, v) g = {BY_TWO}(t, u) y = Add(f, g)"


def model_with(body: str, *, signature: str = "(float[1,4,9,8] x) => (float[] y)") -> onnx.ModelProto:
    return model_of(signature, body, used_in(body, CONSTANTS))


def skipped(model: onnx.ModelProto) -> onnx.ModelProto:
    return rewritten(skip_places, model, rtol=1e-4, atol=1e-5)


def strides_of(model: onnx.ModelProto) -> dict[str, list[int]]:
    """By what nodes write in the model that is given."""
    attributes = ((node.name, a) for node in model.graph.node for a in node.attribute if a.name == "strides")
    return {name: list(attribute.ints) for name, attribute in attributes}


def test_the_last_block_of_a_stage_computes_what_the_next_stage_reads() -> None:
    found = skipped(model_with(f"{BLOCK} {NEXT}"))
    strides = strides_of(found)
    assert (strides["b"], strides["d"], strides["f"], strides["g"]) == ([2, 2], [1, 1], [1, 1], [1, 1])
    assert "a" not in strides
    assert op_types(found).count("MaxPool") == 1  # of what is added
    graph = Graph(onnx.shape_inference.infer_shapes(found))
    assert {graph.sizes(node.outputs[0]) for node in graph.nodes[2:]} == {(1, 4, 5, 4)}


@pytest.mark.parametrize(
    ("between", "kept"),
    [
        ("t = LeakyRelu(b)", ["LeakyRelu"]),
        ("t = BatchNormalization(b, scale, s, s, scale)", ["BatchNormalization"]),
        ("t = Mul(b, half)", ["Mul"]),
        ("t = PRelu(b, c)", ["PRelu"]),
        ("m = GlobalAveragePool(x) t = Mul(b, m)", ["GlobalAveragePool", "Mul"]),
        ("z = Conv(x, v) t = Concat<axis=1>(b, z)", ["Conv", "Concat"]),
        ("t = Conv(b, v)", ["Conv"]),
        ("t = MaxPool<kernel_shape=[1,1]>(b)", ["MaxPool"]),
    ],
)
def test_what_is_between_has_the_same_places(between: str, kept: list[str]) -> None:
    body = f"b = {THREE}(x, w) {between} y = {BY_TWO}(t, {'wide' if 'Concat' in between else 'v'})"
    model = model_with(body)
    found = skipped(model)
    assert op_types(found) == ["Conv", *kept, "Conv"]
    assert (strides_of(found)["b"], strides_of(found)["y"]) == ([2, 2], [1, 1])


@pytest.mark.parametrize(
    ("window", "strides"),
    [
        ("Conv<strides=[2,1], pads=[1,1,1,1]>(x, w)", [4, 2]),
        ("Conv<dilations=[2,2], pads=[2,2,2,2]>(x, w)", [2, 2]),
        ('Conv<auto_pad="VALID">(x, w)', [2, 2]),
        ('Conv<auto_pad="SAME_UPPER">(x, v)', [2, 2]),
        ("Conv<group=4>(x, depth)", [2, 2]),
        ("MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)", [2, 2]),
        ("AveragePool<kernel_shape=[2,2], count_include_pad=1, pads=[0,0,1,1]>(x)", [2, 2]),
    ],
)
def test_windows_move_on_as_far_as_readers_do(window: str, strides: list[int]) -> None:
    body = f"t = {window} y = {BY_TWO}(t, v)"
    found = skipped(model_with(body))
    assert strides_of(found) == {"t": strides, "y": [1, 1]}


def test_lines_have_places_too() -> None:
    body = "t = Conv<pads=[1,1]>(x, line) y = Conv<strides=[3]>(t, single)"
    constants = {"line": floats(4, 4, 3), "single": floats(4, 4, 1)}
    found = skipped(model_of("(float[1,4,20] x) => (float[] y)", body, constants))
    assert strides_of(found) == {"t": [3], "y": [1]}


@pytest.mark.parametrize(
    "body",
    [
        f"t = {THREE}(x, w) y = Conv(t, v)",
        f"t = {THREE}(x, w) y = Conv<strides=[2,2], pads=[1,1,1,1]>(t, w)",
        f"t = {THREE}(x, w) y = Conv<strides=[2,2], pads=[1,1,1,1]>(t, v)",
        f"t = {THREE}(x, w) f = {BY_TWO}(t, v) m = GlobalAveragePool(t) y = Add(f, m)",
        f"t = {THREE}(x, w) f = {BY_TWO}(t, v) g = Conv<strides=[1,2]>(t, v) y = Concat<axis=2>(f, g)",
        f"t = Relu(x) y = {BY_TWO}(t, v)",
        f"y = {BY_TWO}(x, v)",
        f'b = Conv<auto_pad="SAME_UPPER">(x, w) y = {BY_TWO}(b, v)',
        f"b = MaxPool<kernel_shape=[2,2], ceil_mode=1>(x) y = {BY_TWO}(b, v)",
        f"b, i = MaxPool<kernel_shape=[2,2]>(x) f = {BY_TWO}(b, v) j = Cast<to=1>(i) m = ReduceMax(j) y = Add(f, m)",
        f"b = {THREE}(x, w) t = Softmax<axis=2>(b) y = {BY_TWO}(t, v)",
        f"b = {THREE}(x, w) t = Add(b, places) y = {BY_TWO}(t, v)",
        f"b = {THREE}(x, w) t = Add(b, rows) y = {BY_TWO}(t, v)",
        f"b = {THREE}(x, w) m = ReduceMean(x, last) t = Mul(b, m) y = {BY_TWO}(t, v)",
    ],
)
def test_what_reads_more_or_has_no_window_stays(body: str) -> None:
    model = model_with(body)
    assert skip_places(model) is model


def test_a_window_of_more_places_reads_what_is_there_as_a_whole() -> None:
    both = NEXT.replace("y =", "k =")
    found = skipped(model_with(f"{BLOCK} {both} h = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w) y = Add(k, h)"))
    assert strides_of(found)["b"] == strides_of(found)["h"] == [2, 2]


def test_outputs_of_the_model_stay_whole() -> None:
    model = model_with(
        f"t = {THREE}(x, w) y = {BY_TWO}(t, v)", signature="(float[1,4,9,8] x) => (float[] y, float[] t)"
    )
    assert skip_places(model) is model


def test_images_may_be_of_any_size() -> None:
    model = model_with(f"{BLOCK} {NEXT}", signature="(float[1,4,height,width] x) => (float[] y)")
    found = skip_places(model)
    assert strides_of(found)["b"] == [2, 2]
    for size in ((1, 1), (7, 8), (8, 5)):
        feed = {"x": floats(1, 4, *size)}
        np.testing.assert_allclose(outputs_of(found, feed)[0], outputs_of(model, feed)[0], rtol=1e-4, atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    own=st.lists(st.integers(1, 2), min_size=2, max_size=2),
    strides=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    size=st.lists(st.integers(4, 12), min_size=2, max_size=2),
    data=st.data(),
)
def test_windows_of_any_kind_give_the_same_values(
    kernel: list[int], own: list[int], strides: list[int], size: list[int], data: st.DataObject
) -> None:
    pads = [data.draw(st.integers(0, n - 1)) for n in kernel * 2]
    model = model_of(
        f"(float[1,2,{size[0]},{size[1]}] x) => (float[] y)",
        f"c = Conv<strides={own}, pads={pads}>(x, w) r = Relu(c) y = Conv<strides={strides}>(r, v)",
        {"w": floats(3, 2, *kernel), "v": floats(2, 3, 1, 1)},
    )
    found = skipped(model)
    expected = [a * b for a, b in zip(own, strides, strict=True)]
    assert strides_of(found) == ({"c": own, "y": strides} if max(strides) == 1 else {"c": expected, "y": [1, 1]})
